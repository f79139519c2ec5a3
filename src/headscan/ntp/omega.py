"""Wright's omega function and the proximal map of cross-entropy, vectorised over contexts."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["CrossEntropyProx", "wright_omega"]


def wright_omega(x: Tensor) -> Tensor:
    """ω(x), the solution of ω + log ω = x, for real x; relative error about 1e-15, no overflow.

    >>> x = torch.tensor([-800.0, -5.0, 1.0, 1e9], dtype=torch.float64)
    >>> w = wright_omega(x)
    >>> bool(((w + w.log() - x).abs()[1:] < 1e-14 * x.abs()[1:].clamp_min(1)).all())
    True
    >>> float(w[0]), round(float(w[2]), 14)
    (0.0, 1.0)
    """
    # Three starts, each within six percent of ω: two terms of the series of e^x, the cubic about zero, the asymptote.
    small = x.clamp_max(-1.5).exp()
    middle = x.clamp(-1.5, 2.0)
    middle = 0.5671433 + middle * (0.3618963 + middle * (0.0736778 - 0.0013425 * middle))
    large = x.clamp_min(2.0)
    log_large = large.log()
    large = large - log_large + log_large / large
    w = torch.where(x < -1.5, small / (1 + small / (1 + small)), torch.where(x < 2.0, middle, large))
    w = w.clamp_min(1e-300)
    for _ in range(2):  # Fritsch, Shafer and Crowley's step: fourth order, so two from this start are enough
        r = x - w - w.log()
        p = 1 + w
        s = p * (p + r * (2.0 / 3.0))
        w = w * (1 + r / p * (s - r / 2) / (s - r))
    return torch.where(x < -35.0, small, w)  # there ω = eˣ to the last bit, and log ω would only lose digits


class CrossEntropyProx:
    """argmin over ℓ of  a [log Σ_t r_t e^{ℓ_t} - Σ_t p_t ℓ_t] + ½ Σ_t r_t (ℓ_t - y_t)², one row a context.

    The optimum obeys ℓ_t + (a/1) e^{ℓ_t - c} = y_t + a p_t / r_t with c = log Σ r e^ℓ, so that ℓ_t = b_t - ω(log a +
    b_t - c) with b_t the right side: one unknown c a row. Σ_t r_t ω(log a + b_t - c) = a is decreasing and convex in
    c, and Newton's method climbs to its root monotonically after at most one step. O(m V) a call, warm-started.
    """

    def __init__(self, probability: Tensor, multiplicity: Tensor) -> None:
        self.p = probability / multiplicity
        self.inside = probability > 0
        self.r = multiplicity
        self.shift = torch.zeros(len(probability), dtype=torch.float64, device=probability.device)

    def __call__(self, y: Tensor, a: Tensor) -> Tensor:
        """The minimisers ℓ [m, V] for y [m, V] and a [m]."""
        log_a = a.log()[:, None]
        x = y + a[:, None] * self.p + log_a
        c = self.shift
        w = wright_omega(x - c[:, None])
        for _ in range(60):
            residual = w @ self.r - a
            step = residual / ((w / (1 + w)) @ self.r).clamp_min(1e-290)
            # Far to the right of the root all ω vanish and the step explodes; a bounded one returns as surely.
            c = c + step.clamp(-(10 + c.abs()), None)
            w = wright_omega(x - c[:, None])
            if float((step.abs() - 1e-13 * (1 + a)).max()) <= 0:
                break
        self.shift = c
        # Two forms of the same number: the first keeps its digits where p > 0, the second where p = 0.
        return torch.where(self.inside, c[:, None] + w.clamp_min(1e-300).log() - log_a, y - w)
