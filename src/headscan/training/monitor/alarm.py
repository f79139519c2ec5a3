"""When a run degenerates: rules over what is measured as it goes, one class in one file each.

A rule sees a quantity on a scale where more is worse. It compares the latest reading with the median of the four (losses:
eight) before it, in units of the largest step between two of those: a young model changes fast, and an old one that
suddenly does is broken. One (`rise`) compares the last ten losses with the twenty before them, in standard errors. Limits
were calibrated on small healthy runs that differ in seed, width, depth, rate, objective, text and distance between readings,
and then held against others (`benchmarks/the_monitor_names_collapses_and_leaves_healthy_runs_alone.py`). So an alarm means
"1 healthy run in 300 changed so fast" (at a lone odd batch); it does not mean that a larger model never does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from headscan.run import BadInput, Registry, Settings

__all__ = ["ALARMS", "Alarm", "AlarmRule", "rules_of"]


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A rule that spoke.

    Attributes:
        name: of the rule.
        step: after which it spoke.
        site: where the change was largest; None for the loss.
        sites: all where it passed the limit.
        before, value: the quantity before, and now.
        sentence: what happened, for people.
    """

    name: str
    step: int
    site: str | None
    sites: list[str] = field(default_factory=list)
    before: float
    value: float
    sentence: str


@dataclass(frozen=True, kw_only=True)
class AlarmRule(Settings, ABC):
    """One rule: which quantity, and how much worse is too much."""

    name: ClassVar[str]
    quantity: ClassVar[str]
    """The column of a reading that it looks at; "loss" is the Trainer's."""
    memory: ClassVar[int] = 4
    """Readings before the latest that it needs."""
    ground: ClassVar[float]
    """Added to the largest step, so that what hardly moves does not make every breath an alarm; on the rule's scale."""
    limit: float

    def before(self, values: Sequence[float]) -> float:
        """What the latest of these readings is compared with, for people."""
        return float(np.median(values[-self.memory - 1 : -1]))

    @abstractmethod
    def bad(self, value: float) -> float:
        """The quantity on the rule's scale, where more is worse."""

    @abstractmethod
    def say(self, where: str, before: float, now: float) -> str:
        """What happened."""

    def speaks(self, values: Sequence[float]) -> bool:
        """Whether the last of these readings is too much worse than the ones before it; never with too few of them."""
        return (worse := self.change(values)) is not None and worse > self.limit

    def change(self, values: Sequence[float]) -> float | None:
        """How much worse the last reading is, in usual steps; None with too few before it, or where one is not finite."""
        known = values[-self.memory - 1 :]
        if len(known) <= self.memory or not np.isfinite(known).all():
            return None
        *before, now = (self.bad(value) for value in known)
        return float((now - np.median(before)) / (np.abs(np.diff(before)).max() + self.ground))


ALARMS: Registry[type[AlarmRule]] = Registry("alarm", "headscan.training.monitor.alarms")


def rules_of(alarms: str | Iterable[str | AlarmRule]) -> list[AlarmRule]:
    """Rules by name (globs), or made with limits of one's own: `[Cone(limit=3), "loss"]`.

    >>> [rule.name for rule in rules_of("r*,loss")]
    ['rank', 'rise', 'loss']
    """
    found: list[AlarmRule] = []
    for one in alarms.split(",") if isinstance(alarms, str) else alarms:
        if isinstance(one, AlarmRule):
            found.append(one)
        elif one:
            found += [ALARMS.build(name) for name in ALARMS.match(one)]
    if len({rule.name for rule in found}) < len(found):
        raise BadInput("An alarm is given twice.")
    return found
