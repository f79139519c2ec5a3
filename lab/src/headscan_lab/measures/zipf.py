"""Zipf's law of a text's tokens: rank and frequency."""

from collections.abc import Sequence
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
    """Maximum-likelihood fit of p(r) ∝ (r + b)^−a to counts by rank; also of pure Zipf (b = 0).

    Counts of any shape; zeros are left out. Over the ranks 1..R that occur, as a multinomial: the
    log-likelihood is −a Σ c_r log(r + b) − N log Σ_r (r + b)^−a. Least squares on the log-log plot,
    the usual way, weighs the many rare ranks most and the few that make up the text least.

    Keys: `zipf_exponent` (pure Zipf's a), `mandelbrot_exponent` a, `mandelbrot_shift` b ≥ 0, and
    `zipf_distance`, the Kullback-Leibler divergence of the text from the Zipf-Mandelbrot fit in
    nats a token (0: perfect). None for fewer than three types. Cost O(R) an iteration.

    >>> found = zipf_mandelbrot(np.round(1e6 / (np.arange(1, 2000) + 2.7) ** 1.1))
    >>> round(found["mandelbrot_exponent"], 2), round(found["mandelbrot_shift"], 1)
    (1.1, 2.7)
    """
    c = np.sort(np.asarray(counts, dtype=np.float64).ravel())[::-1]
    c = c[c > 0]
    if len(c) < 3:
        return dict.fromkeys(FITTED)
    ranks = np.arange(1, len(c) + 1)
    share = c / c.sum()

    def loss(a: float, b: float) -> float:
        logs = np.log(ranks + b)
        return float(a * (share @ logs) + np.log(np.exp(-a * (logs - logs[0])).sum()) - a * logs[0])

    pure = minimize_scalar(lambda a: loss(a, 0.0), bounds=(0.0, 10.0), method="bounded").x
    best = min(
        (
            minimize(
                lambda v: loss(np.exp(v[0]), np.expm1(v[1]) if v[1] > 0 else 0.0),
                start,
                method="Nelder-Mead",
                options={"xatol": 1e-8, "fatol": 1e-13, "maxiter": 4000},
            )
            for start in ([np.log(pure + 1e-3), 0.1], [np.log(pure + 0.2), 2.0])
        ),
        key=lambda found: found.fun,
    )
    entropy = float(-(share * np.log(share)).sum())
    return {
        "zipf_exponent": float(pure),
        "mandelbrot_exponent": float(np.exp(best.x[0])),
        "mandelbrot_shift": float(np.expm1(max(best.x[1], 0.0))),
        "zipf_distance": max(0.0, float(best.fun) - entropy),
    }


def zipf_intervals(parts: Sequence[npt.NDArray[np.int64]]) -> dict[str, list[float] | None]:
    """95 % intervals of the fits of `zipf_mandelbrot`, NAME_interval, from the counts of blocks of
    text.

    Each block is left out by turns. Refits start at the whole text's answer and take damped Newton
    steps, which cost thousandths of the first fit; the maximum likelihood they reach is the same.
    """
    whole = np.sum(parts, axis=0) if len(parts) else np.zeros(0)
    fit = zipf_mandelbrot(whole)
    start = fit["mandelbrot_exponent"], fit["mandelbrot_shift"]
    if start[0] is None or start[1] is None or len(parts) < 3:
        return {f"{name}_interval": None for name in FITTED}
    others = [
        _refit(whole - part, fit["zipf_exponent"] or 1.0, (start[0], start[1])) for part in parts
    ]
    sizes = [float(part.sum()) for part in parts]
    return {
        f"{name}_interval": jackknife(
            fit[name], [refit[name] for refit in others], sizes, bounds=(0.0, None)
        )
        for name in FITTED
    }


def _refit(
    counts: npt.NDArray[Any], pure: float, start: tuple[float, float]
) -> dict[str, float | None]:
    c = np.sort(counts[counts > 0].astype(np.float64))[::-1]
    if len(c) < 3:
        return dict.fromkeys(FITTED)
    ranks = np.arange(1.0, len(c) + 1)
    share = c / c.sum()
    pure, _, _ = _newton(share, ranks, pure, 0.0, shifted=False)
    a, b, loss = _newton(share, ranks, *start, shifted=True)
    entropy = float(-(share * np.log(share)).sum())
    return {
        "zipf_exponent": pure,
        "mandelbrot_exponent": a,
        "mandelbrot_shift": b,
        "zipf_distance": max(0.0, loss - entropy),
    }


def _newton(
    share: Floats, ranks: Floats, a: float, b: float, *, shifted: bool
) -> tuple[float, float, float]:
    """Minimise a·E_s[L] + log Σ exp(−aL), L = log(r + b), over a and, if `shifted`, b ≥ 0; at most
    30 steps.

    With p ∝ exp(−aL) and q = 1/(r + b) the gradient is (E_s L − E_p L, a(E_s q − E_p q)); its
    derivatives are Var L, E_s q − E_p q + a·Cov(L, q) and a(E_p q² − E_s q² + a·Var q).
    """

    def look(a: float, b: float) -> tuple[float, Floats, Floats]:
        logs = np.log(ranks + b)
        q = 1 / (ranks + b)
        weights = np.exp(-a * (logs - logs[0]))
        p = weights / weights.sum()
        value = a * float(share @ logs) + float(np.log(weights.sum())) - a * float(logs[0])
        mean_l = float(p @ logs)
        mean_q = float(p @ q)
        cross = float(p @ (logs * q)) - mean_l * mean_q
        square = float(p @ q**2)
        gradient = np.array([share @ logs - mean_l, a * (share @ q - mean_q)])
        off = share @ q - mean_q + a * cross
        last = a * (square - share @ q**2 + a * (square - mean_q**2))
        return value, gradient, np.array([[float(p @ logs**2) - mean_l**2, off], [off, last]])

    value, gradient, curvature = look(a, b)
    for _ in range(30):
        free = shifted and (b > 0 or gradient[1] < 0)
        step = np.array([-gradient[0] / max(curvature[0, 0], 1e-300), 0.0])
        if free:
            try:
                full = -np.linalg.solve(curvature, gradient)
            except np.linalg.LinAlgError:
                full = -gradient
            step = full if full @ gradient < 0 else -gradient
        scale = 1.0
        while scale > 1e-6:
            new = max(1e-9, a + scale * step[0]), max(0.0, b + scale * step[1])
            trial = look(*new)
            if trial[0] <= value:
                break
            scale /= 2
        else:
            break
        moved = abs(new[0] - a) + abs(new[1] - b)
        (a, b), (value, gradient, curvature) = new, trial
        if moved < 1e-9 * (1 + a + b):
            break
    return float(a), float(b), float(value)


class ZipfProbe(Probe):
    """Rank and frequency."""

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

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        c = data.counts
        row: Cells = {
            "site": "text",
            "tokens": int(c.sum()),
            "types": int((c > 0).sum()),
            **zipf_mandelbrot(c),
        }
        return [row | zipf_intervals(data.count_parts)]
