"""Zipf's law of a text's tokens: rank and frequency."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize, minimize_scalar

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
        `zipf_exponent` (pure Zipf's a), `mandelbrot_exponent` a, `mandelbrot_shift` b ≥ 0, and
        `zipf_distance`, the Kullback-Leibler divergence of the text from the Zipf-Mandelbrot fit in
        nats a token (0: perfect). All are None for fewer than three types. Cost O(R) an iteration.

    >>> fit = zipf_mandelbrot(np.round(1e6 / (np.arange(1, 2000) + 2.7) ** 1.1))
    >>> round(fit["mandelbrot_exponent"], 2), round(fit["mandelbrot_shift"], 1)
    (1.1, 2.7)
    """
    shares = _shares_by_rank(np.asarray(counts, dtype=np.float64).ravel())
    if len(shares) < 3:
        return dict.fromkeys(FITTED)
    ranks = np.arange(1, len(shares) + 1)

    def loss(a: float, b: float) -> float:
        logs = np.log(ranks + b)
        normaliser = np.log(np.exp(-a * (logs - logs[0])).sum())
        return float(a * (shares @ logs) + normaliser - a * logs[0])

    def pure_loss(a: float) -> float:
        return loss(a, 0.0)

    def shifted_loss(point: Floats) -> float:
        log_a, log_shift = point
        return loss(np.exp(log_a), np.expm1(log_shift) if log_shift > 0 else 0.0)

    pure = minimize_scalar(pure_loss, bounds=(0.0, 10.0), method="bounded").x
    options = {"xatol": 1e-8, "fatol": 1e-13, "maxiter": 4000}
    starts = ([np.log(pure + 1e-3), 0.1], [np.log(pure + 0.2), 2.0])
    fits = [
        minimize(shifted_loss, start, method="Nelder-Mead", options=options) for start in starts
    ]
    best = min(fits, key=lambda fit: fit.fun)
    log_a, log_shift = best.x
    return {
        "zipf_exponent": float(pure),
        "mandelbrot_exponent": float(np.exp(log_a)),
        "mandelbrot_shift": float(np.expm1(max(log_shift, 0.0))),
        "zipf_distance": max(0.0, float(best.fun) - _entropy(shares)),
    }


def _shares_by_rank(counts: npt.NDArray[Any]) -> Floats:
    """Return the shares of the counts above zero, the largest first."""
    sorted_counts = np.sort(counts[counts > 0].astype(np.float64))[::-1]
    return sorted_counts / sorted_counts.sum() if len(sorted_counts) else sorted_counts


def _entropy(shares: Floats) -> float:
    return float(-(shares * np.log(shares)).sum())


def zipf_intervals(parts: Sequence[npt.NDArray[np.int64]]) -> dict[str, list[float] | None]:
    """Return 95 % intervals of the fits of `zipf_mandelbrot`, NAME_interval, from blocks of text.

    Each block is left out in turn. Refits start at the whole text's answer and take damped Newton
    steps, which cost thousandths of the first fit; the maximum likelihood they reach is the same.

    Args:
        parts: the counts of each block.
    """
    total = np.sum(parts, axis=0) if len(parts) else np.zeros(0)
    fit = zipf_mandelbrot(total)
    pure = fit["zipf_exponent"] or 1.0
    exponent = fit["mandelbrot_exponent"]
    shift = fit["mandelbrot_shift"]
    if exponent is None or shift is None or len(parts) < 3:
        return {f"{name}_interval": None for name in FITTED}
    refits = [_refit(total - part, pure, (exponent, shift)) for part in parts]
    sizes = [float(part.sum()) for part in parts]
    intervals = {}
    for name in FITTED:
        values = [refit[name] for refit in refits]
        intervals[f"{name}_interval"] = jackknife(fit[name], values, sizes, bounds=(0.0, None))
    return intervals


