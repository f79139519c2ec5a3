"""Zipf's law of a text's tokens: rank and frequency, growth of the vocabulary, and what next-token prediction makes of it."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln

__all__ = ["heaps", "predict_table", "vocabulary_growth", "zipf_mandelbrot"]


def zipf_mandelbrot(counts) -> dict[str, float | None]:
    """Maximum-likelihood fit of p(r) ∝ (r + b)^−a to counts by rank; also of pure Zipf (b = 0).

    Counts of any shape; zeros are left out. Over the ranks 1..R that occur, as a multinomial: the log-likelihood is
    −a Σ c_r log(r + b) − N log Σ_r (r + b)^−a. Least squares on the log-log plot, the usual way, weighs the many rare
    ranks most and the few that make up the text least.

    Keys: `zipf_exponent` (pure Zipf's a), `mandelbrot_exponent` a, `mandelbrot_shift` b ≥ 0, and `zipf_distance`, the
    Kullback-Leibler divergence of the text from the Zipf-Mandelbrot fit in nats a token (0: perfect). None for fewer than
    three types. Cost O(R) an iteration.

    >>> found = zipf_mandelbrot(np.round(1e6 / (np.arange(1, 2000) + 2.7) ** 1.1))
    >>> round(found["mandelbrot_exponent"], 2), round(found["mandelbrot_shift"], 1)
    (1.1, 2.7)
    """
    c = np.sort(np.asarray(counts, dtype=np.float64).ravel())[::-1]
    c = c[c > 0]
    names = ("zipf_exponent", "mandelbrot_exponent", "mandelbrot_shift", "zipf_distance")
    if len(c) < 3:
        return dict.fromkeys(names)
    ranks, share = np.arange(1, len(c) + 1), c / c.sum()

    def loss(a: float, b: float) -> float:
        logs = np.log(ranks + b)
        return float(a * (share @ logs) + np.log(np.exp(-a * (logs - logs[0])).sum()) - a * logs[0])

    pure = minimize_scalar(lambda a: loss(a, 0.0), bounds=(0.0, 10.0), method="bounded").x
    best = min(
        (
            minimize(lambda v: loss(np.exp(v[0]), np.expm1(v[1]) if v[1] > 0 else 0.0), start, method="Nelder-Mead",
                     options={"xatol": 1e-8, "fatol": 1e-13, "maxiter": 4000})
            for start in ([np.log(pure + 1e-3), 0.1], [np.log(pure + 0.2), 2.0])
        ),
        key=lambda found: found.fun,
    )  # fmt: skip
    entropy = float(-(share * np.log(share)).sum())
    return {
        "zipf_exponent": float(pure),
        "mandelbrot_exponent": float(np.exp(best.x[0])),
        "mandelbrot_shift": float(np.expm1(max(best.x[1], 0.0))),
        "zipf_distance": max(0.0, float(best.fun) - entropy),
    }


def vocabulary_growth(counts, sizes) -> np.ndarray:
    """Expected number of types among m tokens drawn from the text without replacement, for each m of `sizes`; exact.

    E V(m) = Σ_w 1 − C(N − c_w, m)/C(N, m): rarefaction (Hurlbert 1971). It needs the counts only, so it merges and does
    not depend on the order of the text; in the text itself types come in bursts, so its first m tokens hold fewer.

    >>> vocabulary_growth([2, 1], [0, 1, 3]).round(6).tolist()
    [0.0, 1.0, 2.0]
    """
    c = np.asarray(counts, dtype=np.float64).ravel()
    values, repeats = np.unique(c[c > 0], return_counts=True)
    total = float(values @ repeats)
    m = np.asarray(sizes, dtype=np.float64)[:, None]
    rest = total - values[None, :]
    with np.errstate(invalid="ignore"):
        logs = gammaln(rest + 1) - gammaln(np.maximum(rest - m, 0) + 1) - gammaln(total + 1) + gammaln(total - m + 1)
    missed = np.where(m <= rest, np.exp(logs), 0.0)
    return ((1 - missed) * repeats).sum(1)


def heaps(counts, *, points: int = 32) -> dict[str, float | None]:
    """Heaps' law V(m) = K·m^β fitted by least squares on logs to the expected growth, from a hundredth of the text on.

    Keys `heaps_constant` K and `heaps_exponent` β in (0, 1]. None for fewer than 100 tokens.

    >>> found = heaps(np.ones(1000))      # every token is new
    >>> round(found["heaps_exponent"], 6)
    1.0
    """
    total = float(np.sum(counts))
    if total < 100:
        return {"heaps_constant": None, "heaps_exponent": None}
    sizes = np.unique(np.geomspace(total / 100, total, points).round())
    slope, intercept = np.polyfit(np.log(sizes), np.log(vocabulary_growth(counts, sizes)), 1)
    return {"heaps_constant": float(np.exp(intercept)), "heaps_exponent": float(slope)}


def predict_table(counts, *, top: int = 5, rare: int = 3) -> list[dict[str, float | int]]:
    """How often each token is the one to predict, against how often it is one *not* to predict.

    Cross-entropy pulls a token's output vector towards the hidden state where it comes next, a share `predict` of all
    positions, and pushes it away at all others, `not_predict` = 1 − predict: 5 %, 3 %, 2 % ... 0 % against 95 % ... 100 %.
    Rows: the `top` most frequent ids, the middle of the list of types, the `rare` least frequent ones that occur, and one
    that never occurs, where there is one; with `rank` (1 = most frequent; of an id that does not occur, types + 1).

    >>> [(row["id"], row["predict"], row["not_predict"]) for row in predict_table([0, 3, 1], top=1, rare=1)]
    [(1, 0.75, 0.25), (2, 0.25, 0.75), (0, 0.0, 1.0)]
    """
    c = np.asarray(counts, dtype=np.int64).ravel()
    order = np.argsort(-c, kind="stable")
    types, total = int((c > 0).sum()), int(c.sum())
    if not total:
        return []
    wanted = [*range(min(top, types)), types // 2, *range(max(0, types - rare), types)]
    chosen = [k for k in dict.fromkeys(wanted) if k < types]
    chosen += [types] if types < len(c) else []
    return [
        {
            "rank": k + 1,
            "id": int(order[k]),
            "count": int(c[order[k]]),
            "predict": float(c[order[k]] / total),
            "not_predict": float(1 - c[order[k]] / total),
        }
        for k in sorted(chosen)
    ]
