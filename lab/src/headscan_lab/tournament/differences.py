"""The differences of an arm from the arm that it is compared with, and a sentence made of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headscan.run import Interval
from headscan_lab.tournament.race import Race
from headscan_lab.tournament.reading import at_loss, final_nats, mean_over_seeds

OWN_RATES = "own rates"
"""The value of `ArmDifference.where` that decides: both arms at their best rates."""


@dataclass(frozen=True, kw_only=True)
class ArmDifference:
    """A number of an arm less that of its reference (or over it, for a ratio), at the same seeds.

    Attributes:
        where: "own rates" (each arm at its best), "rate R" (both at R) or "V/d" (another cell). The
            first decides; the others can only limit it.
        seeds: seeds for which both numbers are defined.
        value, reference_value: the means of both numbers.
        interval: Student's interval over seeds, so wide that those of all arms hold together with
            95 %; None for one seed.
        neutral: the value of no difference, 0 or 1.
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
        """Return -1 or 1 where the interval leaves `neutral` out, else 0."""
        if self.interval is None:
            return 0
        low, high = self.interval
        if high < self.neutral:
            return -1
        return 1 if low > self.neutral else 0

    @property
    def leaning(self) -> int:
        """Return the sign of the difference alone, whatever its interval."""
        if self.difference is None or self.difference == self.neutral:
            return 0
        return 1 if self.difference > self.neutral else -1


@dataclass(frozen=True)
class ComparedMeasure:
    """A number of a race at a matched loss, and whether it is compared as a ratio."""

    value: Callable[[Race, float], float | None]
    is_ratio: bool = False


def _at_matched_loss(name: str) -> Callable[[Race, float], float | None]:
    return lambda race, matched: at_loss(race, matched)[name]


COMPARED: Mapping[str, ComparedMeasure] = {
    "average_cosine": ComparedMeasure(_at_matched_loss("average_cosine")),
    "average_cosine_without_ones": ComparedMeasure(_at_matched_loss("average_cosine_without_ones")),
    "effective_rank": ComparedMeasure(_at_matched_loss("effective_rank")),
    "effective_rank_without_ones": ComparedMeasure(_at_matched_loss("effective_rank_without_ones")),
    "tokens": ComparedMeasure(_at_matched_loss("tokens"), is_ratio=True),
    "heldout_nats": ComparedMeasure(lambda race, _matched: final_nats(race)),
    "seconds_a_step": ComparedMeasure(lambda race, _matched: race.seconds_a_step, is_ratio=True),
}
"""The numbers in which arms are compared."""


def compare(
    races: Sequence[Race], references: Sequence[Race], *, where: str, matched: float, arms: int
) -> list[ArmDifference]:
    """Return the differences of one arm's races from its reference's.

    Args:
        where: the circumstance; see `ArmDifference`.
        matched: the loss in nats at which shapes are compared.
        arms: how many arms are compared in all, for which the intervals allow.
    """
    reference_by_seed = {race.seed: race for race in references}
    pairs = [
        (race, reference_by_seed[race.seed]) for race in races if race.seed in reference_by_seed
    ]
    level = 1 - 0.05 / arms
    differences = []
    for name, measure in COMPARED.items():
        values = []
        reference_values = []
        for race, reference in pairs:
            value = measure.value(race, matched)
            reference_value = measure.value(reference, matched)
            if value is not None and reference_value is not None:
                values.append(value)
                reference_values.append(reference_value)
        if measure.is_ratio:
            difference, interval = _mean_ratio(values, reference_values, level)
        else:
            difference, interval = _mean_difference(values, reference_values, level)
        differences.append(
            ArmDifference(
                arm=races[0].arm,
                reference=references[0].arm,
                measure=name,
                where=where,
                seeds=len(values),
                value=mean_over_seeds(values)[0],
                difference=difference,
                interval=interval,
                reference_value=mean_over_seeds(reference_values)[0],
                neutral=1.0 if measure.is_ratio else 0.0,
            )
        )
    return differences


def _mean_difference(
    values: Sequence[float], reference_values: Sequence[float], level: float
) -> tuple[float | None, Interval | None]:
    pairs = zip(values, reference_values, strict=True)
    return mean_over_seeds([value - reference for value, reference in pairs], level=level)


def _mean_ratio(
    values: Sequence[float], reference_values: Sequence[float], level: float
) -> tuple[float | None, Interval | None]:
    """Return the geometric mean of the ratios, and its interval."""
    pairs = zip(values, reference_values, strict=True)
    logs = [math.log(value / reference) for value, reference in pairs]
    mean, interval = mean_over_seeds(logs, level=level)
    ratio = None if mean is None else math.exp(mean)
    if interval is None:
        return ratio, None
    return ratio, (math.exp(interval[0]), math.exp(interval[1]))


