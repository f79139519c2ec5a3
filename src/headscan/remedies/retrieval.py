"""The judge of a remedy: do texts find their partners among all others? By exact neighbours, on
pairs nothing was fitted on.
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


@dataclass(frozen=True)
class HeldOutPairs:
    """Pairs whose texts belong together, by rows of one matrix of vectors."""

    name: str  # of the set
    queries: Ids  # row of each pair's query [m]
    answers: Ids  # row of its partner [m]
    items: Ids  # the rows that are searched, ascending [N]; all answers are among them
    groups: Ids  # pairs of one number err together [m]
    scored: Floats | None = (
        None  # two rows and how alike people call them [s, 3], None where nobody did
    )


def ranks(vectors: Floats, pairs: HeldOutPairs) -> Ids:
    """Of each query the rank of its partner among all items by cosine [m], 1 the first.

    Not in the way are the query itself and its other partners. Items that are as near as the
    partner count as nearer, so a map that throws everything onto one point has the last rank, not
    the first. Exact: all cosines in float64, in blocks. O(mNd).

    >>> answers = np.array([2, 3])
    >>> pairs = HeldOutPairs("x", np.array([0, 1]), answers, answers, np.arange(2))
    >>> ranks(np.array([[1.0, 0.1], [0.0, 1.0], [1.0, 0.0], [1.0, 0.2]]), pairs).tolist()
    [2, 1]
    """
    unit = torch.from_numpy(directions(vectors))
    items = unit[pairs.items]
    positions = np.full(len(vectors), -1)
    positions[pairs.items] = np.arange(len(pairs.items))
    partners: dict[int, list[int]] = {}
    for query, answer in zip(pairs.queries.tolist(), pairs.answers.tolist(), strict=True):
        partners.setdefault(query, [int(positions[query])]).append(int(positions[answer]))
    rank = np.empty(len(pairs.queries), dtype=np.int64)
    block = max(1, BLOCK_BYTES // (8 * len(items)))
    for first in range(0, len(rank), block):
        queries = pairs.queries[first : first + block]
        cosines = unit[queries] @ items.T
        partner_cosines = cosines[
            torch.arange(len(queries)),
            torch.from_numpy(positions[pairs.answers[first : first + block]]),
        ]
        for row, query in enumerate(queries.tolist()):
            cosines[row, [item for item in partners[query] if item >= 0]] = -torch.inf
        rank[first : first + block] = 1 + (cosines >= partner_cosines[:, None]).sum(1).numpy()
    return rank


def directions(vectors: Floats) -> Floats:
    """The vectors [n, d] at length 1; those of length 0 stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0))


def paired_cosines(first: Floats, second: Floats) -> Floats:
    """The cosine of each row [n, d] with the same row of the other matrix [n]; 0 where one of the
    two has length 0.
    """
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(1) / np.where(lengths > 0, lengths, 1.0))


def share(hits: npt.NDArray[np.bool_], groups: Ids) -> tuple[float, Interval]:
    """A share of pairs and its 95 % interval: the wider of that by groups and Wilson's."""
    value = float(hits.mean())
    by_groups = clustered(
        lambda indices: float(hits[indices].mean()),
        len(hits),
        groups=groups.tolist(),
        bounds=(0.0, 1.0),
    )
    return value, _hull(wilson(int(hits.sum()), len(hits)), by_groups)


def gain(
    before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_], groups: Ids, *, level: float
) -> tuple[float, Interval]:
    """By how much a share rose, paired by query, and an interval of this level.

    The wider of two: Student's, by groups; and the exact one of a sign test (Clopper and Pearson)
    of the queries that changed, which Student's falls short of where they are few.

    >>> won = np.array([True] * 4 + [False] * 96)
    >>> value, (low, high) = gain(np.zeros(100, bool), won, np.arange(100), level=0.95)
    >>> value, low < 0 < high          # four of four: a coin does that once in eight times
    (0.04, True)
    >>> gain(np.zeros(100, bool), np.arange(100) < 12, np.arange(100), level=0.95)[1][0] > 0
    True
    """
    change = after.astype(np.float64) - before
    value = float(change.mean())
    many = len(change)
    better = int((change > 0).sum())
    worse = int((change < 0).sum())
    moved = better + worse
    tail = (1 - level) / 2
    if not moved:
        reach = 1 - tail ** (1 / many)
        return 0.0, (-reach, reach)
    low = betaincinv(better, worse + 1, tail) if better else 0.0
    high = betaincinv(better + 1, worse, 1 - tail) if worse else 1.0
    exact = [(2 * float(end) - 1) * moved / many for end in (low, high)]
    clusters = np.unique(groups, return_inverse=True)[1]
    deviations = np.bincount(clusters, weights=change - value).astype(np.float64)
    error = StandardError.of_items(deviations, np.bincount(clusters).astype(np.float64))
    student = (
        None if error is None else list(error.interval(value, level=level, bounds=(-1.0, 1.0)))
    )
    return value, _hull(exact, student)


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
    second = first if second is None else second
    return min(first[0], second[0]), max(first[1], second[1])


