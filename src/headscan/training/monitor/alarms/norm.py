"""Norms explode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from headscan.run import Option
from headscan.training.monitor.alarm import ALARMS, AlarmRule

__all__ = ["NormGrowth"]


@ALARMS.register("norm")
@dataclass(frozen=True, kw_only=True)
class NormGrowth(AlarmRule):
    """The mean norm of a site grew: its logarithm, in usual steps."""

    name: ClassVar[str] = "norm"
    quantity: ClassVar[str] = "mean_norm"
    ground: ClassVar[float] = 0.2
    limit: Annotated[float, Option("How many times the largest of the last steps.", above=0)] = 3.0

    def bad(self, value: float) -> float:
        """More is worse."""
        return math.log(max(value, 1e-12))

    def say(self, where: str, before: float, now: float) -> str:
        """What happened."""
        return f"The mean norm at {where} grew from {before:.3g} to {now:.3g}."
