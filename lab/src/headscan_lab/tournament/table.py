"""The result of a tournament, and the rows of its tables: means over seeds with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from headscan.run import DataFrame, Result, Row, tidy
from headscan_lab.tournament.moment import SHAPES
from headscan_lab.tournament.plan import TournamentPlan
from headscan_lab.tournament.race import Race
from headscan_lab.tournament.reading import at_loss, final_nats, mean_over_seeds
from headscan_lab.tournament.variants import ARMS

COMPARED = {
    "average_cosine": "average_cosine_at_matched_loss",
    "effective_rank_without_ones": "effective_rank_without_ones_at_matched_loss",
    "heldout_nats": "heldout_nats",
}
"""The numbers of which each arm has the difference from its reference, and their columns."""


def numbers_of_race(race: Race, matched: float) -> dict[str, float | None]:
    """Return the numbers of a run: at its end, and where its loss first falls to `matched` nats."""
    shapes = at_loss(race, matched)
    numbers: dict[str, float | None] = {
        "heldout_nats": final_nats(race),
        "tokens_to_matched_loss": shapes["tokens"],
    }
    for name in SHAPES:
        column = name if name.startswith("kept") else f"{name}_at_matched_loss"
        numbers[column] = shapes[name]
    return numbers


def arm_row(
    races: Sequence[Race], *, matched: float, references: Sequence[Race] = (), arms: int = 1
) -> Row:
    """Return the row of one arm at one rate; every number has its NAME_interval over seeds.

    Args:
        races: those of the arm's seeds.
        matched: the loss in nats at which shapes are read.
        references: the races of the arm that it is compared with, by the same seeds. Intervals of
            the differences are so wide that those of `arms` arms hold together with 95 %.
    """
    by_seed = {race.seed: numbers_of_race(race, matched) for race in races}
    reference_by_seed = {race.seed: numbers_of_race(race, matched) for race in references}
    tokens = [numbers["tokens_to_matched_loss"] for numbers in by_seed.values()]
    cells: dict[str, object] = {
        "arm": races[0].arm,
        "about": ARMS[races[0].arm].about,
        "rate": races[0].rate,
        "seeds": len(races),
        "matched_loss": matched,
        "seeds_that_reach_it": sum(count is not None for count in tokens),
        "reference": references[0].arm if references else None,
    }
    for name in next(iter(by_seed.values())):
        mean, interval = mean_over_seeds([numbers[name] for numbers in by_seed.values()])
        cells[name] = mean
        cells[f"{name}_interval"] = interval
    for name, column in COMPARED.items():
        differences = []
        for seed in by_seed.keys() & reference_by_seed.keys():
            value = by_seed[seed][column]
            reference = reference_by_seed[seed][column]
            if value is not None and reference is not None:
                differences.append(value - reference)
        mean, interval = mean_over_seeds(differences, level=1 - 0.05 / arms)
        cells[f"{name}_less_reference"] = mean
        cells[f"{name}_less_reference_interval"] = interval
    return Row(cells)


def curve_rows(races: Sequence[Race], levels: Sequence[float]) -> list[Row]:
    """Return the shape of an arm against its held-out loss: a row for each level that any seed
    reaches.
    """
    rows = []
    for level in levels:
        readings = [at_loss(race, level) for race in races]
        reached = sum(shapes["tokens"] is not None for shapes in readings)
        if reached == 0:
            continue
        cells: dict[str, object] = {
            "arm": races[0].arm,
            "rate": races[0].rate,
            "nats": level,
            "seeds": reached,
        }
        for name in ("tokens", *SHAPES):
            mean, interval = mean_over_seeds([shapes[name] for shapes in readings])
            cells[name] = mean
            cells[f"{name}_interval"] = interval
        rows.append(Row(cells))
    return rows


@dataclass(frozen=True, kw_only=True, repr=False)
class TournamentResult(Result):
    """Arms of training side by side.

    Attributes:
        plan: what was trained.
        seeds: seeds of every arm.
        matched_loss: nats at which arms are compared.
        arms: a row an arm at its best rate, the lowest held-out loss first; each number with its
            interval over seeds. NAME_less_reference is the difference from the first arm of the
            same architecture, paired by seed.
        rates: the same at every rate.
        curves: the shape against the held-out loss, a row an arm and level.
        races: every run with its moments.
    """

    kind: ClassVar[str] = "tournament"
    looks_for: ClassVar[bool] = False
    plan: TournamentPlan
    seeds: int
    matched_loss: float
    arms: list[Row]
    rates: list[Row]
    curves: list[Row]
    races: list[Race]

    def arm(self, name: str) -> Row:
        """Return the row of an arm."""
        return next(row for row in self.arms if row["arm"] == name)

    def frame(self) -> DataFrame:
        """Return one row an arm; the bounds of an interval are two columns."""
        return tidy([dict(row) for row in self.arms])

    def __repr__(self) -> str:
        return (
            f"TournamentResult({len(self.arms)} arms, {self.seeds} seeds, {len(self.races)} runs)\n"
            "  .frame() .plot() .page() .save(folder)"
        )
