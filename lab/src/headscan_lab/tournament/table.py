"""What the runs of an arm say together: means over seeds with their intervals, at equal tokens,
time and loss.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from headscan.run import DataFrame, Interval, Result, Row, dataframe
from headscan.statistics.uncertainty import student
from headscan_lab.tournament.race import SHAPES, Moment, Race
from headscan_lab.tournament.variants import TournamentPlan


def mean_over_seeds(
    values: Iterable[float | None], *, level: float = 0.95
) -> tuple[float | None, Interval | None]:
    """The mean of what is defined, and Student's interval over seeds; none for a single one.

    >>> mean_over_seeds([1.0, 2.0, 3.0, None])[0], [round(one, 3) for one in mean_over_seeds([1.0, 2.0, 3.0])[1]]
    (2.0, [-0.484, 4.484])
    """
    found = np.array([value for value in values if value is not None], dtype=np.float64)
    if not len(found):
        return None, None
    return float(found.mean()), student(found, level=level) if len(found) > 1 else None


def at_loss(race: Race, nats: float) -> dict[str, float | None]:
    """Every number of a run where its held-out loss first falls to `nats`: linear between moments.
    All are None where it never does, or begins below. `tokens` are those read until then.
    """
    for before, after in pairwise(race.moments):
        if before.nats > nats >= after.nats:
            share = (before.nats - nats) / (before.nats - after.nats)
            found = {name: _between(before, after, name, share) for name in (*SHAPES, "step")}
            step = found.pop("step")
            assert step is not None
            spent = None if race.seconds_a_step is None else step * race.seconds_a_step
            return found | {"seconds": spent, "tokens": step * race.tokens_a_step}
    return dict.fromkeys((*SHAPES, "seconds", "tokens"))


def _between(before: Moment, after: Moment, name: str, share: float) -> float | None:
    one = getattr(before, name)
    other = getattr(after, name)
    return None if one is None or other is None else one + share * (other - one)


def at_seconds(race: Race, seconds: float) -> float | None:
    """Held-out loss after so much processor time of training; None where the run did not last so
    long.
    """
    step = seconds / race.seconds_a_step if race.seconds_a_step else -1.0
    for before, after in pairwise(race.moments):
        if before.step <= step <= after.step:
            return before.nats + (step - before.step) / (after.step - before.step) * (
                after.nats - before.nats
            )
    return None


def spent(races: Sequence[Race]) -> float:
    """Processor seconds of a whole run, the mean over seeds."""
    return float(np.mean([race.seconds for race in races])) if races else 0.0


def arm_row(races: Sequence[Race], *, about: str, matched: float, seconds: float) -> Row:
    """One arm at one rate in one cell: `races` are its seeds. Every number has its NAME_interval
    over seeds.
    """
    first = races[0]
    matching = [at_loss(race, matched) for race in races]
    whole = [race for race in races if race.tuning_nats is not None]
    numbers: dict[str, list[float | None]] = {
        "heldout_nats": [race.moments[-1].nats for race in whole],
        "heldout_nats_at_equal_seconds": [at_seconds(race, seconds) for race in races],
        "seconds_a_step": [race.seconds_a_step for race in races],
        "tokens_to_matched_loss": [found["tokens"] for found in matching],
        "seconds_to_matched_loss": [found["seconds"] for found in matching],
    }
    for name in SHAPES:
        inside = f"{name}_at_matched_loss" if not name.startswith("kept") else name
        numbers[inside] = [found[name] for found in matching]
    cells: dict[str, object] = {
        "arm": first.arm,
        "about": about,
        "vocabulary": first.vocabulary,
        "width": first.width,
        "rate": first.rate,
        "seeds": len(races),
        "matched_loss": matched,
        "seeds_that_reach_it": sum(f["tokens"] is not None for f in matching),
    }
    for name, values in numbers.items():
        cells[name], cells[f"{name}_interval"] = mean_over_seeds(values)
    return Row(cells)


def curve_rows(races: Sequence[Race], levels: Sequence[float]) -> list[Row]:
    """The shape of an arm against its held-out loss: one row a level that any seed reaches."""
    rows = []
    for level in levels:
        found = [at_loss(race, level) for race in races]
        if all(each["tokens"] is None for each in found):
            continue
        cells: dict[str, object] = {
            "arm": races[0].arm,
            "rate": races[0].rate,
            "nats": level,
            "seeds": sum(each["tokens"] is not None for each in found),
        }
        for name in ("tokens", *SHAPES):
            cells[name], cells[f"{name}_interval"] = mean_over_seeds([each[name] for each in found])
        rows.append(Row(cells))
    return rows


# ---- An arm beside the one that it is compared with, seed by seed.


@dataclass(frozen=True, kw_only=True)
class ArmDifference:
    """A number of an arm less that of its reference (or over it, for a ratio), at the same seeds.

    where: "own rates" (each at its best), "rate R" (both at R) or "V/d" (another cell); the first
    decides, the others can only take its word back. interval: Student's over seeds, so wide that
    all arms' together hold with 95 %; None for one seed. neutral: what no difference would be, 0 or
    1.
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


