"""Intrinsic dimension: on how many dimensions could the points be laid out locally? TwoNN and MLE.

Both read distances to near neighbours (of distinct points) and assume constant density at that
scale. Both are biased low in high dimensions: n points cannot show more than about 2·log₂ n, so
that a ball of 768 dimensions gives tens, not 768. Read them against the same estimate on a null of
the same n and d.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup, suffixed
from headscan.statistics.uncertainty import Cells, Floats, number, with_intervals

FEW_POINTS = "fewer than ten distinct sampled points, or their distances leave nothing to compare"


def distinct(
    rows: npt.ArrayLike,
) -> tuple[npt.NDArray[np.signedinteger], npt.NDArray[np.signedinteger]]:
    """Where each distinct row occurs first [m], ascending, and which of them each row is [n].

    >>> [found.tolist() for found in distinct([[1, 2], [0, 0], [1, 2]])]
    [[0, 1], [0, 1, 0]]
    """
    rows = np.ascontiguousarray(np.asarray(rows, dtype=np.float64)) + 0.0  # −0 and 0 are one number
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.ravel()]


def neighbour_distances(rows: npt.ArrayLike, k: int, *, block_bytes: int = 2**26) -> Tensor:
    """The distances of `find_neighbours` alone.

    >>> neighbour_distances([[0.0], [1.0], [3.0]], 2).tolist()
    [[1.0, 3.0], [1.0, 2.0], [2.0, 3.0]]
    """
    return find_neighbours(rows, k, block_bytes=block_bytes)[0]


def find_neighbours(
    rows: npt.ArrayLike, k: int, *, block_bytes: int = 2**26
) -> tuple[Tensor, Tensor]:
    """Distances of each row to its k nearest other rows, ascending [n, k] float64, and which rows
    those are; k < n.

    In blocks of the n x n matrix of at most `block_bytes`. ‖x − y‖² = ‖x‖² + ‖y‖² − 2x·y loses
    digits, so rows are centred first, and where the nearest squared distance is below a hundredth
    of the squared norms, the nearest 2k + 2 are measured anew by subtraction; the rest keep at
    least twelve digits. Cost O(n²d), memory O(block + nkd/blocks).

    >>> find_neighbours([[0.0], [1.0], [3.0]], 2)[1].tolist()
    [[1, 2], [0, 2], [1, 0]]
    """
    x = (
        torch.as_tensor(np.asarray(rows, dtype=np.float64))
        if not isinstance(rows, Tensor)
        else rows.double()
    )
    x = x - x.mean(0)
    n, d = x.shape
    if not 1 <= k < n:
        raise ValueError(f"{k} neighbours of {n} rows were asked for")
    squares = x.square().sum(1)
    candidates = min(n - 1, 2 * k + 2)
    block = max(1, min(block_bytes // (8 * n), block_bytes // (8 * candidates * d)))
    nearest = torch.empty(n, k, dtype=torch.float64)
    indices = torch.empty(n, k, dtype=torch.int64)
    for start in range(0, n, block):
        part = x[start : start + block]
        distances = torch.addmm(squares[None, :], part, x.T, alpha=-2)
        distances[torch.arange(len(part)), start + torch.arange(len(part))] = torch.inf
        values, neighbours = distances.topk(candidates, largest=False)
        row_squares = squares[start : start + block, None]
        values = (values + row_squares).clamp(min=0).sqrt()
        close = values[:, 0].square() < 0.01 * (row_squares[:, 0] + squares[neighbours].amax(1))
        if bool(close.any()):
            exact = torch.linalg.vector_norm(x[neighbours[close]] - part[close, None], dim=-1)
            values[close], order = exact.sort(dim=1)
            neighbours[close] = neighbours[close].gather(1, order)
        nearest[start : start + block] = values[:, :k]
        indices[start : start + block] = neighbours[:, :k]
    return nearest, indices


# points at least; neighbours that are looked at
FEWEST = 10
USED = 20


def twonn(distances: Tensor, *, discard: float = 0.1) -> float | None:
    """TwoNN: the slope through the origin of −log(1 − F) over log(r₂/r₁), without the top tenth of
    the ratios; in (0, ∞).

    Facco et al. 2017, arXiv:1803.06992. `distances` [n, ≥ 2] from `neighbour_distances`; rows with
    r₁ = 0 are left out. None where fewer than ten remain or all ratios are 1.

    >>> from headscan.measures import neighbour_distances
    >>> rows = np.random.default_rng(0).standard_normal((2000, 2))
    >>> 1.8 < twonn(neighbour_distances(rows, 2)) < 2.2
    True
    """
    is_apart = distances[:, 0] > 0
    logs = (distances[is_apart, 1] / distances[is_apart, 0]).log().sort().values.numpy()
    n = len(logs)
    if n < FEWEST:
        return None
    used = int(n * (1 - discard))
    x = logs[:used]
    y = -np.log1p(-np.arange(1, used + 1) / n)
    return float(x @ y / (x @ x)) if x @ x > 0 else None


def mle(distances: Tensor, *, k: int | None = None) -> float | None:
    """Levina and Bickel's maximum likelihood with MacKay and Ghahramani's mean of inverses over
    points.

    m̂ = [ (1/(n(k − 1))) Σᵢ Σ_{j<k} log(T_k/T_j) ]⁻¹ with T_j the distance to neighbour j of k (all
    columns by default). In (0, ∞). Rows with T₁ = 0 are left out; None where fewer than ten remain
    or k < 2.

    >>> from headscan.measures import neighbour_distances
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


