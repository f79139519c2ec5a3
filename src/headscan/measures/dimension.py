"""Intrinsic dimension: the number of dimensions on which the points lie locally. TwoNN and MLE.

Both read distances to near neighbours (of distinct points) and assume constant density at that
scale. Both are biased low in high dimensions: n points cannot show more than about 2·log₂ n, so
that a ball of 768 dimensions gives tens, not 768. Read them against the same estimate on a null of
the same n and d.
"""

from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup, suffixed
from headscan.statistics.uncertainty import Bounds, Cells, Floats, number, with_intervals

FEW_POINTS = "fewer than ten distinct sampled points, or their distances leave nothing to compare"


def distinct(
    rows: npt.ArrayLike,
) -> tuple[npt.NDArray[np.signedinteger], npt.NDArray[np.signedinteger]]:
    """Return the index of the first occurrence of each distinct row [m], and each row's point [n].

    The occurrences are ascending; the point of a row is the number of its distinct row.

    >>> [indices.tolist() for indices in distinct([[1, 2], [0, 0], [1, 2]])]
    [[0, 1], [0, 1, 0]]
    """
    matrix = np.asarray(rows, dtype=np.float64)
    matrix = np.ascontiguousarray(matrix) + 0.0  # −0 and 0 are one number
    row_type = np.dtype((np.void, matrix.dtype.itemsize * matrix.shape[1]))
    keys = matrix.view(row_type).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.ravel()]


def neighbour_distances(rows: npt.ArrayLike, k: int, *, block_bytes: int = 2**26) -> Tensor:
    """Return the distances of `find_neighbours` alone.

    >>> neighbour_distances([[0.0], [1.0], [3.0]], 2).tolist()
    [[1.0, 3.0], [1.0, 2.0], [2.0, 3.0]]
    """
    return find_neighbours(rows, k, block_bytes=block_bytes)[0]


def find_neighbours(
    rows: npt.ArrayLike, k: int, *, block_bytes: int = 2**26
) -> tuple[Tensor, Tensor]:
    """Return the distances of each row to its k nearest other rows, and the indices of those rows.

    Distances are ascending [n, k], float64; k < n. They are made in blocks of the n x n matrix of
    at most `block_bytes`. ‖x − y‖² = ‖x‖² + ‖y‖² − 2x·y loses digits, so rows are centred first,
    and where the nearest squared distance is below a hundredth of the squared norms, the nearest
    2k + 2 are measured anew by subtraction; the others keep at least twelve digits. Cost O(n²d),
    memory O(block + nkd/blocks).

    >>> find_neighbours([[0.0], [1.0], [3.0]], 2)[1].tolist()
    [[1, 2], [0, 2], [1, 0]]
    """
    if isinstance(rows, Tensor):
        x = rows.double()
    else:
        x = torch.as_tensor(np.asarray(rows, dtype=np.float64))
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
        part_rows = torch.arange(len(part))
        distances = torch.addmm(squares[None, :], part, x.T, alpha=-2)
        distances[part_rows, start + part_rows] = torch.inf
        values, neighbours = distances.topk(candidates, largest=False)
        row_squares = squares[start : start + block, None]
        values = (values + row_squares).clamp(min=0).sqrt()

        scale = row_squares[:, 0] + squares[neighbours].amax(1)
        close = values[:, 0].square() < 0.01 * scale
        if bool(close.any()):
            differences = x[neighbours[close]] - part[close, None]
            exact = torch.linalg.vector_norm(differences, dim=-1)
            values[close], order = exact.sort(dim=1)
            neighbours[close] = neighbours[close].gather(1, order)
        nearest[start : start + block] = values[:, :k]
        indices[start : start + block] = neighbours[:, :k]
    return nearest, indices


FEWEST = 10  # points
USED = 20  # neighbours that the likelihood reads


