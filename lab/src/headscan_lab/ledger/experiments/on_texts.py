"""The base class of experiments on texts: repeats, numbers of a repeat, and rank correlations."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.stats import spearmanr

from headscan_lab.ledger.experiment import ExperimentOutcome
from headscan_lab.ledger.measurement import Measurement, mean_of
from headscan_lab.ledger.proxies import LARGE_TABLE, OnModels, lens_of

ROWS = 4  # texts of a repeat
LENGTH = 48  # tokens of a text

LEAST_BY_UNIT = {"nats a token": -np.inf, "ratio": 0.0, "share": 0.0, "share of prompts": 0.0}
"""The least possible value of a unit; -1 of any other."""
UNBOUNDED_UNITS = ("nats a token", "ratio")
"""Units without a largest value; that of any other is 1."""


@dataclass(frozen=True, kw_only=True)
class OnTexts(OnModels):
    """An experiment on a model in five repeats, or at a second look twenty, each with its texts."""

    model: str = "specimen"
    times: int = 1

    def closer(self) -> Self | None:
        if self.times != 1 or lens_of(self.model).input_embeddings.numel() > LARGE_TABLE:
            return None
        return replace(self, times=4)

    def outcome(
        self,
        name: str,
        values: list[float],
        unit: str,
        *,
        beside: tuple[Measurement, ...] = (),
        control: Measurement | None = None,
        cause: str = "",
    ) -> ExperimentOutcome:
        """Return the outcome whose effect is the mean of one number a repeat."""
        return ExperimentOutcome(
            effect=self.number(name, values, unit),
            control=control,
            cause=cause,
            beside=beside,
            models=(lens_of(self.model).name,) * len(values),
        )

    def number(self, name: str, values: list[float], unit: str, rows: int = ROWS) -> Measurement:
        """Return the mean of one number a repeat, with an interval inside the bounds of the unit.

        Args:
            rows: texts or prompts of a repeat.
        """
        least = LEAST_BY_UNIT.get(unit, -1.0)
        most = np.inf if unit in UNBOUNDED_UNITS else 1.0
        repeats = len(values)
        return mean_of(
            name,
            values,
            unit=unit,
            tokens=repeats * ROWS * LENGTH,
            prompts=repeats * rows,
            bounds=(least, most),
        )


def rank_correlation(first: list[float], second: list[float]) -> float:
    """Return Spearman's rank correlation of two columns; 0 where a column does not vary."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return 0.0
    return float(spearmanr(first, second).statistic)
