"""The numbers by which a remedy is judged: retrieval of partners by exact neighbours, hubness and
cosines, each with an interval.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import betaincinv

from headscan.measures.dimension import find_neighbours
from headscan.measures.sphere import NEIGHBOURS
from headscan.run import Interval
from headscan.statistics.uncertainty import Bounds, Floats, StandardError, clustered, wilson

Ids = npt.NDArray[np.int64]

BLOCK_BYTES = 2**26
"""The cosines of so many bytes are in memory at once."""

Measured = tuple[float | None, Interval | None]
"""A number with its 95 % interval."""


@dataclass(frozen=True)
class HeldOutPairs:
    """Pairs whose texts belong together, by rows of one matrix of vectors.

    Nothing was fitted on them.

    Attributes:
        name: of the set.
        queries: the row of each pair's query [m].
        answers: the row of its partner [m].
        items: the rows that are searched, ascending [N]; all answers are among them.
        groups: pairs of one number err together [m].
        scored: two rows and their similarity as people judge it [s, 3]; None where nobody did.
    """

    name: str
    queries: Ids
    answers: Ids
    items: Ids
    groups: Ids
    scored: Floats | None = None


def ranks(vectors: Floats, pairs: HeldOutPairs, searching: Floats | None = None) -> Ids:
    """Return the rank of each query's partner among all items by cosine [m]; 1 is the first.

    The query itself and its other partners are left out. Items that are as near as the partner
    count as nearer, so a map that sends everything to one point has the last rank, not the first.
    All cosines are computed in float64, in blocks. Cost O(mNd).

    With `searching` [n, d], the queries are its rows, and items are compared by their products with
    them, at the length that they have.

    >>> answers = np.array([2, 3])
    >>> pairs = HeldOutPairs("x", np.array([0, 1]), answers, answers, np.arange(2))
    >>> ranks(np.array([[1.0, 0.1], [0.0, 1.0], [1.0, 0.0], [1.0, 0.2]]), pairs).tolist()
    [2, 1]
    """
    searched = torch.from_numpy(directions(vectors) if searching is None else vectors)
    query_vectors = searched if searching is None else torch.from_numpy(searching)
    items = searched[pairs.items]
    positions = np.full(len(vectors), -1)
    positions[pairs.items] = np.arange(len(pairs.items))
    left_out = _left_out_items(pairs, positions)
    rank = np.empty(len(pairs.queries), dtype=np.int64)
    rows_at_once = max(1, BLOCK_BYTES // (8 * len(items)))
    for start in range(0, len(rank), rows_at_once):
        block = slice(start, start + rows_at_once)
        queries = pairs.queries[block]
        answers = torch.from_numpy(positions[pairs.answers[block]])
        cosines = query_vectors[queries] @ items.T
        partner_cosines = cosines[torch.arange(len(queries)), answers]
        for row, query in enumerate(queries.tolist()):
            cosines[row, left_out[query]] = -torch.inf
        rank[block] = 1 + (cosines >= partner_cosines[:, None]).sum(1).numpy()
    return rank


def _left_out_items(pairs: HeldOutPairs, positions: Ids) -> dict[int, list[int]]:
    """Return the items that are not in the way of each query: itself, and its partners."""
    left_out: dict[int, list[int]] = {}
    for query, answer in zip(pairs.queries.tolist(), pairs.answers.tolist(), strict=True):
        if query not in left_out:
            own = int(positions[query])
            left_out[query] = [own] if own >= 0 else []
        left_out[query].append(int(positions[answer]))
    return left_out


def directions(vectors: Floats) -> Floats:
    """Return the vectors [n, d] at length 1; those of length 0 stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0))


def paired_cosines(first: Floats, second: Floats) -> Floats:
    """Return the cosine of each row [n, d] with the same row of the other matrix [n].

    It is 0 where one of the two has length 0.
    """
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(1) / np.where(lengths > 0, lengths, 1.0))


def share(hits: npt.NDArray[np.bool_], groups: Ids) -> tuple[float, Interval]:
    """Return a share of pairs, and the wider of two 95 % intervals: by groups, and Wilson's."""
    value = float(hits.mean())

    def share_of(indices: Ids) -> float:
        return float(hits[indices].mean())

    by_groups = clustered(share_of, len(hits), groups=groups.tolist(), bounds=(0.0, 1.0))
    return value, _hull(wilson(int(hits.sum()), len(hits)), by_groups)


def gain(
    before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_], groups: Ids, *, level: float
) -> tuple[float, Interval]:
    """Return the rise of a share, paired by query, and an interval of this level.

    The interval is the wider of two: Student's, by groups; and the exact one of a sign test
    (Clopper and Pearson) of the queries that changed. Student's is too short where these are few.

    >>> won = np.array([True] * 4 + [False] * 96)
    >>> value, (low, high) = gain(np.zeros(100, bool), won, np.arange(100), level=0.95)
    >>> value, low < 0 < high          # four of four: a coin does that once in eight times
    (0.04, True)
    >>> gain(np.zeros(100, bool), np.arange(100) < 12, np.arange(100), level=0.95)[1][0] > 0
    True
    """
    change = after.astype(np.float64) - before
    value = float(change.mean())
    better = int((change > 0).sum())
    worse = int((change < 0).sum())
    exact = _sign_test_interval(better, worse, len(change), level)
    if better + worse == 0:
        return 0.0, exact

    clusters = np.unique(groups, return_inverse=True)[1]
    deviations = np.bincount(clusters, weights=change - value).astype(np.float64)
    error = StandardError.of_items(deviations, np.bincount(clusters).astype(np.float64))
    if error is None:
        return value, exact
    return value, _hull(exact, error.interval(value, level=level, bounds=(-1.0, 1.0)))