def _refit(
    counts: npt.NDArray[Any], pure: float, start: tuple[float, float]
) -> dict[str, float | None]:
    """Return the fits of `zipf_mandelbrot`, from the exponent of a pure fit and a start (a, b)."""
    shares = _shares_by_rank(counts)
    if len(shares) < 3:
        return dict.fromkeys(FITTED)
    ranks = np.arange(1.0, len(shares) + 1)
    pure_fit = _newton(shares, ranks, pure, 0.0, shifted=False)
    shifted_fit = _newton(shares, ranks, *start, shifted=True)
    return {
        "zipf_exponent": pure_fit.a,
        "mandelbrot_exponent": shifted_fit.a,
        "mandelbrot_shift": shifted_fit.b,
        "zipf_distance": max(0.0, shifted_fit.loss - _entropy(shares)),
    }


@dataclass(frozen=True)
class _Fit:
    """An exponent a, a shift b, and the loss there."""

    a: float
    b: float
    loss: float


@dataclass(frozen=True, eq=False)
class _Loss:
    """The loss at a point (a, b), its gradient [2] and its second derivatives [2, 2]."""

    value: float
    gradient: Floats
    curvature: Floats


def _loss_at(shares: Floats, ranks: Floats, a: float, b: float) -> _Loss:
    """Return a·E_s[L] + log Σ exp(−aL), L = log(r + b), with its derivatives in a and b.

    With p ∝ exp(−aL) and q = 1/(r + b) the gradient is (E_s L − E_p L, a(E_s q − E_p q)); its
    derivatives are Var L, E_s q − E_p q + a·Cov(L, q) and a(E_p q² − E_s q² + a·Var q).
    """
    logs = np.log(ranks + b)
    q = 1 / (ranks + b)
    weights = np.exp(-a * (logs - logs[0]))
    p = weights / weights.sum()
    value = a * float(shares @ logs) + float(np.log(weights.sum())) - a * float(logs[0])
    mean_log = float(p @ logs)
    mean_q = float(p @ q)
    covariance = float(p @ (logs * q)) - mean_log * mean_q
    mean_square = float(p @ q**2)
    gradient = np.array([shares @ logs - mean_log, a * (shares @ q - mean_q)])
    by_a = float(p @ logs**2) - mean_log**2
    mixed = shares @ q - mean_q + a * covariance
    by_b = a * (mean_square - shares @ q**2 + a * (mean_square - mean_q**2))
    return _Loss(value, gradient, np.array([[by_a, mixed], [mixed, by_b]]))


def _newton(shares: Floats, ranks: Floats, a: float, b: float, *, shifted: bool) -> _Fit:
    """Minimise the loss over a and, if `shifted`, b ≥ 0; at most 30 damped Newton steps."""
    loss = _loss_at(shares, ranks, a, b)
    for _ in range(30):
        step = _step(loss, shifted and (b > 0 or loss.gradient[1] < 0))
        scale = 1.0
        while scale > 1e-6:
            new_a = max(1e-9, a + scale * step[0])
            new_b = max(0.0, b + scale * step[1])
            new_loss = _loss_at(shares, ranks, new_a, new_b)
            if new_loss.value <= loss.value:
                break
            scale /= 2
        else:
            break
        moved = abs(new_a - a) + abs(new_b - b)
        a = new_a
        b = new_b
        loss = new_loss
        if moved < 1e-9 * (1 + a + b):
            break
    return _Fit(float(a), float(b), float(loss.value))


def _step(loss: _Loss, moves_shift: bool) -> Floats:
    """Return a descending step of (a, b); of a alone where the shift does not move."""
    if not moves_shift:
        curvature = max(loss.curvature[0, 0], 1e-300)
        return np.array([-loss.gradient[0] / curvature, 0.0])
    try:
        step = -np.linalg.solve(loss.curvature, loss.gradient).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        return -loss.gradient
    return step if step @ loss.gradient < 0 else -loss.gradient


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
