"""Embeddings narrower than the vocabulary:  min CE(H Wᵀ) + λ/2 (‖W‖² + ‖H‖²)  with d < V - 1, and how far from the
optimum.

The problem is not convex in (W, H), but the convex problem CE(L) + λ‖L‖_* bounds it from below, and a stationary point
whose gradient G = ∇CE(L) has spectral norm at most λ *is* its solution: then width d loses nothing. Otherwise the
dual of the convex problem (see `path`) proves how much is lost at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from headscan.ntp.arrays import CountsLike, Floats
from headscan.ntp.labels import SoftLabels
from headscan.run import BadInput

__all__ = ["LowWidth", "narrow"]


@dataclass(frozen=True, eq=False)
class LowWidth:
    """A stationary point in width d with its certificate.

    `primal` is CE + λ/2(‖W‖² + ‖H‖²) in nats; `dual` a proven lower bound of it over every width; `gap` their
    difference. `spectral_ratio` = ‖∇CE(L)‖₂/λ: 1 at a global optimum, above 1 if a wider embedding would do better.
    `globally_optimal` says that the gap is below the tolerance, so that this width loses nothing. `residual` is the
    largest entry of the gradient with respect to W and H.
    """

    width: int
    penalty: float
    words: Floats
    contexts: Floats
    primal: float
    dual: float
    gap: float
    excess: float
    spectral_ratio: float
    residual: float
    globally_optimal: bool

    @property
    def logits(self) -> Floats:
        """H Wᵀ, float64 [m, V], rank at most d."""
        return self.contexts @ self.words.T


def narrow(
    counts: CountsLike,
    width: int,
    penalty: float,
    *,
    starts: int = 3,
    seed: int = 0,
    max_iterations: int = 3000,
    gap: float = 1e-6,
    warm: LowWidth | None = None,
) -> LowWidth:
    """Solve in width d by L-BFGS on (W, H) from `starts` random points (zero is a saddle, so never from there).

    `gap` is relative to the objective's excess over H. Cost: O(m V d) an iteration. Raises `BadInput` for a width
    below one.

    >>> found = narrow(np.eye(4), width=3, penalty=1e-3)
    >>> found.globally_optimal, round(found.spectral_ratio, 3)
    (True, 1.0)
    >>> narrow(np.eye(4), width=1, penalty=1e-3).globally_optimal
    False
    """
    labels = SoftLabels.of(counts)
    if width < 1 or penalty <= 0:
        raise BadInput("The width must be at least one and the penalty positive.")
    P, prior = labels.dense(), labels.prior
    V, m = labels.vocabulary, labels.contexts
    rng = np.random.default_rng(seed)

    def objective(x: Floats) -> tuple[float, Floats]:
        W, H = x[: V * width].reshape(V, width), x[V * width :].reshape(m, width)
        L = H @ W.T
        top = logsumexp(L, axis=1)
        G = (np.exp(L - top[:, None]) - P) * prior[:, None]
        value = prior @ (top - (P * L).sum(1)) + penalty / 2 * (x @ x)
        return float(value), np.concatenate([(G.T @ H + penalty * W).ravel(), (G @ W + penalty * H).ravel()])

    best = None
    for start in range(starts):
        if warm is not None and start == 0:
            x0 = np.concatenate([warm.words.ravel(), warm.contexts.ravel()])
        else:
            x0 = rng.normal(size=(V + m) * width) * 0.3
        options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "gtol": 1e-10, "ftol": 1e-16, "maxcor": 30}
        found = minimize(objective, x0, jac=True, method="L-BFGS-B", options=options)
        if best is None or found.fun < best.fun:
            best = found
    assert best is not None
    W, H = best.x[: V * width].reshape(V, width), best.x[V * width :].reshape(m, width)
    return _certified(labels, P, W, H, penalty, float(best.fun), float(np.abs(best.jac).max()), gap)


def _certified(
    labels: SoftLabels,
    P: Floats,
    W: Floats,
    H: Floats,
    penalty: float,
    primal: float,
    residual: float,
    gap: float,
) -> LowWidth:
    prior = labels.prior
    L = H @ W.T
    softmax = np.exp(L - logsumexp(L, axis=1)[:, None])
    norm = float(np.linalg.norm((softmax - P) * prior[:, None], 2))
    alpha = min(1.0, penalty / norm) if norm > 0 else 1.0
    mixed = (1 - alpha) * P + alpha * softmax
    entropies = -np.where(mixed > 0, mixed * np.log(np.maximum(mixed, 1e-300)), 0.0).sum(1)
    dual = float(prior @ entropies)
    entropy = labels.entropy()
    excess = primal - penalty / 2 * float((W**2).sum() + (H**2).sum()) - entropy
    return LowWidth(
        width=W.shape[1],
        penalty=penalty,
        words=W,
        contexts=H,
        primal=primal,
        dual=dual,
        gap=max(primal - dual, 0.0),
        excess=excess,
        spectral_ratio=norm / penalty,
        residual=residual,
        globally_optimal=bool(primal - dual <= gap * max(primal - entropy, 1e-300)),
    )
