"""Intrinsic dimension: on how many dimensions could the points be laid out locally? TwoNN, MLE and Gride.

All three read distances to near neighbours (of distinct points: see `neighbours.distinct_rows`) and assume constant
density at that scale. All are biased low in high dimensions: n points cannot show more than about 2·log₂ n dimensions,
so that a ball of 768 dimensions gives tens, not 768. Read them against the same estimate on a null of the same n and d.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import brentq
from torch import Tensor

from headscan.geometry.explained import Cells
from headscan.geometry.interval import with_intervals
from headscan.geometry.neighbours import distinct
from headscan.geometry.neighbours import neighbours as find_neighbours

__all__ = ["gride", "intrinsic_dimension", "mle", "twonn"]

FEWEST, USED = 10, 20  # points at least; neighbours that are looked at


def twonn(distances: Tensor, *, discard: float = 0.1) -> float | None:
    """TwoNN: the slope through the origin of −log(1 − F) over log(r₂/r₁), the top tenth of the ratios left out.

    Facco et al. 2017, arXiv:1803.06992. `distances` [n, ≥ 2] from `neighbour_distances`. In (0, ∞). Rows with r₁ = 0
    are left out; None where fewer than ten remain or all ratios are 1.

    >>> from headscan.geometry import neighbour_distances
    >>> rows = np.random.default_rng(0).standard_normal((2000, 2))
    >>> 1.8 < twonn(neighbour_distances(rows, 2)) < 2.2
    True
    """
    kept = distances[:, 0] > 0
    logs = (distances[kept, 1] / distances[kept, 0]).log().sort().values.numpy()
    n = len(logs)
    if n < FEWEST:
        return None
    used = int(n * (1 - discard))
    x, y = logs[:used], -np.log1p(-np.arange(1, used + 1) / n)
    return float(x @ y / (x @ x)) if x @ x > 0 else None


def mle(distances: Tensor, *, k: int | None = None) -> float | None:
    """Levina and Bickel's maximum likelihood with MacKay and Ghahramani's mean of inverses over points.

    m̂ = [ (1/(n(k − 1))) Σᵢ Σ_{j<k} log(T_k/T_j) ]⁻¹ with T_j the distance to neighbour j of k (all columns by default).
    In (0, ∞). Rows with T₁ = 0 are left out; None where fewer than ten remain or k < 2.

    >>> from headscan.geometry import neighbour_distances
    >>> rows = np.random.default_rng(0).standard_normal((2000, 3))
    >>> 2.7 < mle(neighbour_distances(rows, 20)) < 3.3
    True
    """
    k = k or distances.shape[1]
    used = distances[distances[:, 0] > 0, :k].numpy()
    if len(used) < FEWEST or k < 2:
        return None
    mean = float(np.log(used[:, -1:] / used[:, :-1]).mean())
    return 1 / mean if mean > 0 else None


def gride(distances: Tensor, *, first: int = 2) -> float | None:
    """Gride: maximum likelihood from the ratio μ of the distances to neighbours 2k and k, at a coarser scale than TwoNN.

    Denti et al. 2022, arXiv:2104.13832. With n₁ = `first`, n₂ = 2·n₁, the density of μ is
    d(μᵈ − 1)^(n₂−n₁−1) / (μ^(d(n₂−1)+1) B(n₂ − n₁, n₁)); its log-likelihood has one maximum in d. n₁ = 1 is TwoNN's own
    likelihood, n/Σlog μ. In (0, ∞); None where fewer than ten ratios are above 1.

    >>> from headscan.geometry import neighbour_distances
    >>> rows = np.random.default_rng(0).standard_normal((2000, 2))
    >>> 1.8 < gride(neighbour_distances(rows, 16), first=8) < 2.2
    True
    """
    second = 2 * first
    if distances.shape[1] < second:
        return None
    near, far = distances[:, first - 1], distances[:, second - 1]
    kept = (near > 0) & (far > near)
    logs = (far[kept] / near[kept]).log().numpy()
    n, extra = len(logs), second - first - 1
    if n < FEWEST:
        return None

    def slope(d: float) -> float:
        """Derivative of the log-likelihood in d; falls from +∞ to a negative value."""
        # μᵈ log μ/(μᵈ − 1) = log μ/(1 − μ⁻ᵈ), which neither overflows nor cancels.
        return n / d + extra * float((logs / -np.expm1(-d * logs)).sum()) - (second - 1) * float(logs.sum())

    high = 1.0
    while slope(high) > 0 and high < 1e9:
        high *= 2
    return float(brentq(slope, high * 1e-9, high)) if slope(high) <= 0 else None


def intrinsic_dimension(
    rows: npt.ArrayLike,
    *,
    neighbours: int = 32,
    blocks: npt.ArrayLike | None = None,
    first: npt.ArrayLike | None = None,
) -> Cells:
    """All three on the distinct rows of a sample [n, d], from one table of distances; plus how many points that is.

    `gride` is at k = 8 against 16. Values None where fewer than ten distinct points or zero distances leave nothing.
    Cost O(n²d) once: 0.3 s for 2,000 x 384 on one core.

    With `blocks` [n], the block of text each row is from, each estimate has a 95 % interval (NAME_interval): each
    point's own ratios of distances are the data, neighbours are looked for among all points, and blocks of points are
    left out by turns. With `first` [n], True for rows at position 0, there is NAME_without_first, too: such points are
    then neither data nor neighbours.

    >>> intrinsic_dimension(np.ones((50, 3)))
    {'twonn': None, 'mle_dimension': None, 'gride': None, 'distinct_points': 1}
    """
    matrix = np.asarray(rows, dtype=np.float64)
    at, which = distinct(matrix)
    points = matrix[at]
    owner = None if blocks is None else np.asarray(blocks)[at]
    table = near = None
    if len(points) > FEWEST:
        table, near = find_neighbours(points, min(neighbours, len(points) - 1))
    found = _estimates(table, owner) | {"distinct_points": len(points)}
    if first is None:
        return found
    rest = np.zeros(len(points), dtype=bool)
    rest[which[~np.asarray(first, dtype=bool)]] = True  # a point counts if it stands anywhere but at position 0
    if not rest.all():
        left = None
        if int(rest.sum()) > FEWEST and table is not None and near is not None:
            left = _among(points, table, near, rest, min(USED, int(rest.sum()) - 1))
        owner = None if owner is None else owner[rest]
        other = _estimates(left, owner) | {"distinct_points": int(rest.sum())}
    else:
        other = dict(found)
    for name, value in other.items():
        stem = name.removesuffix("_interval")
        found[f"{stem}_without_first{name.removeprefix(stem)}"] = value
    return found


def _estimates(table: Tensor | None, blocks: npt.NDArray[np.int64] | None) -> Cells:
    """The three estimates of a table of distances, with intervals where blocks are given."""
    names = ("twonn", "mle_dimension", "gride")

    def all_three(part: Tensor) -> dict[str, float | None]:
        values = (twonn(part), mle(part, k=min(USED, part.shape[1])), gride(part, first=8))
        return dict(zip(names, values, strict=True))

    estimates: dict[str, float | None] = dict.fromkeys(names) if table is None else all_three(table)
    found: Cells = {**estimates}
    if blocks is None:
        return found
    owners, sizes = np.unique(blocks, return_counts=True)
    others = [] if table is None or len(owners) < 3 else [all_three(table[blocks != owner]) for owner in owners]
    return found | with_intervals(estimates, others, sizes.astype(float), dict.fromkeys(names, (0.0, None)))


def _among(points: npt.NDArray[np.float64], table: Tensor, near: Tensor, rest: npt.NDArray[np.bool_], k: int) -> Tensor:
    """Distances of the points of `rest` to their k nearest among themselves, out of the table of all where it suffices."""
    keep = torch.from_numpy(rest)
    kept = table[keep].masked_fill(~keep[near[keep]], torch.inf).sort(dim=1).values[:, :k]
    return kept if bool(torch.isfinite(kept).all()) else find_neighbours(points[rest], k)[0]
