"""The errors of one site's measures, from the influences of its windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headscan.geometry.explained import Cells, number
from headscan.geometry.interval import Deviation
from headscan.geometry.linearisation import Linearisation
from headscan.geometry.measure import Measure
from headscan.statistics import Cloud, SiteStatistics

__all__ = ["Errors"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Errors:
    """The influences of groups of windows on each measure: counts [2, G], influences [2, J, G], squares [2], of all
    positions and of all but the first. `windows` is how many windows a group has, `basis` [d, k] the directions that
    `squares` are of ([d, 0]: all); `why` there is nothing, if so."""

    measures: Sequence[Measure]
    counts: Floats
    influences: Floats
    squares: Floats
    windows: int
    basis: Floats
    why: str
    reasons: dict[str, str]

    @classmethod
    def of(cls, statistics: SiteStatistics, measures: Sequence[Measure]) -> Errors:
        """From finished statistics, whose derivative must be that of the same measures."""
        influence, derive = statistics.influence, Linearisation(measures)
        empty = np.zeros((2, 0)), np.zeros((2, len(measures), 0)), np.zeros(2), 1, np.zeros((0, 0))
        if influence is None:
            return cls(measures, *empty, "it was not asked for before the pass", {})
        given = influence.derive if isinstance(influence.derive, Linearisation) else derive
        if [measure.name for measure in given.measures] != [measure.name for measure in measures]:
            return cls(measures, *empty, "the pass followed other measures", {})
        finished = influence.finished(given)
        if finished is None:
            why = f"{influence.missed} windows were read before the text's beginning" if influence.missed else "no text"
            return cls(measures, *empty, why, {})
        series, derivative = finished
        table = series.table.numpy().T  # [columns, G]
        table = table[:, : int(np.flatnonzero(table[0]).max(initial=-1)) + 1]
        influences = table[2:-2].reshape(2, len(measures), -1)
        basis = derivative.basis.cpu().double().numpy()
        return cls(measures, table[:2], influences, table[-2:].sum(1), series.size, basis, "", given.reasons)

    def reason(self, measure: Measure) -> str:
        """Why a defined measure has no interval."""
        groups = int((self.counts[0] > 0).sum())
        if self.why:
            return self.why
        if groups < 3:
            return f"three windows of text are needed, there are {groups}"
        return self.reasons.get(measure.name, "on the first tokens of the text it is not defined, or has no derivative")

    def cells(self, suffix: str, group: int, cloud: Cloud, cells: Cells) -> Cells:
        """NAME_interval and NAME_bias of the estimates in `cells`, and the effective number of windows."""
        found: Cells = {}
        effective: list[float] = []
        for j, measure in enumerate(self.measures):
            name, estimate = measure.name + suffix, number(cells[measure.name + suffix])
            deviation = Deviation.of(self.influences[group, j], self.counts[group])
            found[f"{name}_interval"] = None
            if estimate is None or deviation is None:
                continue
            effective.append(deviation.effective * self.windows)
            bias = self._bias(measure, group, cloud)
            if bias is not None:
                found[f"{name}_bias"] = bias
            found[f"{name}_interval"] = list(deviation.interval(estimate, bias=bias or 0.0, bounds=measure.words.range))
        found[f"effective_windows{suffix}"] = min(effective) if effective else None
        return found

    def _bias(self, measure: Measure, group: int, cloud: Cloud) -> float | None:
        """How far the estimate lies from that of endless text, on average, as of the number of tokens it is worth.

        That number counts how alike the tokens of one window are, not how alike neighbouring windows are: the bias is
        at least this.

        The noise of the covariance is E‖Ĉ − C‖² = Σ‖windows' Gram matrix − its expectation‖²/n²; n independent Gaussian
        tokens would have ((tr C)² + ‖C‖²)/n.
        """
        if measure.bias is None:
            return None
        occupied = self.counts[group] > 0
        tokens = float(self.counts[group].sum())
        windows = max(1.0, float(occupied.sum()) * self.windows)
        covariance = cloud.covariance
        if self.basis.shape[1]:
            covariance = self.basis.T @ covariance @ self.basis
        square = float((covariance**2).sum())
        noise = (float(self.squares[group]) - tokens / windows * tokens * square) / tokens**2
        if not noise > 0:
            return None
        worth = (float(np.trace(covariance)) ** 2 + square) / noise
        return measure.bias(cloud, worth)
