"""Rogue dimensions: do a few coordinates alone decide how similar two tokens look?

The mean cosine over pairs is a sum over dimensions, A = Σ_d CC_d with CC_d = E[x_d·y_d/(‖x‖‖y‖)] (Timkey and van
Schijndel 2021, arXiv:2109.04404). Over all ordered pairs of n distinct vectors CC_d = ((Σû_d)² − Σû_d²)/(n(n − 1)):
exact in O(nd), where the published code samples pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headscan.geometry.explained import Cells, number
from headscan.geometry.interval import left_out
from headscan.statistics import Tally

__all__ = ["RogueDimension", "agreement_without", "agreements", "contributions", "rogue", "rogue_dimensions"]


def contributions(
    tokens: float, unit: npt.NDArray[np.float64], square: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64] | None:
    """CC_d of each dimension [d], signed; they add up to the average cosine. None for fewer than two directions.

    >>> u = np.array([[0.6, 0.8], [0.6, -0.8]])
    >>> contributions(2, u.sum(0), (u**2).sum(0)).round(2).tolist()      # 0.36 − 0.64 = their cosine
    [0.36, -0.64]
    """
    return None if tokens < 2 else (unit**2 - square) / (tokens * (tokens - 1))


def rogue(tally: Tally) -> dict[str, float | None]:
    """What the largest one, three and five contributions make of the average cosine, and how many make half of it.

    A share may exceed 1 where other dimensions contribute negatively. Undefined (None) where the average cosine is not
    above 1e-3: shares of nothing.
    """
    found = contributions(float(tally["tokens"]), tally["unit"].cpu().numpy(), tally["square"].cpu().numpy())
    empty: dict[str, float | None] = dict.fromkeys(("rogue_share_1", "rogue_share_3", "rogue_share_5", "rogue_half"))
    if found is None or found.sum() <= 1e-3:
        return empty
    running = np.cumsum(np.sort(found)[::-1]) / found.sum()
    shares = {f"rogue_share_{k}": float(running[min(k, len(running)) - 1]) for k in (1, 3, 5)}
    return empty | shares | {"rogue_half": float(np.argmax(running >= 0.5) + 1)}


@dataclass(frozen=True)
class RogueDimension:
    """A coordinate, its signed contribution CC_d to the average cosine, and its share of it (None: shares of nothing)."""

    dimension: int
    contribution: float
    share: float | None


def rogue_dimensions(tally: Tally, top: int = 5) -> list[RogueDimension]:
    """The dimensions that contribute most to the average cosine, largest first."""
    found = contributions(float(tally["tokens"]), tally["unit"].cpu().numpy(), tally["square"].cpu().numpy())
    if found is None:
        return []
    total = float(found.sum())
    order = np.argsort(-found, kind="stable")[:top]
    return [RogueDimension(int(d), float(found[d]), None if total <= 1e-3 else float(found[d]) / total) for d in order]


def agreement_without(rows: npt.NDArray[np.float64], removed: npt.NDArray[np.int64]) -> float | None:
    """r² between the cosines of all pairs of rows with all dimensions and with the `removed` ones set to zero; [0, 1].

    Low: the similarity of two tokens is decided by the removed dimensions. All n(n − 1)/2 pairs; cost O(n²d), memory
    O(n²). Rows that are zero, before or after, are left out. None for fewer than three rows or where one of the two sets
    of cosines is constant.

    >>> x = np.random.default_rng(0).standard_normal((50, 8)); x[:, 0] *= 100
    >>> bool(agreement_without(x, np.array([0])) < 0.1 < 0.9 < agreement_without(x, np.array([5])))
    True
    """
    none = np.zeros(len(rows), dtype=int)
    return number(agreements(rows, {"": removed}, none, none.astype(bool))["agreement_"])


def agreements(
    rows: npt.NDArray[np.float64],
    removed: Mapping[Any, npt.NDArray[np.int64]],
    blocks: npt.NDArray[np.int64],
    first: npt.NDArray[np.bool_],
) -> Cells:
    """`agreement_without` several sets of dimensions, each as `agreement_KEY`, with its 95 % interval over blocks of
    text, with and without rows at position 0 (`blocks`, `first` [n]). The sums over pairs of groups are taken once."""
    rows = np.asarray(rows, dtype=np.float64)
    found: Cells = {}
    lengths = np.linalg.norm(rows, axis=1)
    for key, dimensions in removed.items():
        cut = rows.copy()
        cut[:, dimensions] = 0.0
        left = np.linalg.norm(cut, axis=1)
        kept = (lengths > 0) & (left > 0)
        groups, inverse = np.unique(2 * np.asarray(blocks)[kept] + np.asarray(first)[kept], return_inverse=True)
        full, part = rows[kept] / lengths[kept, None], cut[kept] / left[kept, None]
        sizes = np.bincount(inverse, minlength=len(groups))
        # torch's products, not numpy's: they obey torch.set_num_threads (see Cloud).
        members = [[torch.from_numpy(x[inverse == g]) for x in (full, part)] for g in range(len(groups))]
        sums = np.zeros((len(groups), len(groups), 6))  # pairs, Σa, Σb, Σa², Σb², Σab; each pair of rows once
        for i, one in enumerate(members):
            for j in range(i, len(members)):
                a, b = (x @ y.T for x, y in zip(one, members[j], strict=True))
                if i == j:
                    rows_at, columns_at = torch.triu_indices(len(a), len(a), 1)
                    a, b = a[rows_at, columns_at], b[rows_at, columns_at]
                a, b = a.flatten(), b.flatten()
                sums[i, j] = [len(a), *(float(x) for x in (a.sum(), b.sum(), a @ a, b @ b, a @ b))]
        for suffix, chosen in (("", groups >= 0), ("_without_first", groups % 2 == 0)):
            owners = np.unique(groups[chosen] // 2)
            values = [_squared(sums, chosen & (groups // 2 != owner)) for owner in owners]
            counts = [int(sizes[chosen & (groups // 2 == owner)].sum()) for owner in owners]
            value = _squared(sums, chosen)
            found[f"agreement_{key}{suffix}"] = value
            found[f"agreement_{key}{suffix}_interval"] = left_out(value, values, counts, bounds=(0.0, 1.0))
    return found


def _squared(sums: npt.NDArray[np.float64], chosen: npt.NDArray[np.bool_]) -> float | None:
    """r² from the sums over the pairs of the chosen groups."""
    pairs, sa, sb, saa, sbb, sab = sums[np.ix_(chosen, chosen)].sum((0, 1))
    if pairs < 3:
        return None
    va, vb, cov = saa / pairs - (sa / pairs) ** 2, sbb / pairs - (sb / pairs) ** 2, sab / pairs - sa * sb / pairs**2
    return None if va < 1e-15 or vb < 1e-15 else float(np.clip(cov**2 / (va * vb), 0.0, 1.0))
