"""The errors of one site's measures, from the influences of the text's documents or windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from headscan.measures.interval import Deviation, several
from headscan.measures.linearisation import Linearisation
from headscan.measures.measure import Cells, Measure, number
from headscan.measures.moments import Noise, worth
from headscan.statistics import Cloud, Series, SiteStatistics
from headscan.statistics.derivative import SKETCH

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Errors:
    """The influences of clusters of tokens, of each treatment: counts [G, C], influences [G, J, C], sketches [G, M, C].

    Clusters are documents where the text has at least three (in effect: (Σn)²/Σn² of their tokens n), else windows;
    `together` neighbours are one cluster where there are more than 512. `basis` [d, k]: the directions that the sketches
    of second moments are of ([d, 0]: all); `why` there is nothing, if so; `reasons` why a measure has nothing.
    """

    measures: Sequence[Measure]
    clusters: str = "windows"
    together: int = 1
    counts: Floats = field(default_factory=lambda: np.zeros((2, 0)))
    influences: Floats = field(default_factory=lambda: np.zeros((2, 0, 0)))
    sketches: Floats = field(default_factory=lambda: np.zeros((2, 0, 0)))
    basis: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    why: str = ""
    reasons: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, statistics: SiteStatistics, measures: Sequence[Measure]) -> Errors:
        """From finished statistics, whose derivative must be that of the same measures."""
        influence = statistics.influence
        if influence is None:
            return cls(measures, why="it was not asked for before the pass")
        given = influence.derive if isinstance(influence.derive, Linearisation) else Linearisation(measures)
        if [measure.name for measure in given.measures] != [measure.name for measure in measures]:
            return cls(measures, why="the pass followed other measures")
        known = influence.finished(given)
        if known is None:
            missed = f"{influence.missed} windows were read before the text's beginning"
            return cls(measures, why=missed if influence.missed else "no text")
        linear = known.derivative.linear
        documents = _table(known.documents, len(linear))
        apart = several(documents[0, 0])
        series = known.documents if apart else known.windows
        table = documents if apart else _table(known.windows, len(linear))
        return cls(
            measures,
            clusters="documents" if apart else "windows",
            together=series.size,
            counts=table[:, 0],
            influences=table[:, 1 : 1 + len(measures)],
            sketches=table[:, 1 + len(measures) :],
            basis=known.derivative.basis.cpu().double().numpy(),
            reasons=given.reasons,
        )

    def reason(self, measure: Measure) -> str:
        """Why a defined measure has no interval."""
        groups = self.counts.shape[1]
        if self.why:
            return self.why
        if groups < 3:
            return f"three windows of text are needed, there are {groups}"
        return self.reasons.get(measure.name, "on the first tokens of the text it is not defined, or has no derivative")

    def deviation(self, group: int, influences: Floats) -> Deviation | None:
        """The error that influences [C] on a number of a treatment make."""
        make = Deviation.of_documents if self.clusters == "documents" else Deviation.of_text
        return make(influences, self.counts[group])

    def cells(self, suffix: str, group: int, cloud: Cloud, cells: Cells) -> Cells:
        """NAME_interval and NAME_bias of the estimates in `cells`, what the clusters are, and their effective number."""
        found: Cells = {}
        effective: list[float] = []
        noise: Noise | None = None
        for j, measure in enumerate(self.measures):
            name, estimate = measure.name + suffix, number(cells[measure.name + suffix])
            found[f"{name}_interval"] = None
            deviation = self.deviation(group, self.influences[group, j]) if self.influences.size else None
            if estimate is None or deviation is None:
                continue
            effective.append(deviation.effective * self.together)
            bias = None
            if measure.bias is not None:
                noise = noise or self._noise(group, cloud)
                bias = measure.bias(cloud, replace(noise, error=deviation.error))
            if bias is not None:
                found[f"{name}_bias"] = bias
            found[f"{name}_interval"] = list(
                deviation.interval(estimate, biases=[bias or 0.0], bounds=measure.words.range)
            )
        found[f"effective_clusters{suffix}"] = min(effective) if effective else None
        found[f"clusters{suffix}"] = self.clusters if effective else None
        return found

    def _noise(self, group: int, cloud: Cloud) -> Noise:
        """Of the averages of a treatment, from the errors of the sketches; its `error` is to be filled in."""
        errors = [self.deviation(group, sketch) for sketch in self.sketches[group]]
        squares = np.array([0.0 if found is None else found.error**2 for found in errors])
        unit, mean, second = (float(squares[k : k + SKETCH].sum()) for k in (0, SKETCH, 2 * SKETCH))
        return Noise(unit, mean, worth(cloud, second, self.basis), 0.0)


def _table(series: Series, treatments: int) -> Floats:
    """The occupied groups of a series [G, 1 + J + M, C]."""
    table = series.table.numpy()
    table = table[: int(np.flatnonzero(table[:, 0]).max(initial=-1)) + 1]
    found: Floats = table.T.reshape(treatments, -1, len(table))
    return found[:, :, found[0, 0] > 0]
