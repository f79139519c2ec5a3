"""How far two versions of a column of embeddings have moved apart, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headscan.geometry.interval import of_items
from headscan.geometry.neighbours import neighbours
from headscan.remedies.retrieval import HeldOutPairs, average_cosine_of, directions, paired_cosines, ranks
from headscan.run import Interval

__all__ = ["Drift", "drift"]

Floats = npt.NDArray[np.float64]
K = 10


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One way in which two versions differ: a number with its 95 % interval by rows, and what it says."""

    quantity: str
    value: float | None
    interval: Interval | None
    sentence: str


def drift(old: Floats, new: Floats, groups: npt.NDArray[np.int64] | None = None) -> list[Drift]:
    """What changed between two versions [n, d] and [n, d'] of the same rows; rows of one group err together.

    Two versions that are equal have `same_direction`, `neighbours_kept` and `found_again` 1 and `mean_moved` 0. Cost O(n²d).

    >>> x = np.random.default_rng(0).standard_normal((50, 4))
    >>> {one.quantity: round(one.value, 6) for one in drift(x, 2 * x)}["neighbours_kept"]
    1.0
    """
    many = len(old)
    names = None if groups is None else groups.tolist()
    found: list[Drift] = []

    def of(quantity: str, values: npt.NDArray[np.float64] | None, low: float, sentence: str) -> None:
        interval = (
            None
            if values is None
            else of_items(lambda taken: float(values[taken].mean()), many, groups=names, bounds=(low, 1.0))
        )
        value = None if values is None else float(values.mean())
        found.append(_made(quantity, value, interval, sentence))

    same = paired_cosines(old, new) if old.shape[1] == new.shape[1] else None
    of("same_direction", same, -1.0, "Mean cosine of a row's two vectors.")
    found.append(_mean_moved(old, new, names))
    k = min(K, many - 2)
    if k >= 1:
        lists = [neighbours(directions(rows), k)[1].numpy() for rows in (old, new)]
        kept = np.array([len(np.intersect1d(a, b)) / k for a, b in zip(*lists, strict=True)])
        of("neighbours_kept", kept, 0.0, f"Share of a row's {k} nearest rows that still are.")
    again = None
    if same is not None:
        own = np.arange(many)
        whole = HeldOutPairs("versions", own, many + own, many + own, own)
        again = (ranks(np.concatenate([new, old]), whole) == 1).astype(np.float64)
    of("found_again", again, 0.0, "Share of new vectors that find their own row first in the old column.")
    for quantity, rows, which in (("average_cosine_old", old, "first"), ("average_cosine_new", new, "second")):
        value, interval = average_cosine_of(rows)
        found.append(
            Drift(quantity=quantity, value=value, interval=interval, sentence=f"Mean cosine of the {which} version.")
        )
    return found


def _made(quantity: str, value: float | None, interval: list[float] | None, sentence: str) -> Drift:
    ends = None if interval is None else (interval[0], interval[1])
    return Drift(quantity=quantity, value=value, interval=ends, sentence=sentence)


def _mean_moved(old: Floats, new: Floats, groups: list[int] | None) -> Drift:
    """‖μ' − μ‖ in units of the first version's rms distance from its mean."""
    sentence = "How far the mean moved, in the first version's rms distance from its mean."
    if old.shape[1] != new.shape[1]:
        return _made("mean_moved", None, None, sentence)
    apart = new - old

    def moved(taken: npt.NDArray[np.int64]) -> float | None:
        spread = float(np.sqrt(np.square(old[taken] - old[taken].mean(0)).sum(1).mean()))
        return float(np.linalg.norm(apart[taken].mean(0))) / spread if spread > 0 else None

    function: Callable[[npt.NDArray[np.int64]], float | None] = moved
    return _made(
        "mean_moved",
        moved(np.arange(len(old))),
        of_items(function, len(old), groups=groups, bounds=(0.0, None)),
        sentence,
    )