def _sign_test_interval(better: int, worse: int, queries: int, level: float) -> Interval:
    """Return the exact interval of the mean change of queries that gain or lose 1, or stay."""
    tail = (1 - level) / 2
    moved = better + worse
    if moved == 0:
        end = 1 - tail ** (1 / queries)
        return -end, end
    low = betaincinv(better, worse + 1, tail) if better else 0.0
    high = betaincinv(better + 1, worse, 1 - tail) if worse else 1.0
    scale = moved / queries
    return (2 * float(low) - 1) * scale, (2 * float(high) - 1) * scale


def mean_of(
    values: Floats, *, level: float = 0.95, bounds: Bounds = (0.0, 1.0)
) -> tuple[float, Interval | None]:
    """Return the mean over queries and Student's interval of this level; None for fewer than three.

    >>> mean_of(np.array([0.0, 1.0, 0.5, 0.5]))[0]
    0.5
    """
    value = float(values.mean())
    error = StandardError.of_items(values - value, np.ones(len(values)))
    if error is None:
        return value, None
    low, high = error.interval(value, level=level, bounds=bounds)
    return value, (low, high)


def _hull(first: Sequence[float], second: Sequence[float] | None) -> Interval:
    """Return the least interval that holds both."""
    if second is None:
        return first[0], first[1]
    return min(first[0], second[0]), max(first[1], second[1])


def with_interval(
    statistic: Callable[[Ids], float | None],
    count: int,
    bounds: Bounds = (None, None),
    groups: Ids | None = None,
) -> Measured:
    """Return a number of `count` items and its 95 % interval; see `clustered`."""
    listed = None if groups is None else groups.tolist()
    ends = clustered(statistic, count, groups=listed, bounds=bounds)
    return statistic(np.arange(count)), None if ends is None else (ends[0], ends[1])


def neighbours_kept(vectors: Floats, searched: Floats, searching: Floats, queries: Ids) -> Floats:
    """Return for each query the share of its ten nearest vectors by cosine that still are [m].

    The vectors were compressed to `searched` [n, k]; a query is a row of `searching` [n, k], and
    `queries` are the numbers of the rows that search all others. Vectors as near as a neighbour
    count as nearer.

    >>> vectors = np.random.default_rng(0).standard_normal((40, 5))
    >>> neighbours_kept(vectors, vectors, vectors, np.arange(3)).shape
    (3,)
    """
    exact = torch.from_numpy(directions(vectors))
    items = torch.from_numpy(searched)
    count = min(NEIGHBOURS, len(vectors) - 2)
    shares = []
    for query in queries.tolist():
        cosines = exact @ exact[query]
        cosines[query] = -torch.inf
        scores = items @ torch.from_numpy(searching[query])
        scores[query] = -torch.inf
        limit = scores.topk(count + 1).values[-1]
        neighbours = cosines.topk(count).indices
        shares.append(float((scores[neighbours] > limit).double().mean()))
    return np.array(shares)


def hub_skewness(vectors: Floats) -> Measured:
    """Return the skewness of how often a vector is among the ten nearest of the others by angle.

    The lists of neighbours are taken as fixed. None of eleven vectors or fewer. See
    `headscan.measures.sphere.hubness`.
    """
    unit = _directed(vectors)
    if len(unit) <= NEIGHBOURS + 1:
        return None, None
    neighbours = find_neighbours(unit, NEIGHBOURS)[1].numpy().ravel()
    counts = np.bincount(neighbours, minlength=len(unit)).astype(np.float64)

    def skewness(indices: Ids) -> float:
        deviations = counts[indices] - counts[indices].mean()
        scale = float(np.sqrt((deviations**2).mean()))
        return float((deviations**3).mean()) / scale**3 if scale > 0 else 0.0

    return with_interval(skewness, len(counts))


def average_cosine_of(vectors: Floats) -> Measured:
    """Return the mean cosine over all pairs of vectors; None of fewer than two that are not 0."""
    unit = _directed(vectors)

    def cosine(indices: Ids) -> float | None:
        count = len(indices)
        if count < 2:
            return None
        squared_sum = np.square(unit[indices].sum(0)).sum()
        return float((squared_sum - count) / (count * (count - 1)))

    return with_interval(cosine, len(unit), (-1.0, 1.0))


def _directed(vectors: Floats) -> Floats:
    """Return the vectors that are not 0, at length 1."""
    unit = directions(vectors)
    return np.asarray(unit[np.abs(unit).sum(1) > 0])