Measured = tuple[float | None, Interval | None]


def with_interval(
    statistic: Callable[[Ids], float | None],
    many: int,
    bounds: Bounds = (None, None),
    groups: Ids | None = None,
) -> Measured:
    """A number of so many items and its 95 % interval; see `clustered`."""
    ends = clustered(
        statistic, many, groups=None if groups is None else groups.tolist(), bounds=bounds
    )
    return statistic(np.arange(many)), None if ends is None else (ends[0], ends[1])


def hub_skewness(vectors: Floats) -> Measured:
    """How unevenly vectors are among the ten nearest of the others by angle, lists of neighbours
    taken as they are; None of eleven vectors or fewer. See `headscan.measures.sphere.hubness`.
    """
    unit = directions(vectors)
    unit = unit[np.abs(unit).sum(1) > 0]
    if len(unit) <= NEIGHBOURS + 1:
        return None, None
    counts = np.bincount(
        find_neighbours(unit, NEIGHBOURS)[1].numpy().ravel(), minlength=len(unit)
    ).astype(np.float64)

    def skewness(indices: Ids) -> float:
        apart = counts[indices] - counts[indices].mean()
        deviation = float(np.sqrt((apart**2).mean()))
        return float((apart**3).mean()) / deviation**3 if deviation > 0 else 0.0

    return with_interval(skewness, len(counts))


def average_cosine_of(vectors: Floats) -> Measured:
    """The mean cosine over all pairs of vectors; None of fewer than two that are not zero."""
    unit = directions(vectors)
    unit = unit[np.abs(unit).sum(1) > 0]

    def cosine(indices: Ids) -> float | None:
        many = len(indices)
        return (
            float((np.square(unit[indices].sum(0)).sum() - many) / (many * (many - 1)))
            if many > 1
            else None
        )

    return with_interval(cosine, len(unit), (-1.0, 1.0))


# ---- How far two versions of a column of embeddings have moved apart, row by row.


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One way in which two versions differ: a number with its 95 % interval by rows, and what it
    says.
    """

    quantity: str
    value: float | None
    interval: Interval | None
    sentence: str


def drift(old: Floats, new: Floats, groups: npt.NDArray[np.int64] | None = None) -> list[Drift]:
    """What changed between two versions [n, d] and [n, d'] of the same rows; rows of one group err
    together.

    Two versions that are equal have `same_direction`, `neighbours_kept` and `found_again` 1 and
    `mean_moved` 0. Cost O(n²d).

    >>> x = np.random.default_rng(0).standard_normal((50, 4))
    >>> {one.quantity: round(one.value, 6) for one in drift(x, 2 * x)}["neighbours_kept"]
    1.0
    """
    many = len(old)
    same_width = old.shape[1] == new.shape[1]
    apart = new - old if same_width else None
    rows: list[Drift] = []

    def add(
        quantity: str, statistic: Callable[[Ids], float | None] | None, bounds: Bounds, text: str
    ) -> None:
        value, interval = (
            (None, None) if statistic is None else with_interval(statistic, many, bounds, groups)
        )
        rows.append(Drift(quantity=quantity, value=value, interval=interval, sentence=text))

    def mean_of(values: Floats) -> Callable[[Ids], float]:
        return lambda indices: float(values[indices].mean())

    def moved(indices: Ids) -> float | None:
        assert apart is not None
        spread = float(np.sqrt(np.square(old[indices] - old[indices].mean(0)).sum(1).mean()))
        return float(np.linalg.norm(apart[indices].mean(0))) / spread if spread > 0 else None

    same = mean_of(paired_cosines(old, new)) if same_width else None
    add("same_direction", same, (-1.0, 1.0), "Mean cosine of a row's two vectors.")
    text = "How far the mean moved, in the first version's rms distance from its mean."
    add("mean_moved", moved if same_width else None, (0.0, None), text)
    k = min(NEIGHBOURS, many - 2)
    if k >= 1:
        lists = [find_neighbours(directions(vectors), k)[1].numpy() for vectors in (old, new)]
        overlaps = np.array([len(np.intersect1d(a, b)) / k for a, b in zip(*lists, strict=True)])
        add(
            "neighbours_kept",
            mean_of(overlaps),
            (0.0, 1.0),
            f"Share of a row's {k} nearest rows that still are.",
        )
    again = None
    if same_width:
        numbers = np.arange(many)
        versions = HeldOutPairs("versions", numbers, many + numbers, many + numbers, numbers)
        again = mean_of((ranks(np.concatenate([new, old]), versions) == 1).astype(np.float64))
    add(
        "found_again",
        again,
        (0.0, 1.0),
        "Share of new vectors that find their own row first in the old column.",
    )
    return rows
