"""The drift between two versions of a column of embeddings, row by row."""

from dataclasses import dataclass

import numpy as np

from headscan.measures.dimension import find_neighbours
from headscan.measures.sphere import NEIGHBOURS
from headscan.remedies.retrieval import (
    HeldOutPairs,
    Ids,
    directions,
    paired_cosines,
    ranks,
    with_interval,
)
from headscan.run import Interval
from headscan.statistics.uncertainty import Bounds, Floats

SHARE: Bounds = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One difference of two versions: a number with its 95 % interval by rows, and its meaning."""

    quantity: str
    value: float | None
    interval: Interval | None
    sentence: str


def drift(old: Floats, new: Floats, groups: Ids | None = None) -> list[Drift]:
    """Return the differences of two versions [n, d] and [n, d'] of the same rows.

    Rows of one group err together. Two versions that are equal have `same_direction`,
    `neighbours_kept` and `found_again` 1 and `mean_moved` 0. Numbers that need equal widths are
    None where d' is not d. Cost O(n²d).

    >>> x = np.random.default_rng(0).standard_normal((50, 4))
    >>> {row.quantity: round(row.value, 6) for row in drift(x, 2 * x)}["neighbours_kept"]
    1.0
    """
    same_width = old.shape[1] == new.shape[1]
    neighbours = min(NEIGHBOURS, len(old) - 2)
    rows = [
        _mean_row(
            "same_direction",
            paired_cosines(old, new) if same_width else None,
            (-1.0, 1.0),
            groups,
            "Mean cosine of a row's two vectors.",
        ),
        _mean_moved(old, new, groups),
    ]
    if neighbours >= 1:
        sentence = f"Share of a row's {neighbours} nearest rows that still are."
        kept = _neighbours_kept(old, new, neighbours)
        rows.append(_mean_row("neighbours_kept", kept, SHARE, groups, sentence))
    rows.append(
        _mean_row(
            "found_again",
            _found_again(old, new) if same_width else None,
            SHARE,
            groups,
            "Share of new vectors that find their own row first in the old column.",
        )
    )
    return rows


def _mean_row(
    quantity: str, values: Floats | None, bounds: Bounds, groups: Ids | None, sentence: str
) -> Drift:
    """Return the mean of a number over rows [n]; without a value where `values` is None."""
    if values is None:
        return Drift(quantity=quantity, value=None, interval=None, sentence=sentence)

    def mean(indices: Ids) -> float:
        return float(values[indices].mean())

    value, interval = with_interval(mean, len(values), bounds, groups)
    return Drift(quantity=quantity, value=value, interval=interval, sentence=sentence)


def _mean_moved(old: Floats, new: Floats, groups: Ids | None) -> Drift:
    """Return how far the mean moved, in the first version's rms distance from its mean."""
    sentence = "How far the mean moved, in the first version's rms distance from its mean."
    if old.shape[1] != new.shape[1]:
        return Drift(quantity="mean_moved", value=None, interval=None, sentence=sentence)
    differences = new - old

    def moved(indices: Ids) -> float | None:
        centred = old[indices] - old[indices].mean(0)
        spread = float(np.sqrt(np.square(centred).sum(1).mean()))
        if spread == 0:
            return None
        return float(np.linalg.norm(differences[indices].mean(0))) / spread

    value, interval = with_interval(moved, len(old), (0.0, None), groups)
    return Drift(quantity="mean_moved", value=value, interval=interval, sentence=sentence)


def _neighbours_kept(old: Floats, new: Floats, count: int) -> Floats:
    """Return the share of each row's nearest rows by angle that are nearest in both versions."""
    first, second = (
        find_neighbours(directions(vectors), count)[1].numpy() for vectors in (old, new)
    )
    pairs = zip(first, second, strict=True)
    return np.array([len(np.intersect1d(before, after)) / count for before, after in pairs])


def _found_again(old: Floats, new: Floats) -> Floats:
    """Return 1 for each new vector whose own row is the nearest of the old column, else 0."""
    count = len(old)
    numbers = np.arange(count)
    pairs = HeldOutPairs("versions", numbers, count + numbers, count + numbers, numbers)
    found = ranks(np.concatenate([new, old]), pairs) == 1
    return np.asarray(found, dtype=np.float64)
