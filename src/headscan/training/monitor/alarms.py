"""Alarms: rules over the numbers of a training run that say when it degenerates.

A rule is one class; what it raises is a finding HS501 to HS517. A rule reads one quantity on a
scale where more is worse. It compares the latest reading with the median of the four (losses:
eight) before it, in units of the largest step between two of those: a young model changes fast, and
an old one that suddenly does is broken. The rule `rise` compares the last ten losses with the
twenty before them, in standard errors; a `Level` reads the latest number alone. Limits were
calibrated on small healthy runs that differ in kind, seed, width, depth, rate, text and distance
between readings, and then held against others
(`benchmarks/the_monitor_names_ten_faults_and_leaves_healthy_runs_alone.py`). A larger model may
change faster.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from headscan.run import BadInput, Finding, Option, Registry, Settings
from headscan.training.monitor.kinds import ALARM_KINDS


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """An alarm that a rule raised after a step.

    Attributes:
        name: the rule.
        code: the code of the finding.
        site: the site where the change was largest; None for the loss.
        sites: all sites where the change passed the limit.
        before, value: the quantity before and now; None where it is not finite, or there was
            nothing before.
    """

    name: str
    code: str
    step: int
    site: str | None
    sites: list[str] = field(default_factory=list)
    before: float | None
    value: float | None
    sentence: str

    def finding(self) -> Finding:
        """Return the alarm as every verb writes its findings."""
        kind = ALARM_KINDS.get(self.code)
        name = "" if kind is None else kind.name  # a rule of a user has no kind
        return Finding(
            code=self.code,
            name=name,
            level="alarm",
            sentence=self.sentence,
            site=self.site,
            value=self.value,
            unit="" if kind is None else kind.number,
        )


@dataclass(frozen=True, kw_only=True)
class AlarmRule(Settings):
    """One rule: which quantity, and how much worse is too much.

    Attributes:
        code: the code of its finding, as `headscan.training.monitor.kinds` lists it.
        quantity: the column of a reading that it reads, FAMILY/NAME of a family; "loss" is the
            Trainer's.
        memory: readings before the latest that it needs.
        ground: added to the largest step, on the rule's scale, so that a quantity that hardly moves
            does not raise an alarm at each small change.
        scale: 1 where more is worse, -1 where less is; with `within`, of the logarithm of what lies
            between these bounds.
        last_step: the last step whose readings it judges; None: all.
        report: the sentence, with {where}, {before} and {now}.
    """

    name: ClassVar[str]
    code: ClassVar[str]
    quantity: ClassVar[str]
    memory: ClassVar[int] = 4
    ground: ClassVar[float]
    scale: ClassVar[int] = 1
    within: ClassVar[tuple[float, float] | None] = None
    last_step: ClassVar[int | None] = None
    limit: Annotated[float, Option("How many times the largest of the last steps.", above=0)] = 3.0
    report: ClassVar[str]

    def before(self, values: Sequence[float]) -> float:
        """Return the number that the latest of these readings is compared with, for people."""
        if len(values) < 2:
            return math.nan
        return float(np.median(values[-self.memory - 1 : -1]))

    def bad(self, value: float) -> float:
        """Return the quantity on the rule's scale, where more is worse."""
        if self.within is not None:
            low, high = self.within
            value = math.log(min(max(value, low), high))
        return self.scale * value

    def say(self, where: str, before: float, now: float) -> str:
        """Return the sentence of an alarm."""
        return self.report.format(where=where, before=before, now=now)

    def change(self, values: Sequence[float]) -> float | None:
        """Return how much worse the last reading is, in usual steps.

        It is None with too few readings before it, or where one is not finite. No comparison is
        true of NaN, so only the rule `nonfinite` judges numbers that are not finite.
        """
        recent = values[-self.memory - 1 :]
        if len(recent) <= self.memory or not np.isfinite(recent).all():
            return None
        return self._worse(recent)

    def _worse(self, recent: Sequence[float]) -> float:
        *previous, latest = (self.bad(value) for value in recent)
        largest_step = np.abs(np.diff(previous)).max()
        return float((latest - np.median(previous)) / (largest_step + self.ground))


ALARMS: Registry[type[AlarmRule]] = Registry("alarm", "headscan.training.monitor.alarms")
"""All rules by name."""


def rules_of(alarms: str | Iterable[str | AlarmRule]) -> list[AlarmRule]:
    """Return rules by name (globs), or made with other limits: `[Cone(limit=3), "loss"]`.

    >>> [rule.name for rule in rules_of("r*,loss")]
    ['rank', 'rise', 'rows', 'repeated', 'loss']
    """
    rules: list[AlarmRule] = []
    for item in alarms.split(",") if isinstance(alarms, str) else alarms:
        if isinstance(item, AlarmRule):
            rules.append(item)
        elif item:
            rules += [ALARMS.build(name) for name in ALARMS.match(item)]
    if alarms and not rules:
        raise BadInput(f"{alarms!r} names no alarm; there are: {', '.join(ALARMS)}.")
    if len({rule.name for rule in rules}) < len(rules):
        raise BadInput("An alarm is given twice.")
    return rules


