"""The loss rises and stays: a shard of data that is not text, where the model expects too little for a leap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from headscan.run import Option
from headscan.training.monitor.alarm import ALARMS, AlarmRule

__all__ = ["LossRise"]


@ALARMS.register("rise")
@dataclass(frozen=True, kw_only=True)
class LossRise(AlarmRule):
    """The mean of the last ten logged losses is above that of the twenty before them, in standard errors.

    A young model expects little of its text and loses as little where that turns into noise: hundredths of a nat, less than
    two batches differ by, but for ten batches in a row. Healthy losses fall or stay.
    """

    name: ClassVar[str] = "rise"
    quantity: ClassVar[str] = "loss"
    recent: ClassVar[int] = 10
    memory: ClassVar[int] = 29
    ground: ClassVar[float] = 1e-4
    limit: Annotated[float, Option("How many standard errors of the difference.", above=0)] = 4.5

    def change(self, values: Sequence[float]) -> float | None:
        """The difference of the two means over its standard error, by the larger of their two deviations."""
        known = np.asarray(values[-self.memory - 1 :])
        if len(known) <= self.memory or not np.isfinite(known).all():
            return None
        before, now = known[: -self.recent], known[-self.recent :]
        deviation = max(before.std(ddof=1), now.std(ddof=1)) + self.ground
        return float((now.mean() - before.mean()) / (deviation * np.sqrt(1 / len(before) + 1 / len(now))))

    def before(self, values: Sequence[float]) -> float:
        """The mean of the twenty."""
        return float(np.mean(values[-self.memory - 1 : -self.recent]))

    def bad(self, value: float) -> float:
        """More is worse."""
        return value

    def say(self, where: str, before: float, now: float) -> str:
        """What happened."""
        return (
            f"The loss rose from {before:.3f} to {now:.3f} and stayed: look at the data of the last {self.recent} logs."
        )
