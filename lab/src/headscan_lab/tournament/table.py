"""The result of a tournament, and the rows of its tables: means over seeds with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from headscan.run import DataFrame, Result, Row, tidy
from headscan_lab.tournament.differences import ArmDifference
from headscan_lab.tournament.moment import SHAPES
from headscan_lab.tournament.plan import TournamentPlan
from headscan_lab.tournament.race import Race
from headscan_lab.tournament.reading import at_loss, at_seconds, final_nats, mean_over_seeds


def arm_row(races: Sequence[Race], *, about: str, matched: float, seconds: float) -> Row:
    """Return the row of one arm at one rate in one cell.

    Every number has its NAME_interval over seeds.

    Args:
        races: those of the arm's seeds.
        matched: the loss in nats at which shapes are read.
        seconds: the processor time after which the loss at equal time is read.
    """
    first = races[0]
    matching = [at_loss(race, matched) for race in races]
    numbers: dict[str, list[float | None]] = {
        "heldout_nats": [final_nats(race) for race in races if race.tuning_nats is not None],
        "heldout_nats_at_equal_seconds": [at_seconds(race, seconds) for race in races],
        "seconds_a_step": [race.seconds_a_step for race in races],
        "tokens_to_matched_loss": [shapes["tokens"] for shapes in matching],
        "seconds_to_matched_loss": [shapes["seconds"] for shapes in matching],
    }
    for name in SHAPES:
        column = name if name.startswith("kept") else f"{name}_at_matched_loss"
        numbers[column] = [shapes[name] for shapes in matching]
    cells: dict[str, object] = {
        "arm": first.arm,
        "about": about,
        "vocabulary": first.vocabulary,
        "width": first.width,
        "rate": first.rate,
        "seeds": len(races),
        "matched_loss": matched,
        "seeds_that_reach_it": sum(shapes["tokens"] is not None for shapes in matching),
    }
    for name, values in numbers.items():
        mean, interval = mean_over_seeds(values)
        cells[name] = mean
        cells[f"{name}_interval"] = interval
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
        seeds: seeds of every arm in the first cell.
        matched_loss: nats at which arms are compared in the first cell. In another cell they are
            compared as far below the loss of its unigram law.
        equal_seconds: processor time at which `heldout_nats_at_equal_seconds` is read: that of the
            quickest arm.
        arms: a row an arm, at its best rate in the first cell, the lowest held-out loss first; each
            number with its interval over seeds, and `sentence`.
        rates: the same at every rate.
        others: the same in the other cells.
        curves: the shape against the held-out loss, a row an arm and level.
        differences: the differences that the sentences are made of.
        races: every run with its moments.
    """

    kind: ClassVar[str] = "tournament"
    looks_for: ClassVar[bool] = False
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
