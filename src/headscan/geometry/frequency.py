"""What frequency has to do with it: rows of an embedding table by how often their token occurs in the text."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from headscan.geometry.explained import Cells
from headscan.geometry.interval import left_out
from headscan.geometry.partition import partition_isotropy

__all__ = ["direction_correlations", "frequency_bins"]


def frequency_bins(
    table: npt.ArrayLike, counts: npt.ArrayLike, *, mean_state: npt.ArrayLike | None = None, per_decade: int = 1
) -> list[Cells]:
    """Rows of a table [V, d] in bins of equal width in log₁₀ count (and a bin for tokens that do not occur).

    For each bin, from rare to frequent: `from` and `to` (counts, both inclusive), `tokens` (types), `share` of the text,
    and of its rows
        mean_norm: mean length;
        drift: ‖mean‖/mean length, in [0, 1]: do they share an offset;
        cosine_to_state: mean cosine to `mean_state` [d], the mean hidden state they are multiplied with; negative for
            tokens that are pushed away (None without one);
        average_cosine: over pairs inside the bin, exact (None for one row);
        log_partition_range: of the bin's own rows, in nats, ≤ 0 (see `partition_isotropy`).
    The first four of these have 95 % intervals (NAME_interval) that take the bin's types as the sample: mean ± 1.96
    standard errors, and for drift and average cosine those of 16 groups of rows left out. Rows of norm zero count in
    norms only. Cost O(Vd²).

    >>> bins = frequency_bins([[1.0, 0.0], [0.0, 2.0], [0.0, 4.0]], [100, 0, 0], mean_state=[1.0, 0.0])
    >>> [(b["from"], b["to"], b["tokens"], b["mean_norm"], b["cosine_to_state"]) for b in bins]
    [(0, 0, 2, 3.0, 0.0), (100, 999, 1, 1.0, 1.0)]
    """
    w, c = np.asarray(table, dtype=np.float64), np.asarray(counts, dtype=np.int64).ravel()
    c = np.pad(c, (0, max(0, len(w) - len(c))))[: len(w)]
    edges = [0, *np.unique(np.ceil(10 ** (np.arange(0, 19 * per_decade) / per_decade)).astype(np.int64)).tolist()]
    axis = None if mean_state is None else np.asarray(mean_state, dtype=np.float64)
    if axis is not None:
        length = float(np.linalg.norm(axis))
        axis = axis / length if length > 0 else None
    lengths = np.linalg.norm(w, axis=1)
    found: list[Cells] = []
    for low, high in pairwise(edges):
        chosen = (c >= low) & (c < high)
        if not chosen.any():
            continue
        rows, norms = w[chosen], lengths[chosen]
        unit = rows[norms > 0] / norms[norms > 0, None]
        n, total = len(unit), unit.sum(0)
        cosines = unit @ axis if axis is not None else np.zeros(0)
        found.append(
            {
                "mean_norm_interval": _over_rows(norms, 0.0, None),
                "cosine_to_state_interval": _over_rows(cosines, -1.0, 1.0),
                **_over_groups(rows, norms),
                "from": int(low),
                "to": int(high - 1),
                "tokens": int(chosen.sum()),
                "share": float(c[chosen].sum() / max(1, c.sum())),
                "mean_norm": float(norms.mean()),
                "drift": float(np.linalg.norm(rows.mean(0)) / norms.mean()) if norms.mean() > 0 else None,
                "cosine_to_state": float(cosines.mean()) if len(cosines) else None,
                "average_cosine": float((total @ total - n) / (n * (n - 1))) if n > 1 else None,
                "log_partition_range": partition_isotropy(rows)["log_partition_range"],
            }
        )
    return found


def _over_rows(values: npt.NDArray[np.float64], low: float | None, high: float | None) -> list[float] | None:
    """Mean ± 1.96 standard errors of at least ten values, cut to the bounds."""
    if len(values) < 10:
        return None
    mean, reach = float(values.mean()), 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5
    return [
        mean - reach if low is None else max(low, mean - reach),
        mean + reach if high is None else min(high, mean + reach),
    ]


def _over_groups(
    rows: npt.NDArray[np.float64], norms: npt.NDArray[np.float64], groups: int = 16
) -> dict[str, list[float] | None]:
    """Intervals of drift and average cosine over groups of rows (every sixteenth row is in one)."""
    if len(rows) < 4 * groups:
        return {"drift_interval": None, "average_cosine_interval": None}
    weights = np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms > 0)[:, None]
    starts = range(groups)
    sums = np.stack([rows[g::groups].sum(0) for g in starts])
    units = np.stack([(rows[g::groups] * weights[g::groups]).sum(0) for g in starts])
    lengths, counts = (np.array([x[g::groups].sum() for g in starts]) for x in (norms, (norms > 0).astype(float)))

    def drift(chosen: npt.NDArray[np.bool_]) -> float | None:
        total = float(lengths[chosen].sum())
        return float(np.linalg.norm(sums[chosen].sum(0))) / total if total > 0 else None

    def cosine(chosen: npt.NDArray[np.bool_]) -> float | None:
        n, total = float(counts[chosen].sum()), units[chosen].sum(0)
        return float(total @ total - n) / (n * (n - 1)) if n > 1 else None

    every, found = np.arange(groups), {}
    for name, function, bounds in (("drift", drift, (0.0, 1.0)), ("average_cosine", cosine, (-1.0, 1.0))):
        values = [function(every != g) for g in every]
        found[f"{name}_interval"] = left_out(function(every >= 0), values, counts, running=False, bounds=bounds)
    return found


def direction_correlations(table: npt.ArrayLike, counts: npt.ArrayLike, *, top: int = 50) -> list[Cells]:
    """Pearson's r between the coordinates of a table's rows along each right singular direction and log count.

    Over the tokens that occur (count > 0); directions of the whole uncentred table [V, d], strongest first. Rows of the
    answer: `direction` (from 1), `sigma`, `share` of the energy, `r` in [−1, 1] with the sign that makes the
    direction's mean coordinate positive, and `p`, the two-sided p-value of r = 0 for independent normal pairs, not
    corrected for the number of directions; `r_interval` is Fisher's, tanh(artanh r ± 1.96/√(n − 3)). Empty for fewer
    than four such tokens. Cost O(Vd² + d³).

    >>> rng = np.random.default_rng(0); counts = np.arange(1, 101)
    >>> table = np.outer(np.log(counts), [3.0, 0.0]) + 0.1 * rng.standard_normal((100, 2))
    >>> direction_correlations(table, counts)[0]["r"] > 0.99
    True
    """
    w, c = np.asarray(table, dtype=np.float64), np.asarray(counts, dtype=np.float64).ravel()
    c = np.pad(c, (0, max(0, len(w) - len(c))))[: len(w)]
    seen = c > 0
    n = int(seen.sum())
    if n < 4:
        return []
    values, vectors = np.linalg.eigh(w.T @ w)
    values, vectors = np.clip(values[::-1], 0, None)[:top], vectors[:, ::-1][:, :top]
    coordinates, logs = w[seen] @ vectors, np.log(c[seen])
    x, y = coordinates - coordinates.mean(0), logs - logs.mean()
    scale = np.sqrt((x**2).sum(0) * (y @ y))
    r = np.divide(y @ x, scale, out=np.zeros(len(scale)), where=scale > 1e-12) * np.where(
        coordinates.mean(0) < 0, -1, 1
    )
    energy = float((w**2).sum())
    # r²'s law under independence is Beta(1/2, n/2 − 1), so that p = 1 − I_{r²}(1/2, n/2 − 1).
    p = betainc(n / 2 - 1, 0.5, np.clip(1 - r**2, 0, 1))
    return [
        {
            "direction": k + 1,
            "sigma": float(values[k] ** 0.5),
            "share": float(values[k] / energy) if energy else 0.0,
            "r": float(np.clip(r[k], -1, 1)),
            "r_interval": _fisher(float(r[k]), n),
            "p": float(p[k]),
        }
        for k in range(len(values))
    ]


def _fisher(r: float, n: int) -> list[float] | None:
    """The 95 % interval of a correlation over n pairs by Fisher's transformation; None for |r| = 1."""
    if n < 4 or abs(r) >= 1:
        return None
    return [float(np.tanh(np.arctanh(r) + sign * 1.96 / (n - 3) ** 0.5)) for sign in (-1, 1)]
