"""The states close into a cone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from headscan.run import Option
from headscan.training.monitor.alarm import ALARMS, AlarmRule

__all__ = ["ConeCloses"]


@ALARMS.register("cone")
@dataclass(frozen=True, kw_only=True)
class ConeCloses(AlarmRule):
    """The average cosine of a site rose: the logarithm of 1 less it fell, in usual steps.

    Young models pass through cones of .7 and leave them again: a level alone says nothing.
    """

    name: ClassVar[str] = "cone"
    quantity: ClassVar[str] = "average_cosine"
    ground: ClassVar[float] = 0.2
    limit: Annotated[float, Option("How many times the largest of the last steps.", above=0)] = 3.0

    def bad(self, value: float) -> float:
        """More is worse."""
        return -math.log(max(1 - value, 1e-9))

    def say(self, where: str, before: float, now: float) -> str:
        """What happened."""
        return f"The average cosine at {where} rose from {before:.3g} to {now:.3g}: the states close into a cone."