@dataclass(frozen=True, kw_only=True)
class Level(AlarmRule):
    """A rule that reads the latest number alone, whatever was before.

    `memory` is the number of readings for which it is silent after an alarm.
    """

    memory = 4
    ground = 0.0

    def change(self, values: Sequence[float]) -> float | None:
        return self.bad(values[-1]) if values else None


@ALARMS.register("cone")
class ConeCloses(AlarmRule):
    """The average cosine of a site rose: the logarithm of 1 less it fell, in usual steps.

    Young models pass through cones of 0.7 and leave them again: a level alone says nothing.
    """

    name = "cone"
    code = "HS503"
    quantity = "average_cosine"
    ground = 0.2
    report = (
        "The average cosine at {where} rose from {before:.3g} to {now:.3g}: the states close into "
        "a cone."
    )

    def bad(self, value: float) -> float:
        return -math.log(max(1 - value, 1e-9))


@ALARMS.register("dead")
class DeadFeatures(AlarmRule):
    """A share of a site's coordinates became the same for every token (variance under 1e-6 of the
    mean one).
    """

    name = "dead"
    code = "HS505"
    quantity = "dead_share"
    ground = 0.02
    report = (
        "At {where} the share of coordinates that are the same for every token rose from "
        "{before:.0%} to {now:.0%}."
    )


@ALARMS.register("loss")
class LossSpike(AlarmRule):
    """The loss rose above the eight logged before it."""

    name = "loss"
    code = "HS501"
    quantity = "loss"
    memory = 8
    ground = 0.05
    limit: Annotated[float, Option("How many times the largest of the last steps.", above=0)] = 4.0
    report = "The loss jumped from {before:.3f} to {now:.3f}."


@dataclass(frozen=True, kw_only=True)
class Growth(AlarmRule):
    """A rule about a norm that grows: growth from a norm of zero has no size."""

    def change(self, values: Sequence[float]) -> float | None:
        if self.before(values) == 0:
            return None
        return super().change(values)


@ALARMS.register("norm")
class NormGrowth(Growth):
    """The mean norm of a site grew: its logarithm, in usual steps."""

    name = "norm"
    code = "HS506"
    quantity = "mean_norm"
    ground = 0.2
    within = (1e-12, math.inf)
    report = "The mean norm at {where} grew from {before:.3g} to {now:.3g}."


@ALARMS.register("rank")
class RankCollapse(AlarmRule):
    """The effective rank of a site fell: its logarithm, in usual steps."""

    name = "rank"
    code = "HS504"
    quantity = "effective_rank"
    ground = 0.2
    scale = -1
    within = (1e-12, math.inf)
    report = "The effective rank at {where} fell from {before:.3g} to {now:.3g}."


@ALARMS.register("rise")
class LossRise(AlarmRule):
    """The mean of the last ten logged losses is above that of the twenty before them, in standard
    errors.

    A young model expects little of its text and loses as little where that turns into noise:
    hundredths of a nat, less than two batches differ by, but for ten batches in a row. Healthy
    losses fall or stay.
    """

    name = "rise"
    code = "HS502"
    quantity = "loss"
    last = 10
    memory = 29
    ground = 1e-4
    limit: Annotated[float, Option("How many standard errors of the difference.", above=0)] = 4.5
    report = (
        "The loss rose from {before:.3f} to {now:.3f} and stayed: look at the data of the last 10 "
        "logs."
    )

    def _worse(self, recent: Sequence[float]) -> float:
        before = np.asarray(recent[: -self.last])
        now = np.asarray(recent[-self.last :])
        deviation = max(before.std(ddof=1), now.std(ddof=1)) + self.ground
        standard_error = deviation * np.sqrt(1 / len(before) + 1 / len(now))
        return float((now.mean() - before.mean()) / standard_error)

    def before(self, values: Sequence[float]) -> float:
        return float(np.mean(values[-self.memory - 1 : -self.last]))


@ALARMS.register("logits")
class LogitGrowth(AlarmRule):
    """The largest attention logit of a block grew: its logarithm, in usual steps; below 5 it does
    no harm.
    """

    name = "logits"
    code = "HS507"
    quantity = "qk_logit_max/max"
    ground = 0.3
    within = (5.0, math.inf)
    report = (
        "The largest attention logit at {where} grew from {before:.3g} to {now:.3g}: normalise "
        "queries and keys, or cap."
    )


@ALARMS.register("entropy")
class AttentionCollapse(AlarmRule):
    """The least entropy of a head (over that of uniform weights) fell: its logarithm, in usual
    steps.
    """

    name = "entropy"
    code = "HS508"
    quantity = "qk_logit_max/entropy"
    ground = 0.2
    scale = -1
    within = (1e-3, 1.0)
    report = (
        "A head at {where} attends to one position: its share of the greatest entropy fell from "
        "{before:.3g} to {now:.3g}."
    )


