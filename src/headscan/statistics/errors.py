"""The standard errors of one site's measures, from the influences of the text's documents or windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch

from headscan.statistics.cloud import Cloud
from headscan.statistics.derivative import SKETCH
from headscan.statistics.influence import Series
from headscan.statistics.linearisation import Differentiable, Linearisation
from headscan.statistics.site import SiteStatistics
from headscan.statistics.uncertainty import Bounds, Cells, Floats, StandardError, deviations, enough_documents, number


class Estimator(Differentiable, Protocol):
    """A statistic with a range; `bias` says how far its value for a text with such noise lies from the limit, on average."""

    @property
    def range(self) -> Bounds: ...
    @property
    def bias(self) -> Callable[[Cloud, Noise], float | None] | None: ...


@dataclass(frozen=True)
class Noise:
    """The errors of a text's averages, as its clusters (documents, or windows with their long memory) show them.

    unit E‖ū − E ū‖² of the mean direction ū = Σx/‖x‖/n, mean E‖μ̂ − μ‖² of the mean vector; tokens: how many independent
    Gaussian tokens have a covariance as noisy (0: not known); error: the measure's own standard error.
    """

    unit: float
    mean: float
    tokens: float
    error: float


def length_bias(length: float, noise: float, along: float) -> float:
    """How far the length of a noisy average lies above that of the true one: noise across it makes it longer.

    `noise` is the average's mean squared error, `along` its standard error in its own direction, which does no harm.
    """
    across = max(0.0, noise - along**2)
    return length - float(np.sqrt(max(0.0, length**2 - across)))


def worth(cloud: Cloud, noise: float, basis: Floats) -> float:
    """How many independent Gaussian tokens have a covariance as noisy, E‖Ĉ − C‖² = `noise`, in a basis [d, k] ([d, 0]: all).

    That of n independent Gaussian tokens is ((tr C)² + ‖C‖²)/n. 0 where there is no noise.
    """
    covariance = cloud.covariance
    if basis.shape[1]:
        # torch's products, not numpy's: they obey torch.set_num_threads (see Cloud).
        turn = torch.from_numpy(basis)
        covariance = (turn.T @ torch.from_numpy(covariance) @ turn).numpy()
    square = float((covariance**2).sum())
    return (float(np.trace(covariance)) ** 2 + square) / noise if noise > 0 else 0.0


@dataclass(frozen=True)
class Errors:
    """The influences of clusters of tokens, of each treatment: counts [G, C], influences [G, J, C], sketches [G, M, C].

    Clusters are documents where the text has at least three (in effect: (Σn)²/Σn² of their tokens n), else windows;
    `together` neighbours are one cluster where there are more than 512. `basis` [d, k]: the directions that the sketches
    of second moments are of ([d, 0]: all); `why` there is nothing, if so.
    """

    measures: Sequence[Estimator]
    clusters: str = "windows"
    together: int = 1
    counts: Floats = field(default_factory=lambda: np.zeros((2, 0)))
    influences: Floats = field(default_factory=lambda: np.zeros((2, 0, 0)))
    sketches: Floats = field(default_factory=lambda: np.zeros((2, 0, 0)))
    basis: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    why: str = ""

    @classmethod
    def of(cls, statistics: SiteStatistics, measures: Sequence[Estimator]) -> Errors:
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
        apart = enough_documents(documents[0, 0])
        series = known.documents if apart else known.windows
        table = documents if apart else _table(known.windows, len(linear))
        return cls(
            measures, clusters="documents" if apart else "windows", together=series.size, counts=table[:, 0],
            influences=table[:, 1 : 1 + len(measures)], sketches=table[:, 1 + len(measures) :],
            basis=known.derivative.basis.cpu().double().numpy(),
        )  # fmt: skip

    def reason(self, measure: Estimator) -> str:
        """Why a defined measure has no interval."""
        groups = self.counts.shape[1]
        if self.why:
            return self.why
        if groups < 3:
            return f"three windows of text are needed, there are {groups}"
        if measure.gradient is None:
            return "its derivative is not known: register the measure with `gradient`"
        return "on the first tokens of the text it is not defined, or has no derivative"

    def deviation(self, group: int, influences: Floats) -> StandardError | None:
        """The error that influences [C] on a number of a treatment make."""
        make = StandardError.of_documents if self.clusters == "documents" else StandardError.of_text
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
            found[f"{name}_interval"] = list(deviation.interval(estimate, biases=[bias or 0.0], bounds=measure.range))
        found[f"effective_clusters{suffix}"] = min(effective) if effective else None
        found[f"clusters{suffix}"] = self.clusters if effective else None
        return found

    def _noise(self, group: int, cloud: Cloud) -> Noise:
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


def paired_error(a: Errors, b: Errors, group: int, j: int) -> StandardError | None:
    """That of the difference of measure `j` between two sites that read the same text; None where they did not.

    Each cluster's influences are subtracted before their spread is taken. Documents count with their shares of both texts,
    because two tokenizers cut them differently.
    """
    if (a.clusters, a.together, a.counts.shape) != (b.clusters, b.together, b.counts.shape) or not a.counts.size:
        return None
    if a.clusters == "windows" and not np.array_equal(a.counts[0], b.counts[0]):
        return None
    counts = [errors.counts[group] for errors in (a, b)]
    rests = [deviations(errors.influences[group, j], n) / n.sum() for errors, n in zip((a, b), counts, strict=True)]
    shares = sum(n / n.sum() for n in counts) / 2
    make = StandardError.of_documents if a.clusters == "documents" else StandardError.of_text
    return make(rests[0] - rests[1], shares)
