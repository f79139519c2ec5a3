"""Rogue dimensions: do a few coordinates alone decide how similar two tokens look?

The mean cosine over pairs is a sum over dimensions, A = Σ_d CC_d with CC_d = E[x_d·y_d/(‖x‖‖y‖)] (Timkey and van
Schijndel 2021, arXiv:2109.04404). Over all ordered pairs of n distinct vectors CC_d = ((Σû_d)² − Σû_d²)/(n(n − 1)):
exact in O(nd), where the published code samples pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headscan.statistics import Tally

__all__ = ["agreement_without", "contributions", "rogue", "rogue_dimensions"]


def contributions(tokens: float, unit: np.ndarray, square: np.ndarray) -> np.ndarray | None:
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


def rogue_dimensions(tally: Tally, top: int = 5) -> list[dict[str, Any]]:
    """The dimensions that contribute most to the average cosine, with their contribution and share, largest first."""
    found = contributions(float(tally["tokens"]), tally["unit"].cpu().numpy(), tally["square"].cpu().numpy())
    if found is None:
        return []
    total = float(found.sum())
    return [
        {
            "dimension": int(d),
            "contribution": float(found[d]),
            "share": float(found[d]) / total if total > 1e-3 else None,
        }
        for d in np.argsort(-found, kind="stable")[:top]
    ]


def agreement_without(rows: np.ndarray, removed: np.ndarray, *, block: int = 1024) -> float | None:
    """r² between the cosines of all pairs of rows with all dimensions and with the `removed` ones set to zero; [0, 1].

    Low: the similarity of two tokens is decided by the removed dimensions. All n(n − 1)/2 pairs, in blocks; cost
    O(n²d), memory O(block·n). Rows that are zero, before or after, are left out. None for fewer than three rows or where
    one of the two sets of cosines is constant.

    >>> x = np.random.default_rng(0).standard_normal((50, 8)); x[:, 0] *= 100
    >>> bool(agreement_without(x, np.array([0])) < 0.1 < 0.9 < agreement_without(x, np.array([5])))
    True
    """
    rows = np.asarray(rows, dtype=np.float64)
    cut = rows.copy()
    cut[:, removed] = 0.0
    lengths = np.linalg.norm(rows, axis=1), np.linalg.norm(cut, axis=1)
    kept = (lengths[0] > 0) & (lengths[1] > 0)
    full, part = (x[kept] / length[kept, None] for x, length in zip((rows, cut), lengths, strict=True))
    n = len(full)
    if n < 3:
        return None
    sums = np.zeros(6)  # pairs, Σa, Σb, Σa², Σb², Σab over the upper triangle
    for start in range(0, n, block):
        upper = np.arange(n)[None, :] > np.arange(start, min(start + block, n))[:, None]
        a, b = (full[start : start + block] @ full.T)[upper], (part[start : start + block] @ part.T)[upper]
        sums += [len(a), a.sum(), b.sum(), a @ a, b @ b, a @ b]
    pairs, sa, sb, saa, sbb, sab = sums
    va, vb, cov = saa / pairs - (sa / pairs) ** 2, sbb / pairs - (sb / pairs) ** 2, sab / pairs - sa * sb / pairs**2
    return None if va < 1e-15 or vb < 1e-15 else float(np.clip(cov**2 / (va * vb), 0.0, 1.0))