@ALARMS.register("overflow")
class Overflow(Level):
    """An activation came near the largest number of its precision, or passed it."""

    name = "overflow"
    code = "HS509"
    quantity = "branch_ratio/headroom"
    limit: Annotated[float, Option("Share of the largest number of the precision.", above=0)] = 0.1
    report = (
        "Activations at {where} reach {now:.2g} of the largest number of their precision: look at "
        "its branches' max."
    )

    def bad(self, value: float) -> float:
        return value if math.isfinite(value) else math.inf


@ALARMS.register("update")
class UpdateGrowth(Growth):
    """The update of a matrix over its weights grew: its logarithm, in usual steps."""

    name = "update"
    code = "HS510"
    quantity = "update_stable_rank/relative"
    ground = 0.3
    within = (1e-4, math.inf)
    report = (
        "A step moves {where} by {now:.2g} times its norm, after {before:.2g}: look at the "
        "learning rate."
    )


@ALARMS.register("warmup")
class NoWarmup(Level):
    """The very first update moved weights far: the rate has no warm-up."""

    name = "warmup"
    code = "HS511"
    quantity = "update_stable_rank/relative"
    last_step = 1
    limit: Annotated[
        float, Option("Norm of the first update over that of the weights.", above=0)
    ] = 0.04
    report = "The first step moved {where} by {now:.2g} times its norm: warm the learning rate up."

    def change(self, values: Sequence[float]) -> float | None:
        return values[0] if len(values) == 1 else None


@ALARMS.register("frozen")
class FrozenLayer(AlarmRule):
    """A matrix that moved stands still while others move: the factor between two readings, as a
    decimal logarithm.
    """

    name = "frozen"
    code = "HS512"
    quantity = "update_stable_rank/against_mean"
    memory = 1
    ground = 0.0
    limit: Annotated[
        float, Option("Decimal logarithm of the factor between the last two readings.", above=0)
    ] = 3.0
    report = (
        "{where} does not change while others do: is it frozen, or are its updates lost to "
        "rounding?"
    )

    def _worse(self, recent: Sequence[float]) -> float:
        before, now = (math.log10(max(value, 1e-9)) for value in recent)
        return before - now


@ALARMS.register("rows")
class RowSpike(AlarmRule):
    """The longest row of a matrix over its median row grew: its logarithm, in usual steps."""

    name = "rows"
    code = "HS513"
    quantity = "weight_stable_rank/row_spread"
    ground = 0.2
    within = (1.0, math.inf)
    report = (
        "The longest row of {where} grew from {before:.3g} to {now:.3g} times the median one: "
        "look at its token or feature."
    )


@ALARMS.register("experts")
class StarvedExperts(AlarmRule):
    """The share of experts that get no token, nor a tenth of an equal probability, rose in two
    readings above the four before.
    """

    name = "experts"
    code = "HS514"
    quantity = "expert_load/dead"
    memory = 5
    ground = 0.0
    limit: Annotated[float, Option("By which share of the experts.", above=0)] = 0.2
    report = (
        "At {where} {now:.0%} of the experts get no token and no chance, after {before:.0%}: look "
        "at the balancing loss."
    )

    def _worse(self, recent: Sequence[float]) -> float:
        return min(recent[-2:]) - max(recent[:-2])


@ALARMS.register("repeated")
class RepeatedData(Level):
    """Most windows were read a short time ago, too."""

    name = "repeated"
    code = "HS515"
    quantity = "repeated/share"
    limit: Annotated[float, Option("Share of the windows since the last reading.", above=0)] = 0.5
    report = (
        "{now:.0%} of the windows were read before within the last steps: look at the sampler and "
        "at the shards."
    )


@ALARMS.register("shard")
class OtherTokens(AlarmRule):
    """Pairs of tokens became rarer among those read before. This depends on the text alone, not on
    what the model has learned.
    """

    name = "shard"
    code = "HS516"
    quantity = "repeated/surprise"
    ground = 0.1
    report = (
        "The tokens are unlike those before: their pairs are {now:.3g} nats rare, after "
        "{before:.3g}; look at the shard."
    )


@ALARMS.register("nonfinite")
class NotFinite(Level):
    """A loss, gradient, weight, state or reading is NaN or infinite."""

    name = "nonfinite"
    code = "HS517"
    quantity = "nonfinite/tensors"
    limit: Annotated[
        float, Option("Number of tensors of a block that may have such an entry.", low=0)
    ] = 0.0
    report = (
        "NaN or infinite numbers in {where}: go back to an earlier checkpoint, look at the "
        "learning rate and the precision."
    )

    def say(self, where: str, before: float, now: float) -> str:
        return super().say(where or "the loss", before, now)
