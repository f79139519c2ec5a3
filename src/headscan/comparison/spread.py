"""Intervals of similarities: each measure with a group of documents left out.

The moments of every pair of sites, of every group of documents, would take a matrix of d × d' for
each pair and group. The error that a group adds to a measure shows in the strongest directions. So
groups have moments of 24 principal components of each site, and the spread of the measure there,
with a group left out, stands for the spread of the measure. benchmarks/comparisons_cover.py
measures how often such intervals cover.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headscan.comparison.alignment import Sampled
from headscan.comparison.covariance import CrossCovariance, SiteCovariance
from headscan.comparison.gathering import Gathering
from headscan.comparison.similarity import MomentMeasure, RelationMeasure
from headscan.run import Interval
from headscan.statistics import Sums
from headscan.statistics.uncertainty import Floats, StandardError

SAMPLE_GROUPS = 16
"""The sampled windows are in at most so many groups."""

FEWEST_GROUPS = 3
"""An interval takes so many groups."""


@dataclass(frozen=True)
class GroupSpread:
    """A measure of all pairs of sites, with each of G groups of documents or windows left out.

    Attributes:
        whole: [S, T], of all tokens.
        left_out: [G, S, T].
        sizes: [G], of the groups in tokens.
        clusters: documents or windows.
    """

    whole: Floats
    left_out: Floats
    sizes: Floats
    clusters: str

    def interval(
        self, s: int, t: int, value: float, bounds: Interval
    ) -> tuple[Interval | None, float | None]:
        """Return the 95 % interval of the measure of sites s and t, and its bias from few tokens.

        With h = n/n_g the jackknife expects of the estimate a bias of Σ(1 − 1/h)θ₋ − (G − 1)θ
        (Busing, Meijer and van der Leeden 1999).
        """
        whole = self.whole[s, t]
        left_out = self.left_out[:, s, t]
        groups = len(left_out)
        if groups < FEWEST_GROUPS or not np.isfinite([value, whole, *left_out]).all():
            return None, None
        total = self.sizes.sum()
        bias = float(((1 - self.sizes / total) * left_out).sum() - (groups - 1) * whole)
        influences = (whole - left_out) * (total - self.sizes)
        if self.clusters == "documents":
            deviation = StandardError.of_documents(influences, self.sizes)
        else:
            deviation = StandardError.of_text(influences, self.sizes)
        if deviation is None:
            return None, None
        return deviation.interval(value, bounds=bounds), bias


def spreads_of_groups(
    gathering: Gathering, measures: Mapping[str, MomentMeasure], models: tuple[int, int]
) -> dict[str, GroupSpread]:
    """Return the spread of each measure made of covariances, between the sites of two models.

    Cost: 16 times the measures on matrices of 24 × 24.
    """
    groups = gathering.groups.parts()
    total = gathering.groups.total()
    sizes = np.array([group.count for group in groups], dtype=np.float64)
    whole = _measured(gathering, total, measures, models)
    left_out = []
    for group in groups:
        left_out.append(_measured(gathering, total.without(group), measures, models))
    spreads = {}
    for name in measures:
        values = np.stack([values[name] for values in left_out])
        spreads[name] = GroupSpread(whole[name], values, sizes, gathering.clusters)
    return spreads


def _measured(
    gathering: Gathering,
    sums: Sums,
    measures: Mapping[str, MomentMeasure],
    models: tuple[int, int],
) -> dict[str, Floats]:
    """Return the measures [S, T] of the sites of two models, from sums of projected tokens."""
    assert sums.gram is not None
    covariance = (sums.gram.scatter() / max(sums.count - 1, 1)).cpu()
    columns_of_site = [
        slice(end - basis.shape[1], end)
        for end, basis in zip(gathering.ends, gathering.bases, strict=True)
    ]
    size = max(basis.shape[1] for basis in gathering.bases)

    def block(rows: slice, columns: slice) -> Tensor:
        part = covariance[rows, columns]
        padding = (0, size - part.shape[1], 0, size - part.shape[0])
        return torch.nn.functional.pad(part, padding)

    first = _of_model(columns_of_site, gathering.models, models[0])
    second = _of_model(columns_of_site, gathering.models, models[1])
    xx = torch.stack([block(site, site) for site in first])
    yy = torch.stack([block(site, site) for site in second])
    rows = []
    for site in first:
        rows.append(torch.stack([block(site, other) for other in second]))
    pairs = CrossCovariance(
        SiteCovariance(xx[:, None], sums.count),
        SiteCovariance(yy[None], sums.count),
        torch.stack(rows),
    )
    return {name: measure.value(pairs).numpy() for name, measure in measures.items()}


def _of_model(columns: Sequence[slice], owners: Sequence[int], model: int) -> list[slice]:
    """Return the columns of the sites of one model."""
    return [site for site, owner in zip(columns, owners, strict=True) if owner == model]


def spread_of_sample(
    measure: RelationMeasure,
    x: Sequence[Tensor],
    y: Sequence[Tensor],
    sample: Sampled,
    clusters: str,
) -> GroupSpread:
    """Return the spread of a measure of the sampled rows [windows, m, d] of two models' sites."""
    windows, run = x[0].shape[:2]
    units = sample.documents if clusters == "documents" else torch.arange(windows)
    _, number = units.unique(return_inverse=True)
    count = int(number.max()) + 1
    group_of_window = number * min(SAMPLE_GROUPS, count) // count
    in_group = torch.nn.functional.one_hot(group_of_window).double().T  # [G, windows]
    relations_x = [measure.relation(rows.flatten(0, 1)) for rows in x]
    relations_y = [measure.relation(rows.flatten(0, 1)) for rows in y]
    squares_x = [products_by_group(relation, relation, in_group) for relation in relations_x]
    squares_y = [products_by_group(relation, relation, in_group) for relation in relations_y]
    rows = []
    for relation_x, square_x in zip(relations_x, squares_x, strict=True):
        cosines = []
        for relation_y, square_y in zip(relations_y, squares_y, strict=True):
            product = products_by_group(relation_x, relation_y, in_group)
            cosines.append(product / (square_x * square_y).sqrt())
        rows.append(torch.stack(cosines, dim=1))
    values = torch.stack(rows, dim=1).numpy()  # [G + 1, S, T]
    sizes = in_group.sum(1).numpy() * run
    return GroupSpread(values[0], values[1:], sizes, clusters)


def products_by_group(first: Tensor, second: Tensor, in_group: Tensor) -> Tensor:
    """Return the sum of products of two relations [n, n], entry by entry.

    The result [G + 1] is of all tokens, and with each group of windows left out. `in_group`
    [G, windows] is 1 where a window belongs to a group.
    """
    windows = in_group.shape[1]
    products = first.double() * second.double()
    by_window = products.unflatten(1, (windows, -1)).unflatten(0, (windows, -1))
    # The sums of each pair of groups [G, G].
    sums = in_group @ by_window.sum((1, 3)).cpu() @ in_group.T
    left_out = sums.sum() - sums.sum(0) - sums.sum(1) + sums.diagonal()
    return torch.cat([sums.sum()[None], left_out])
