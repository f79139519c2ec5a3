"""An arm beside the one that it is compared with, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headscan.run import Interval
from headscan.training.racing.race import Race
from headscan.training.racing.table import at_loss, mean_over_seeds

__all__ = ["COMPARED", "ArmDifference", "compare"]


@dataclass(frozen=True, kw_only=True)
class ArmDifference:
    """A number of an arm less that of its reference (or over it, for a ratio), at the same seeds.

    where: "own rates" (each at its best), "rate R" (both at R) or "V/d" (another cell); the first decides, the others can
    only take its word back. interval: Student's over seeds, so wide that all arms' together hold with 95 %; None for one
    seed. neutral: what no difference would be, 0 or 1.
    """

    arm: str
    reference: str
    measure: str
    where: str
    seeds: int
    value: float | None
    reference_value: float | None
    difference: float | None
    interval: Interval | None
    neutral: float

    @property
    def sign(self) -> int:
        """-1 or 1 where the interval leaves `neutral` out, else 0."""
        if self.interval is None:
            return 0
        low, high = self.interval
        return -1 if high < self.neutral else 1 if low > self.neutral else 0

    @property
    def leaning(self) -> int:
        """The sign of the difference alone."""
        if self.difference is None or self.difference == self.neutral:
            return 0
        return 1 if self.difference > self.neutral else -1


def _shape(name: str) -> Callable[[Race, float], float | None]:
    return lambda race, matched: at_loss(race, matched)[name]


def _seconds_a_step(race: Race, matched: float) -> float | None:
    return race.seconds_a_step


def _nats(race: Race, matched: float) -> float | None:
    return race.moments[-1].nats if race.tuning_nats is not None else None


COMPARED: Mapping[str, tuple[Callable[[Race, float], float | None], bool]] = {
    "average_cosine": (_shape("average_cosine"), False),
    "average_cosine_without_ones": (_shape("average_cosine_without_ones"), False),
    "effective_rank": (_shape("effective_rank"), False),
    "effective_rank_without_ones": (_shape("effective_rank_without_ones"), False),
    "tokens": (_shape("tokens"), True),
    "heldout_nats": (_nats, False),
    "seconds_a_step": (_seconds_a_step, True),
}
"""What is compared, and whether as a ratio."""


def compare(
    races: Sequence[Race], reference: Sequence[Race], *, where: str, matched: float, arms: int
) -> list[ArmDifference]:
    """The differences of one arm from its reference; `arms` are compared in all."""
    others = {race.seed: race for race in reference}
    pairs = [(race, others[race.seed]) for race in races if race.seed in others]
    found = []
    for measure, (of, ratio) in COMPARED.items():
        values = [(of(one, matched), of(other, matched)) for one, other in pairs]
        known = [(one, other) for one, other in values if one is not None and other is not None]
        if ratio:
            mean, interval = mean_over_seeds([math.log(one / other) for one, other in known], level=1 - 0.05 / arms)
            mean = None if mean is None else math.exp(mean)
            interval = None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
        else:
            mean, interval = mean_over_seeds([one - other for one, other in known], level=1 - 0.05 / arms)
        found.append(
            ArmDifference(
                arm=races[0].arm, reference=reference[0].arm, measure=measure, where=where, seeds=len(known),
                value=mean_over_seeds([one for one, _ in known])[0], difference=mean, interval=interval,
                reference_value=mean_over_seeds([other for _, other in known])[0], neutral=1.0 if ratio else 0.0,
            )
        )  # fmt: skip
    return found