def _nats(race: Race, matched: float) -> float | None:
    return race.moments[-1].nats if race.tuning_nats is not None else None


COMPARED: Mapping[str, tuple[Callable[[Race, float], float | None], bool]] = {
    "average_cosine": (_shape("average_cosine"), False),
    "average_cosine_without_ones": (_shape("average_cosine_without_ones"), False),
    "effective_rank": (_shape("effective_rank"), False),
    "effective_rank_without_ones": (_shape("effective_rank_without_ones"), False),
    "tokens": (_shape("tokens"), True),
    "heldout_nats": (_nats, False),
    "seconds_a_step": (lambda race, matched: race.seconds_a_step, True),
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
            mean, interval = mean_over_seeds(
                [math.log(one / other) for one, other in known], level=1 - 0.05 / arms
            )
            mean = None if mean is None else math.exp(mean)
            interval = None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
        else:
            mean, interval = mean_over_seeds(
                [one - other for one, other in known], level=1 - 0.05 / arms
            )
        found.append(
            ArmDifference(
                arm=races[0].arm,
                reference=reference[0].arm,
                measure=measure,
                where=where,
                seeds=len(known),
                value=mean_over_seeds([one for one, _ in known])[0],
                difference=mean,
                interval=interval,
                reference_value=mean_over_seeds([other for _, other in known])[0],
                neutral=1.0 if ratio else 0.0,
            )
        )
    return found


# ---- A reader's sentence for each arm, made of its differences: what it buys, what it costs, where it only moves the cone.

OWN = "own rates"


def sentence_of(differences: Sequence[ArmDifference], matched: float) -> str:
    """What the differences of one arm from its reference allow to be said, each clause with its
    numbers.

    A difference is told where its interval (over seeds, and wide enough for all arms at once)
    leaves no difference out, at each arm's own best rate. Where another rate or size leans the
    other way, the sentence says that it turns.
    """
    of = {each.measure: each for each in differences if each.where == OWN}
    if not of or of["average_cosine"].seeds < 2:
        return "Two seeds that reach the matched loss are needed to say anything."
    said = [
        _cone(of, differences, matched),
        _rank(of, differences),
        _tokens(of, differences),
        _end(of, differences),
    ]
    return " ".join(one for one in (*said, _time(of)) if one)


def _turns(own: ArmDifference, differences: Sequence[ArmDifference]) -> str:
    """Where the others lean the other way, or not at all."""
    against = [
        each.where
        for each in differences
        if each.measure == own.measure
        and each.where != OWN
        and each.difference is not None
        and each.leaning != own.sign
    ]
    return f" (not at {', '.join(against)})" if against else ""


def _pair(one: ArmDifference, places: int) -> str:
    return f"{_number(one.value, places)} against {_number(one.reference_value, places)}"


def _number(value: float | None, places: int) -> str:
    return "—" if value is None else f"{value:.{places}f}".replace("-", "−")


def _cone(
    of: dict[str, ArmDifference], differences: Sequence[ArmDifference], matched: float
) -> str:
    cone = of["average_cosine"]
    inner = of["average_cosine_without_ones"]
    start = f"At {matched:.2f} nats the average cosine of its last block is "
    if cone.sign == 0:
        return f"{start}not told apart from that of {cone.reference}: {_pair(cone, 3)}."
    word = "smaller" if cone.sign < 0 else "larger"
    said = (
        f"{start}{word} than that of {cone.reference}: {_pair(cone, 3)}{_turns(cone, differences)}."
    )
    if cone.sign < 0 and inner.sign >= 0:
        said += (
            " The cone has only moved: without the direction of ones, which a LayerNorm deletes, "
            "its cosine is "
        )
        said += f"{'larger' if inner.sign > 0 else 'not told apart'}, {_pair(inner, 3)}."
    elif cone.sign < 0 and of["effective_rank"].sign < 0 <= of["effective_rank_without_ones"].sign:
        said += (
            " Part of it has only moved, into the direction of ones, which a LayerNorm deletes: "
            "its effective rank is lower, "
        )
        said += (
            f"{_pair(of['effective_rank'], 1)}, and without that direction it is not; the cosine "
            "is then "
        )
        said += f"{_pair(inner, 3)}{_turns(inner, differences)}."
    return said


def _rank(of: dict[str, ArmDifference], differences: Sequence[ArmDifference]) -> str:
    rank = of["effective_rank_without_ones"]
    if rank.sign == 0:
        return ""
    word = "higher" if rank.sign > 0 else "lower"
    return (
        f"Its effective rank without the direction of ones is {word}: "
        f"{_pair(rank, 1)}{_turns(rank, differences)}."
    )


def _tokens(of: dict[str, ArmDifference], differences: Sequence[ArmDifference]) -> str:
    tokens = of["tokens"]
    if tokens.sign == 0 or tokens.difference is None:
        return ""
    word = "fewer" if tokens.sign < 0 else "more"
    return (
        f"It gets there with {word} tokens, {tokens.difference:.2f} times as "
        f"many{_turns(tokens, differences)}."
    )


def _end(of: dict[str, ArmDifference], differences: Sequence[ArmDifference]) -> str:
    end = of["heldout_nats"]
    if end.sign == 0:
        return "After equal tokens its held-out loss is not told apart."
    word = "lower" if end.sign < 0 else "higher"
    return (
        f"After equal tokens its held-out loss is {word}: "
        f"{_pair(end, 3)}{_turns(end, differences)}."
    )


def _time(of: dict[str, ArmDifference]) -> str:
    time = of["seconds_a_step"]
    if time.sign == 0 or time.difference is None:
        return ""
    return f"A step takes {time.difference:.2f} times the processor time."


# ---- What a tournament leaves behind.


@dataclass(frozen=True, kw_only=True, repr=False)
class TournamentResult(Result):
    """Arms of training side by side.

    Attributes:
        plan: what was trained. seeds: that every arm has in the first cell.
        matched_loss: nats at which arms are compared in the first cell; in another, as far below
            its unigram law's loss.
        equal_seconds: processor time at which `heldout_nats_at_equal_seconds` is read: that of the
            quickest arm.
        arms: a row an arm, at its best rate in the first cell, the lowest held-out loss first; each
            number with its interval over seeds, and `sentence`. rates: the same at every rate.
            others: in the other cells.
        curves: the shape against the held-out loss, a row an arm and level. differences: what the
            sentences rest on.
        races: every run with its moments.
    """

    kind: ClassVar[str] = "tournament"
    plan: TournamentPlan
    seeds: int
    matched_loss: float
    equal_seconds: float
    arms: list[Row]
    rates: list[Row]
    others: list[Row]
    curves: list[Row]
    differences: list[ArmDifference]
    races: list[Race]

    def arm(self, name: str) -> Row:
        """The row of an arm."""
        return next(row for row in self.arms if row["arm"] == name)

    def frame(self) -> DataFrame:
        return dataframe([dict(row) for row in self.arms])

    def __repr__(self) -> str:
        return (
            f"TournamentResult({len(self.arms)} arms, {self.seeds} seeds, {len(self.races)} runs)\n"
            "  .frame() .plot() .page() .save(folder)"
        )
