"""What a tournament leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headscan.run import Result, Row
from headscan.training.racing.comparison import ArmDifference
from headscan.training.racing.plan import TournamentPlan
from headscan.training.racing.race import Race

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TournamentResult"]


@dataclass(frozen=True, kw_only=True, repr=False)
class TournamentResult(Result):
    """Arms of training side by side.

    Attributes:
        plan: what was trained. seeds: that every arm has in the first cell.
        matched_loss: nats at which arms are compared in the first cell; in another, as far below its unigram law's loss.
        equal_seconds: processor time at which `heldout_nats_at_equal_seconds` is read: that of the quickest arm.
        arms: a row an arm, at its best rate in the first cell, the lowest held-out loss first; each number with its
            interval over seeds, and `sentence`. rates: the same at every rate. others: in the other cells.
        curves: the shape against the held-out loss, a row an arm and level. differences: what the sentences rest on.
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

    def frame(self) -> pd.DataFrame:
        """The leaderboard as a pandas table, one row an arm."""
        import pandas as pd

        return pd.DataFrame([dict(row) for row in self.arms])

    def __repr__(self) -> str:
        return (
            f"TournamentResult({len(self.arms)} arms, {self.seeds} seeds, {len(self.races)} runs)\n"
            "  .frame() .plot() .page() .save(folder)"
        )
