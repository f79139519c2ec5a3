"""When a run degenerates: rules over what is measured as it goes, one class each.

A rule sees a quantity on a scale where more is worse. It compares the latest reading with the median of the four (losses:
eight) before it, in units of the largest step between two of those: a young model changes fast, and an old one that
suddenly does is broken. One (`rise`) compares the last ten losses with the twenty before them, in standard errors. Limits
were calibrated on small healthy runs that differ in seed, width, depth, rate, objective, text and distance between readings,
and then held against others (`benchmarks/the_monitor_names_collapses_and_leaves_healthy_runs_alone.py`). So an alarm means
"1 healthy run in 300 changed so fast" (at a lone odd batch); it does not mean that a larger model never does.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from headscan.run import BadInput, Option, Registry, Settings


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A rule that spoke after a step: its name, the quantity before and now, and what happened as a sentence."""

    name: str
    step: int
    site: str | None  # where the change was largest; None for the loss
    sites: list[str] = field(default_factory=list)  # all where the change passed the limit
    before: float
    value: float
    sentence: str


@dataclass(frozen=True, kw_only=True)
class AlarmRule(Settings):
    """One rule: which quantity, and how much worse is too much.

    quantity: the column of a reading that it looks at; "loss" is the Trainer's. memory: readings before the latest that it needs.
    ground: added to the largest step, so that what hardly moves does not make every breath an alarm; on the rule's scale.
    report: what happened, with {where}, {before} and {now}.
    """

    name: ClassVar[str]
    quantity: ClassVar[str]
    memory: ClassVar[int] = 4
    ground: ClassVar[float]
    limit: Annotated[float, Option("How many times the largest of the last steps.", above=0)] = 3.0
    report: ClassVar[str]

    def before(self, values: Sequence[float]) -> float:
        """What the latest of these readings is compared with, for people."""
        return float(np.median(values[-self.memory - 1 : -1]))

    def bad(self, value: float) -> float:
        """The quantity on the rule's scale, where more is worse."""
        return value

    def say(self, where: str, before: float, now: float) -> str:
        return self.report.format(where=where, before=before, now=now)

    def speaks(self, values: Sequence[float]) -> bool:
        """Whether the last of these readings is too much worse than the ones before it; never with too few of them."""
        return (worse := self.change(values)) is not None and worse > self.limit

    def change(self, values: Sequence[float]) -> float | None:
        """How much worse the last reading is, in usual steps; None with too few before it, or where one is not finite."""
        known = values[-self.memory - 1 :]
        if len(known) <= self.memory or not np.isfinite(known).all():
            return None
        return self._worse(known)

    def _worse(self, known: Sequence[float]) -> float:
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


@ALARMS.register("cone")
@dataclass(frozen=True, kw_only=True)
class ConeCloses(AlarmRule):
    """The average cosine of a site rose: the logarithm of 1 less it fell, in usual steps.

    Young models pass through cones of .7 and leave them again: a level alone says nothing.
    """

    name = "cone"
    quantity = "average_cosine"
    ground = 0.2
    report = "The average cosine at {where} rose from {before:.3g} to {now:.3g}: the states close into a cone."

    def bad(self, value: float) -> float:
        return -math.log(max(1 - value, 1e-9))


@ALARMS.register("dead")
@dataclass(frozen=True, kw_only=True)
class DeadFeatures(AlarmRule):
    """A share of a site's coordinates stopped telling tokens apart (variance under 1e-6 of the mean one)."""

    name = "dead"
    quantity = "dead_share"
    ground = 0.02
    report = "At {where} the share of coordinates that are the same for every token rose from {before:.0%} to {now:.0%}."


@ALARMS.register("loss")
@dataclass(frozen=True, kw_only=True)
class LossSpike(AlarmRule):
    """The loss rose above the eight logged before it."""

    name = "loss"
    quantity = "loss"
    memory = 8
    ground = 0.05
    limit: Annotated[float, Option("How many times the largest of the last steps.", above=0)] = 4.0
    report = "The loss leapt from {before:.3f} to {now:.3f}."


@ALARMS.register("norm")
@dataclass(frozen=True, kw_only=True)
class NormGrowth(AlarmRule):
    """The mean norm of a site grew: its logarithm, in usual steps."""

    name = "norm"
    quantity = "mean_norm"
    ground = 0.2
    report = "The mean norm at {where} grew from {before:.3g} to {now:.3g}."

    def bad(self, value: float) -> float:
        return math.log(max(value, 1e-12))


@ALARMS.register("rank")
@dataclass(frozen=True, kw_only=True)
class RankCollapse(AlarmRule):
    """The effective rank of a site fell: its logarithm, in usual steps."""

    name = "rank"
    quantity = "effective_rank"
    ground = 0.2
    report = "The effective rank at {where} fell from {before:.3g} to {now:.3g}."

    def bad(self, value: float) -> float:
        return -math.log(max(value, 1e-12))


@ALARMS.register("rise")
@dataclass(frozen=True, kw_only=True)
class LossRise(AlarmRule):
    """The mean of the last ten logged losses is above that of the twenty before them, in standard errors.

    A young model expects little of its text and loses as little where that turns into noise: hundredths of a nat, less than
    two batches differ by, but for ten batches in a row. Healthy losses fall or stay.
    """

    name = "rise"
    quantity = "loss"
    recent = 10
    memory = 29
    ground = 1e-4
    limit: Annotated[float, Option("How many standard errors of the difference.", above=0)] = 4.5
    report = "The loss rose from {before:.3f} to {now:.3f} and stayed: look at the data of the last 10 logs."

    def _worse(self, known: Sequence[float]) -> float:
        before, now = np.asarray(known[: -self.recent]), np.asarray(known[-self.recent :])
        deviation = max(before.std(ddof=1), now.std(ddof=1)) + self.ground  # the larger of the two
        return float((now.mean() - before.mean()) / (deviation * np.sqrt(1 / len(before) + 1 / len(now))))

    def before(self, values: Sequence[float]) -> float:
        return float(np.mean(values[-self.memory - 1 : -self.recent]))
