"""The races of a finished tournament, and the tables that are made of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from headscan.run import Row
from headscan_lab.tournament.differences import OWN_RATES, ArmDifference, compare, sentence_of
from headscan_lab.tournament.plan import GridCell, TournamentPlan
from headscan_lab.tournament.race import Ground, Race
from headscan_lab.tournament.reading import mean_over_seeds, mean_seconds
from headscan_lab.tournament.table import arm_row, curve_rows
from headscan_lab.tournament.variants import ARMS

CURVE_LEVELS = [2.0 - 0.25 * step for step in range(13)]  # nats above the matched loss


@dataclass(frozen=True)
class Outcome:
    """All races of a tournament.

    Attributes:
        arms: the names of the arms, in the order in which they are shown.
        grounds: the windows of each cell, by its name.
        main_races: races of the first cell, at every rate.
        other_races: races of the other cells, at each arm's best rate.
        best_rates: the best rate of each arm in the first cell.
    """

    arms: Sequence[str]
    plan: TournamentPlan
    grounds: dict[str, Ground]
    main_races: list[Race]
    other_races: list[Race]
    best_rates: dict[str, float]

    @property
    def equal_seconds(self) -> float:
        """Return the processor seconds of the quickest arm's whole run."""
        return min(mean_seconds(self.at_best_rate(arm)) for arm in self.arms)

    def at_rate(self, arm: str, rate: float) -> list[Race]:
        """Return an arm's races of the first cell at a rate."""
        return [race for race in self.main_races if race.arm == arm and race.rate == rate]

    def at_best_rate(self, arm: str) -> list[Race]:
        """Return an arm's races of the first cell at its best rate."""
        return self.at_rate(arm, self.best_rates[arm])

    def in_cell(self, arm: str, cell: GridCell) -> list[Race]:
        """Return an arm's races of another cell."""
        return [race for race in self.other_races if race.arm == arm and race.cell == cell]

    def reference(self, arm: str) -> str:
        """Return the arm that an arm is compared with: the first one of the same architecture."""
        recipe = ARMS[arm].recipe
        return next(name for name in self.arms if ARMS[name].recipe == recipe)

    def matched_loss(self, cell: GridCell) -> float:
        """Return the loss at which arms are compared in another cell, in nats.

        It is as far below the loss of the cell's unigram law as in the first cell.
        """
        main_ground = self.grounds[self.plan.main_cell.name]
        gain = main_ground.unigram_nats - self.plan.matched_loss
        return self.grounds[cell.name].unigram_nats - gain

    def differences(self) -> list[ArmDifference]:
        """Return the differences of every arm from its reference, at all rates and in all cells."""
        differences: list[ArmDifference] = []
        for arm in self.arms:
            if self.reference(arm) != arm:
                differences += self._differences_of(arm)
        return differences

    def _differences_of(self, arm: str) -> list[ArmDifference]:
        reference = self.reference(arm)
        matched = self.plan.matched_loss
        arms_compared = max(1, len(self.arms) - 1)
        differences = compare(
            self.at_best_rate(arm),
            self.at_best_rate(reference),
            where=OWN_RATES,
            matched=matched,
            arms=arms_compared,
        )
        for rate in self.plan.rates:
            differences += compare(
                self.at_rate(arm, rate),
                self.at_rate(reference, rate),
                where=f"rate {rate:g}",
                matched=matched,
                arms=arms_compared,
            )
        for cell in self.plan.other_cells:
            races = self.in_cell(arm, cell)
            reference_races = self.in_cell(reference, cell)
            if races and reference_races:
                differences += compare(
                    races,
                    reference_races,
                    where=cell.name,
                    matched=self.matched_loss(cell),
                    arms=arms_compared,
                )
        return differences

    def leaderboard(self, differences: Sequence[ArmDifference]) -> list[Row]:
        """Return a row an arm with its sentence, the lowest held-out loss first."""
        rows = []
        for arm in self.arms:
            own_differences = [item for item in differences if item.arm == arm]
            if own_differences:
                sentence = sentence_of(own_differences, self.plan.matched_loss)
            else:
                sentence = "The others of its architecture are compared with it."
            rows.append(self._row(self.at_best_rate(arm)) | {"sentence": sentence})
        rows.sort(key=lambda row: row.number("heldout_nats") or float("inf"))
        return rows

    def rows_by_rate(self) -> list[Row]:
        """Return a row an arm and rate, of the first cell."""
        rows = []
        for arm in self.arms:
            for rate in self.plan.rates:
                races = self.at_rate(arm, rate)
                if races:
                    rows.append(self._row(races))
        return rows

    def _row(self, races: Sequence[Race]) -> Row:
        about = ARMS[races[0].arm].about
        matched = self.plan.matched_loss
        return arm_row(races, about=about, matched=matched, seconds=self.equal_seconds)

    def rows_of_other_cells(self) -> list[Row]:
        """Return a row an arm and other cell."""
        rows = []
        for arm in self.arms:
            for cell in self.plan.other_cells:
                races = self.in_cell(arm, cell)
                if races:
                    row = arm_row(
                        races,
                        about=ARMS[arm].about,
                        matched=self.matched_loss(cell),
                        seconds=mean_seconds(races),
                    )
                    rows.append(row)
        return rows

    def curves(self) -> list[Row]:
        """Return the shape of every arm against its loss, at its best rate."""
        levels = [self.plan.matched_loss + level for level in CURVE_LEVELS]
        return [row for arm in self.arms for row in curve_rows(self.at_best_rate(arm), levels)]


def best_rate(races: Sequence[Race]) -> float:
    """Return the rate with the lowest mean loss on the tuning windows.

    A rate at which the run of a seed did not come to its end is left out; without any other, the
    lowest rate is returned.
    """
    means: dict[float, float] = {}
    for rate in sorted({race.rate for race in races}):
        losses = [race.tuning_nats for race in races if race.rate == rate]
        mean = None if None in losses else mean_over_seeds(losses)[0]
        if mean is not None:
            means[rate] = mean
    if not means:
        return min(race.rate for race in races)
    return min(means, key=lambda rate: means[rate])