def twonn(distances: Tensor, *, discard: float = 0.1) -> float | None:
    """Return TwoNN: the slope through the origin of −log(1 − F) over log(r₂/r₁), in (0, ∞).

    The top tenth of the ratios is left out. Facco et al. 2017, arXiv:1803.06992. `distances` [n, ≥
    2] from `neighbour_distances`; rows with r₁ = 0 are left out. None where fewer than ten remain
    or all ratios are 1.

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
    """Return Levina and Bickel's estimate of maximum likelihood.

    The mean over points is that of inverses, after MacKay and Ghahramani:
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
    """Return `twonn` and `mle_dimension` of the distinct rows of a sample [n, d], and their number.

    None where fewer than ten distinct points or zero distances leave nothing. With `blocks` [n],
    the block of text of each row, each has a 95 % interval (NAME_interval): blocks of points are
    left out by turns, neighbours are looked for among all. With `first` [n], True at position 0,
    there is NAME_without_first: such points are then neither data nor neighbours. Cost O(n²d).

    >>> intrinsic_dimension(np.ones((50, 3)))
    {'twonn': None, 'mle_dimension': None, 'distinct_points': 1}
    """
    matrix = np.asarray(rows, dtype=np.float64)
    occurrences, point_of_row = distinct(matrix)
    points = matrix[occurrences]
    owner = None if blocks is None else np.asarray(blocks)[occurrences]
    neighbourhood = None
    if len(points) > FEWEST:
        neighbourhood = find_neighbours(points, min(neighbours, len(points) - 1))
    table = None if neighbourhood is None else neighbourhood[0]
    cells = _estimates(table, owner) | {"distinct_points": len(points)}
    if first is None:
        return cells

    # A point counts if it stands anywhere but at position 0.
    is_later = np.zeros(len(points), dtype=bool)
    is_later[point_of_row[~np.asarray(first, dtype=bool)]] = True
    if is_later.all():
        return cells | suffixed(cells)
    later_points = int(is_later.sum())
    later_table = None
    if later_points > FEWEST and neighbourhood is not None:
        k = min(USED, later_points - 1)
        later_table = _among(points, *neighbourhood, is_later, k)
    later_owner = None if owner is None else owner[is_later]
    later_cells = _estimates(later_table, later_owner) | {"distinct_points": later_points}
    return cells | suffixed(later_cells)


def _estimates(table: Tensor | None, blocks: npt.NDArray[np.int64] | None) -> Cells:
    """Return both estimates from a table of distances, with intervals where blocks are known."""
    estimates = _estimate(table)
    if blocks is None:
        return {**estimates}

    owners, sizes = np.unique(blocks, return_counts=True)
    left_out = []
    if table is not None and len(owners) > 2:
        left_out = [_estimate(table[blocks != owner]) for owner in owners]
    bounds: dict[str, Bounds] = dict.fromkeys(estimates, (0.0, None))
    return {**estimates} | with_intervals(estimates, left_out, sizes.astype(float), bounds)


def _estimate(table: Tensor | None) -> dict[str, float | None]:
    """Return both estimates from a table of distances."""
    if table is None:
        return {"twonn": None, "mle_dimension": None}
    return {"twonn": twonn(table), "mle_dimension": mle(table, k=min(USED, table.shape[1]))}


def _among(
    points: Floats, table: Tensor, indices: Tensor, is_later: npt.NDArray[np.bool_], k: int
) -> Tensor:
    """Return the distances to the k nearest neighbours among some of the points.

    They are taken from the table of all points where enough of its neighbours remain.
    """
    keep = torch.from_numpy(is_later)
    distances = table[keep].masked_fill(~keep[indices[keep]], torch.inf)
    nearest = distances.sort(dim=1).values[:, :k]
    if bool(torch.isfinite(nearest).all()):
        return nearest
    return find_neighbours(points[is_later], k)[0]


class DimensionProbe(Probe):
    """The intrinsic dimension of the sampled vectors of each site."""

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

    def rows(self, _setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        shapes: set[tuple[int, int]] = set()
        for site, cloud in data.clouds.items():
            states = data.sample.get(site)
            row: Cells = {"site": site, **dict.fromkeys(self.fields)}
            if states is not None:
                row |= intrinsic_dimension(states.numpy(), blocks=data.blocks, first=data.first)
            rows.append(row)
            points = int(number(row["distinct_points"]) or 0)
            if points:
                shapes.add((points, cloud.width))
        if shapes:
            points, width = max(shapes)
            null: Cells = {"site": f"{points} x {width}", "null": "gaussian"}
            rows.append(null | _gaussian(points, width))
        return rows


@cache
def _gaussian(count: int, width: int) -> Cells:
    """Return the estimates of Gaussian noise, the null."""
    generator = np.random.default_rng([count, width])
    return intrinsic_dimension(generator.standard_normal((count, width)))
