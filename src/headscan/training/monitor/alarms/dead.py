"""Coordinates die."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from headscan.run import Option
from headscan.training.monitor.alarm import ALARMS, AlarmRule

__all__ = ["DeadFeatures"]


@ALARMS.register("dead")
@dataclass(frozen=True, kw_only=True)
class DeadFeatures(AlarmRule):
    """A share of a site's coordinates stopped telling tokens apart (variance under 1e-6 of the mean one)."""

    name: ClassVar[str] = "dead"
    quantity: ClassVar[str] = "dead_share"
    ground: ClassVar[float] = 0.02
    limit: Annotated[float, Option("How many times the largest of the last steps.", above=0)] = 3.0

    def bad(self, value: float) -> float:
        """More is worse."""
        return value

    def say(self, where: str, before: float, now: float) -> str:
        """What happened."""
        return f"At {where} the share of coordinates that are the same for every token rose from {before:.0%} to {now:.0%}."