def intrinsic_dimension(
    rows: npt.ArrayLike,
    *,
    neighbours: int = 32,
    blocks: npt.ArrayLike | None = None,
    first: npt.ArrayLike | None = None,
) -> Cells:
    """`twonn` and `mle_dimension` of the distinct rows of a sample [n, d], and `distinct_points`.

    None where fewer than ten distinct points or zero distances leave nothing. With `blocks` [n],
    the block of text of each row, each has a 95 % interval (NAME_interval): blocks of points are
    left out by turns, neighbours are looked for among all. With `first` [n], True at position 0,
    there is NAME_without_first: such points are then neither data nor neighbours. Cost O(n²d).

    >>> intrinsic_dimension(np.ones((50, 3)))
    {'twonn': None, 'mle_dimension': None, 'distinct_points': 1}
    """
    matrix = np.asarray(rows, dtype=np.float64)
    at, point_of_row = distinct(matrix)
    points = matrix[at]
    owner = None if blocks is None else np.asarray(blocks)[at]
    table = indices = None
    if len(points) > FEWEST:
        table, indices = find_neighbours(points, min(neighbours, len(points) - 1))
    cells = _estimates(table, owner) | {"distinct_points": len(points)}
    if first is None:
        return cells
    is_later = np.zeros(len(points), dtype=bool)
    is_later[point_of_row[~np.asarray(first, dtype=bool)]] = (
        True  # a point counts if it stands anywhere but at position 0
    )
    if is_later.all():
        return cells | suffixed(cells)
    left = None
    if int(is_later.sum()) > FEWEST and table is not None and indices is not None:
        left = _among(points, table, indices, is_later, min(USED, int(is_later.sum()) - 1))
    return cells | suffixed(
        _estimates(left, None if owner is None else owner[is_later])
        | {"distinct_points": int(is_later.sum())}
    )


def _estimates(table: Tensor | None, blocks: npt.NDArray[np.int64] | None) -> Cells:
    names = ("twonn", "mle_dimension")

    def both(part: Tensor) -> dict[str, float | None]:
        return {"twonn": twonn(part), "mle_dimension": mle(part, k=min(USED, part.shape[1]))}

    estimates: dict[str, float | None] = dict.fromkeys(names) if table is None else both(table)
    if blocks is None:
        return {**estimates}
    owners, sizes = np.unique(blocks, return_counts=True)
    left_out = (
        []
        if table is None or len(owners) < 3
        else [both(table[blocks != owner]) for owner in owners]
    )
    return {**estimates} | with_intervals(
        estimates, left_out, sizes.astype(float), dict.fromkeys(names, (0.0, None))
    )


def _among(
    points: Floats, table: Tensor, indices: Tensor, is_later: npt.NDArray[np.bool_], k: int
) -> Tensor:
    keep = torch.from_numpy(is_later)
    distances = table[keep].masked_fill(~keep[indices[keep]], torch.inf).sort(dim=1).values[:, :k]
    return (
        distances
        if bool(torch.isfinite(distances).all())
        else find_neighbours(points[is_later], k)[0]
    )


class DimensionProbe(Probe):
    """On how many dimensions do the points lie, locally?"""

    needs = "vectors"
    words = ProbeWords(
        name="dimension",
        title="Intrinsic dimension",
        group="spectra",
        sentence="On how many dimensions do the sampled points lie locally? Biased low: read "
        "beside the Gaussian rows, which have the same number of points.",
        literature="Facco 2017, Levina and Bickel 2004",
        position="Every number also without the sampled vectors at position 0: they are then "
        "neither data nor neighbours.",
        docs="dimension.md",
        function="headscan.measures.dimension.intrinsic_dimension",
        sample=2000,
        order=4,
        fields={
            "twonn": Field(
                "TwoNN",
                "From the ratio of the distances to the two nearest neighbours.",
                "−log(1 − F(μ)) = d log μ",
                range=(0, None),
                unit="dimensions",
                undefined=FEW_POINTS,
                first=True,
                plotted=True,
            ),
            "mle_dimension": Field(
                "MLE",
                "Maximum likelihood over 20 neighbours.",
                "[mean log(T_k/T_j)]⁻¹",
                range=(0, None),
                unit="dimensions",
                undefined=FEW_POINTS,
                first=True,
                plotted=True,
            ),
            "distinct_points": Field(
                "distinct points",
                "Sampled points with repeats left out (a token's embedding is one point).",
                range=(0, None),
                unit="points",
                interval="a count",
                first=True,
            ),
        },
    )

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for site in data.clouds:
            states = data.sample.get(site)
            row: Cells = {"site": site, **dict.fromkeys(self.fields)}
            if states is not None:
                row |= intrinsic_dimension(states.numpy(), blocks=data.blocks, first=data.first)
            rows.append(row)
        widths = zip(rows, (cloud.width for cloud in data.clouds.values()), strict=True)
        sizes = {(int(number(row["distinct_points"]) or 0), width) for row, width in widths}
        for count, width in sorted(size for size in sizes if size[0])[-1:]:
            rows.append(
                {"site": f"{count} x {width}", "null": "gaussian"} | _gaussian(count, width)
            )
        return rows


@cache
def _gaussian(count: int, width: int) -> dict[str, Any]:
    return intrinsic_dimension(
        np.random.default_rng([count, width]).standard_normal((count, width))
    )
