"""The effective rank falls: states move into few directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from headscan.run import Option
from headscan.training.monitor.alarm import ALARMS, AlarmRule

__all__ = ["RankCollapse"]


@ALARMS.register("rank")
@dataclass(frozen=True, kw_only=True)
class RankCollapse(AlarmRule):
    """The effective rank of a site fell: its logarithm, in usual steps."""

    name: ClassVar[str] = "rank"
    quantity: ClassVar[str] = "effective_rank"
    ground: ClassVar[float] = 0.2
    limit: Annotated[float, Option("How many times the largest of the last steps.", above=0)] = 3.0

    def bad(self, value: float) -> float:
        """More is worse."""
        return -math.log(max(value, 1e-12))

    def say(self, where: str, before: float, now: float) -> str:
        """What happened."""
        return f"The effective rank at {where} fell from {before:.3g} to {now:.3g}."
