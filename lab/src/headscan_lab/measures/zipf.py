"""Zipf's law of a text's tokens: rank and frequency."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup
from headscan.statistics.uncertainty import Cells, Floats, jackknife

SHORT = "fewer than three types, or fewer than 100 tokens"
FITTED = ("zipf_exponent", "mandelbrot_exponent", "mandelbrot_shift", "zipf_distance")


def zipf_mandelbrot(counts: npt.ArrayLike) -> dict[str, float | None]:
    """Fit p(r) ∝ (r + b)^−a to counts by rank, by maximum likelihood; also pure Zipf (b = 0).

    Counts have any shape; zeros are left out. The fit is over the ranks 1..R that occur, as a
    multinomial: the log-likelihood is −a Σ c_r log(r + b) − N log Σ_r (r + b)^−a. Least squares on
    the log-log plot, the usual way, weighs the many rare ranks most and the few that make up the
    text least.

    Returns:
        `zipf_exponent` (pure Zipf's a), `mandelbrot_exponent` a ≤ 20, `mandelbrot_shift` b ≥ 0, and
        `zipf_distance`, the Kullback-Leibler divergence of the text from the Zipf-Mandelbrot fit in
        nats a token (0: perfect). All are None for fewer than three types. Cost O(R) an iteration.

    >>> fit = zipf_mandelbrot(np.round(1e6 / (np.arange(1, 2000) + 2.7) ** 1.1))
    >>> round(fit["mandelbrot_exponent"], 2), round(fit["mandelbrot_shift"], 1)
    (1.1, 2.7)
    """
    shares = _shares_by_rank(np.asarray(counts, dtype=np.float64).ravel())
    return _fits(shares, [(1.0, 0.1), (1.2, 2.0), (1.5, 30.0)])


def _fits(shares: Floats, starts: Sequence[tuple[float, float]]) -> dict[str, float | None]:
    """Return the fits of shares by rank: the best one of those from some starts (a, b)."""
    if len(shares) < 3:
        return dict.fromkeys(FITTED)
    pure = _minimum(shares, starts[0], shifted=False)
    shifted = [_minimum(shares, start, shifted=True) for start in starts]
    best = min(shifted, key=lambda fit: fit.fun)
    entropy = -float(shares @ np.log(shares))
    return {
        "zipf_exponent": float(pure.x[0]),
        "mandelbrot_exponent": float(best.x[0]),
        "mandelbrot_shift": float(np.expm1(best.x[1])),
        "zipf_distance": max(0.0, float(best.fun) - entropy),
    }


def _minimum(shares: Floats, start: tuple[float, float], *, shifted: bool) -> Any:
    """Return scipy's minimum of the loss over (a, log(1 + b)); b is 0 unless `shifted`."""
    ranks = np.arange(1.0, len(shares) + 1)

    def loss(point: Floats) -> tuple[float, Floats]:
        """Return a E_s[L] + log Σ exp(-aL), L = log(r + b), and its gradient."""
        a, log_shift = point
        shift = np.expm1(log_shift)
        logs = np.log(ranks + shift)
        weights = np.exp(-a * (logs - logs[0]))
        difference = shares - weights / weights.sum()
        value = a * (shares @ logs - logs[0]) + np.log(weights.sum())
        by_shift = a * (difference @ (1 / (ranks + shift)))
        return float(value), np.array([difference @ logs, by_shift * (1 + shift)])

    bounds = [(1e-9, 20.0), (0.0, 25.0 if shifted else 0.0)]
    point = np.array([start[0], np.log1p(start[1]) if shifted else 0.0])
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 2000, "maxls": 50}
    return minimize(loss, point, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def _shares_by_rank(counts: npt.NDArray[Any]) -> Floats:
    """Return the shares of the counts above zero, the largest first."""
    sorted_counts = np.sort(counts[counts > 0].astype(np.float64))[::-1]
    return sorted_counts / sorted_counts.sum() if len(sorted_counts) else sorted_counts


def zipf_intervals(parts: Sequence[npt.NDArray[np.int64]]) -> dict[str, list[float] | None]:
    """Return 95 % intervals of the fits of `zipf_mandelbrot`, NAME_interval, from blocks of text.

    Each block is left out in turn. Refits start at the whole text's answer.

    Args:
        parts: the counts of each block.
    """
    total = np.sum(parts, axis=0) if len(parts) else np.zeros(0)
    fit = zipf_mandelbrot(total)
    exponent = fit["mandelbrot_exponent"]
    shift = fit["mandelbrot_shift"]
    if exponent is None or shift is None or len(parts) < 3:
        return {f"{name}_interval": None for name in FITTED}
    refits = [_fits(_shares_by_rank(total - part), [(exponent, shift)]) for part in parts]
    sizes = [float(part.sum()) for part in parts]
    intervals = {}
    for name in FITTED:
        values = [refit[name] for refit in refits]
        intervals[f"{name}_interval"] = jackknife(fit[name], values, sizes, bounds=(0.0, None))
    return intervals


class ZipfProbe(Probe):
    """Zipf's law of the text's tokens."""

    needs = "tokens"
    words = ProbeWords(
        name="zipf",
        title="Zipf's law of the text",
        group="zipf",
        sentence="How uneven is the text, in this tokenizer's tokens? Fits of Zipf-Mandelbrot to "
        "rank and frequency.",
        literature="Mandelbrot 1953",
        position="The text's counts know no position.",
        docs="zipf.md",
        function="headscan_lab.measures.zipf.zipf_mandelbrot",
        order=7,
        fields={
            "tokens": Field(
                "tokens", "Tokens counted.", range=(0, None), unit="tokens", interval="a count"
            ),
            "types": Field(
                "types",
                "Different tokens that occur.",
                range=(0, None),
                unit="types",
                interval="a count",
            ),
            "zipf_exponent": Field(
                "Zipf exponent",
                "a of p(r) ∝ r^−a, by maximum likelihood.",
                "p(r) ∝ r^−a",
                range=(0, None),
                undefined=SHORT,
            ),
            "mandelbrot_exponent": Field(
                "Mandelbrot exponent",
                "a with a shift of the ranks.",
                "p(r) ∝ (r + b)^−a",
                range=(0, None),
                undefined=SHORT,
            ),
            "mandelbrot_shift": Field(
                "Mandelbrot shift", "That shift, b.", range=(0, None), unit="ranks", undefined=SHORT
            ),
            "zipf_distance": Field(
                "distance from the fit",
                "Kullback-Leibler divergence of the text from the Zipf-Mandelbrot fit.",
                range=(0, None),
                unit="nats a token",
                undefined=SHORT,
            ),
        },
    )

    def rows(self, _setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        counts = data.counts
        row: Cells = {
            "site": "text",
            "tokens": int(counts.sum()),
            "types": int((counts > 0).sum()),
            **zipf_mandelbrot(counts),
        }
        return [row | zipf_intervals(data.count_parts)]