def sentence_of(differences: Sequence[ArmDifference], matched: float) -> str:
    """Return what the differences of one arm from its reference allow to be said, with numbers.

    A difference is reported where its interval (over seeds, and wide enough for all arms at once)
    leaves no difference out, at each arm's own best rate. Where another rate or size leans the
    other way, the sentence says so.
    """
    by_measure = {item.measure: item for item in differences if item.where == OWN_RATES}
    if not by_measure or by_measure["average_cosine"].seeds < 2:
        return "Two seeds that reach the matched loss are needed to say anything."
    clauses = [
        _cone_clause(by_measure, differences, matched),
        _rank_clause(by_measure["effective_rank_without_ones"], differences),
        _tokens_clause(by_measure["tokens"], differences),
        _end_clause(by_measure["heldout_nats"], differences),
        _time_clause(by_measure["seconds_a_step"]),
    ]
    return " ".join(clause for clause in clauses if clause)


def _exceptions(difference: ArmDifference, differences: Sequence[ArmDifference]) -> str:
    """Return in words where the same measure does not lean as it does at the own rates."""
    against = [
        item.where
        for item in differences
        if item.measure == difference.measure
        and item.where != OWN_RATES
        and item.difference is not None
        and item.leaning != difference.sign
    ]
    return f" (not at {', '.join(against)})" if against else ""


def _both_values(item: ArmDifference, decimals: int) -> str:
    value = _number(item.value, decimals)
    return f"{value} against {_number(item.reference_value, decimals)}"


def _number(value: float | None, decimals: int) -> str:
    return "—" if value is None else f"{value:.{decimals}f}".replace("-", "−")


def _cone_clause(
    by_measure: dict[str, ArmDifference], differences: Sequence[ArmDifference], matched: float
) -> str:
    cone = by_measure["average_cosine"]
    start = f"At {matched:.2f} nats the average cosine of its last block is "
    if cone.sign == 0:
        return f"{start}not told apart from that of {cone.reference}: {_both_values(cone, 3)}."
    word = "smaller" if cone.sign < 0 else "larger"
    clause = (
        f"{start}{word} than that of {cone.reference}: "
        f"{_both_values(cone, 3)}{_exceptions(cone, differences)}."
    )
    return clause + _moved_clause(by_measure, differences)


def _moved_clause(
    by_measure: dict[str, ArmDifference], differences: Sequence[ArmDifference]
) -> str:
    """Return the sentence that a smaller cone has only moved into the direction of ones, or ""."""
    cone = by_measure["average_cosine"]
    inner = by_measure["average_cosine_without_ones"]
    rank = by_measure["effective_rank"]
    inner_rank = by_measure["effective_rank_without_ones"]
    if cone.sign >= 0:
        return ""
    if inner.sign >= 0:
        word = "larger" if inner.sign > 0 else "not told apart"
        return (
            " The cone has only moved: without the direction of ones, which a LayerNorm deletes, "
            f"its cosine is {word}, {_both_values(inner, 3)}."
        )
    if rank.sign < 0 <= inner_rank.sign:
        return (
            " Part of it has only moved, into the direction of ones, which a LayerNorm deletes: "
            f"its effective rank is lower, {_both_values(rank, 1)}, and without that direction it "
            "is not; the cosine is then "
            f"{_both_values(inner, 3)}{_exceptions(inner, differences)}."
        )
    return ""


def _rank_clause(rank: ArmDifference, differences: Sequence[ArmDifference]) -> str:
    if rank.sign == 0:
        return ""
    word = "higher" if rank.sign > 0 else "lower"
    return (
        f"Its effective rank without the direction of ones is {word}: "
        f"{_both_values(rank, 1)}{_exceptions(rank, differences)}."
    )


def _tokens_clause(tokens: ArmDifference, differences: Sequence[ArmDifference]) -> str:
    if tokens.sign == 0 or tokens.difference is None:
        return ""
    word = "fewer" if tokens.sign < 0 else "more"
    return (
        f"It gets there with {word} tokens, {tokens.difference:.2f} times as "
        f"many{_exceptions(tokens, differences)}."
    )


def _end_clause(end: ArmDifference, differences: Sequence[ArmDifference]) -> str:
    if end.sign == 0:
        return "After equal tokens its held-out loss is not told apart."
    word = "lower" if end.sign < 0 else "higher"
    return (
        f"After equal tokens its held-out loss is {word}: "
        f"{_both_values(end, 3)}{_exceptions(end, differences)}."
    )


def _time_clause(time: ArmDifference) -> str:
    if time.sign == 0 or time.difference is None:
        return ""
    return f"A step takes {time.difference:.2f} times the processor time."
