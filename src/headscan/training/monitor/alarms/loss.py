"""The loss leaps: a broken shard of data, a rate too high."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from headscan.run import Option
from headscan.training.monitor.alarm import ALARMS, AlarmRule

__all__ = ["LossSpike"]


@ALARMS.register("loss")
@dataclass(frozen=True, kw_only=True)
class LossSpike(AlarmRule):
    """The loss rose above the eight logged before it."""

    name: ClassVar[str] = "loss"
    quantity: ClassVar[str] = "loss"
    memory: ClassVar[int] = 8
    ground: ClassVar[float] = 0.05
    limit: Annotated[float, Option("How many times the largest of the last steps.", above=0)] = 4.0

    def bad(self, value: float) -> float:
        """More is worse."""
        return value

    def say(self, where: str, before: float, now: float) -> str:
        """What happened."""
        return f"The loss leapt from {before:.3f} to {now:.3f}."
