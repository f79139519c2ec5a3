"""Intervals of similarities by documents: what each measure would have been without a group of them.

A pair's own moments of every group of documents would take a matrix of d × d' a pair and group. What a group adds to the
error of a measure shows in the strongest directions, so groups keep moments of 24 principal components a site, and the
spread of the measure taken there, with a group left out, is the spread of the measure. benchmarks/comparisons_cover.py
measures how often such intervals hold what endless text would give: .92 to 1.00 of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.geometry.compare.covariance import CrossCovariance, SiteCovariance
from headscan.geometry.compare.gathering import Gathering, Sampled
from headscan.geometry.compare.prepared import Prepared
from headscan.geometry.compare.similarity import MomentMeasure, SimilarityMeasure
from headscan.geometry.deviation import Deviation
from headscan.statistics import Sums

__all__ = ["GroupSpread", "of_groups", "of_sample"]

Floats = npt.NDArray[np.float64]
SAMPLE_GROUPS = 16


@dataclass(frozen=True)
class GroupSpread:
    """A measure of all pairs of sites with each of G groups left out [G, S, T], and of all [S, T]; the groups' sizes [G]
    and what they are of."""

    whole: Floats
    left_out: Floats
    sizes: Floats
    clusters: str

    def interval(
        self, s: int, t: int, value: float, bounds: tuple[float, float]
    ) -> tuple[tuple[float, float] | None, float | None]:
        """The 95 % interval of the measure of a pair of sites, and how far few tokens are expected to shift it.

        With h = n/n_g the jackknife expects of the estimate a bias of Σ(1 − 1/h)θ₋ − (G − 1)θ (Busing, Meijer and van der
        Leeden 1999); the interval lies around the value less its bias.
        """
        whole, left = self.whole[s, t], self.left_out[:, s, t]
        if len(left) < 3 or not np.isfinite(value) or not np.isfinite([whole, *left]).all():
            return None, None
        total = self.sizes.sum()
        bias = float(((1 - self.sizes / total) * left).sum() - (len(left) - 1) * whole)
        influences = (whole - left) * (total - self.sizes)
        make = Deviation.of_documents if self.clusters == "documents" else Deviation.of_text
        deviation = make(influences, self.sizes)
        if deviation is None:
            return None, None
        return deviation.interval(value, biases=[bias], bounds=bounds), bias


def of_groups(
    gathering: Gathering, measures: Mapping[str, SimilarityMeasure], pair: tuple[int, int]
) -> dict[str, GroupSpread]:
    """The spread of each measure made of covariances, between the sites of two models.

    Cost: 16 times the measures on matrices of 24 × 24.
    """
    parts = gathering.groups.parts()
    whole = gathering.groups.total()
    sizes = np.array([part.count for part in parts], dtype=np.float64)
    chosen = {name: measure for name, measure in measures.items() if isinstance(measure, MomentMeasure)}
    every = [_measured(gathering, sums, chosen, pair) for sums in (whole, *(whole.without(part) for part in parts))]
    return {
        name: GroupSpread(every[0][name], np.stack([one[name] for one in every[1:]]), sizes, gathering.clusters)
        if parts
        else GroupSpread(every[0][name], np.zeros((0, *every[0][name].shape)), sizes, gathering.clusters)
        for name in chosen
    }


def _measured(
    gathering: Gathering, sums: Sums, measures: Mapping[str, MomentMeasure], pair: tuple[int, int]
) -> dict[str, Floats]:
    assert sums.gram is not None
    table = (sums.gram.scatter() / max(sums.count - 1, 1)).cpu()
    places = [slice(end - basis.shape[1], end) for end, basis in zip(gathering.ends, gathering.bases, strict=True)]
    size = max(basis.shape[1] for basis in gathering.bases)
    one, two = ([places[u] for u, model in enumerate(gathering.models) if model == wanted] for wanted in pair)

    def block(rows: slice, columns: slice) -> Tensor:
        found = table[rows, columns]
        return torch.nn.functional.pad(found, (0, size - found.shape[1], 0, size - found.shape[0]))

    x = SiteCovariance(torch.stack([block(s, s) for s in one])[:, None], sums.count)
    y = SiteCovariance(torch.stack([block(t, t) for t in two])[None], sums.count)
    xy = torch.stack([torch.stack([block(s, t) for t in two]) for s in one])
    reduced = CrossCovariance(x, y, xy)
    return {name: measure.value(reduced).numpy() for name, measure in measures.items()}


def of_sample(x: Prepared, y: Prepared, sample: Sampled, clusters: str, name: str) -> GroupSpread:
    """The spread of a measure of the sample, its tokens left out by groups of documents or of windows."""
    units = sample.documents if clusters == "documents" else torch.arange(x.windows)
    _, number = units.unique(return_inverse=True)
    group = number * min(SAMPLE_GROUPS, int(number.max()) + 1) // (int(number.max()) + 1)
    count = int(group.max()) + 1
    run = x.coordinates.shape[1] // x.windows
    belongs = torch.zeros(count, x.windows, dtype=torch.float64)
    belongs[group, torch.arange(x.windows)] = 1.0
    one, two = x.relations[name], y.relations[name]
    sums_xx, sums_yy, sums_xy = (
        belongs @ table.cpu() @ belongs.T for table in (one.by_windows(), two.by_windows(), one.by_windows(two))
    )
    left = [
        _without(sums_xy, g) / (_without(sums_xx, g)[:, None] * _without(sums_yy, g)[None]).sqrt() for g in range(count)
    ]
    whole = one.cosines(two).cpu().numpy()
    return GroupSpread(whole, torch.stack(left).numpy(), belongs.sum(1).numpy() * run, clusters)


def _without(sums: Tensor, group: int) -> Tensor:
    """The sums over all pairs of tokens but those with one of the group."""
    return sums.sum((-2, -1)) - sums[..., group, :].sum(-1) - sums[..., :, group].sum(-1) + sums[..., group, group]
