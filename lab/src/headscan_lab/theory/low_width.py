"""Embeddings narrower than the vocabulary, with a certificate of what the width costs.

    min CE(H Wᵀ) + λ/2 (‖W‖² + ‖H‖²)  with d < V - 1

The problem is not convex in (W, H), but the convex problem CE(L) + λ‖L‖_* bounds it from below, and
a stationary point whose gradient G = ∇CE(L) has spectral norm at most λ *is* its solution: then
width d loses nothing. Otherwise the dual of the convex problem (see `path`) proves how much is lost
at most.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from headscan.ntp.labels import CountsLike, Floats, SoftLabels
from headscan.run import BadInput


@dataclass(frozen=True, eq=False)
class LowWidth:
    """A stationary point in width d with its certificate.

    Attributes:
        words, contexts: the embeddings [V, d] and [m, d].
        primal: CE + λ/2(‖W‖² + ‖H‖²) in nats.
        dual: a proven lower bound of it over every width; `gap` is their difference.
        spectral_ratio: ‖∇CE(L)‖₂/λ: 1 at a global optimum, above 1 if a wider embedding would do
            better.
        globally_optimal: whether the gap is below the tolerance, so that this width loses nothing.
    """

    words: Floats
    contexts: Floats
    primal: float
    dual: float
    gap: float
    spectral_ratio: float
    globally_optimal: bool

    @property
    def logits(self) -> Floats:
        return self.contexts @ self.words.T


@dataclass(frozen=True, eq=False)
class _Embeddings:
    """Words W [V, d], contexts H [m, d], and the objective there."""

    W: Floats
    H: Floats
    objective: float


def narrow(
    counts: CountsLike,
    width: int,
    penalty: float,
    *,
    starts: int = 3,
    seed: int = 0,
    gap: float = 1e-6,
) -> LowWidth:
    """Solve in width d by L-BFGS on (W, H), and return the best point with its certificate.

    Cost: O(m V d) an iteration.

    Args:
        starts: random points to start from. (Zero is a saddle.)
        gap: relative to the objective's excess over H.

    Raises:
        BadInput: for a width below one, or a penalty that is not positive.

    >>> point = narrow(np.eye(4), width=3, penalty=1e-3)
    >>> point.globally_optimal, round(point.spectral_ratio, 3)
    (True, 1.0)
    >>> narrow(np.eye(4), width=1, penalty=1e-3).globally_optimal
    False
    """
    labels = SoftLabels.of(counts)
    if width < 1 or penalty <= 0:
        raise BadInput("The width must be at least one and the penalty positive.")
    P = labels.dense()
    point = _minimised(labels, P, width, penalty, starts, seed)
    return _certified(labels, P, point, penalty, gap)


def _minimised(
    labels: SoftLabels, P: Floats, width: int, penalty: float, starts: int, seed: int
) -> _Embeddings:
    """Return the best point that L-BFGS reaches from random starts."""
    prior = labels.prior
    V = labels.vocabulary
    m = labels.contexts

    def objective(x: Floats) -> tuple[float, Floats]:
        W = x[: V * width].reshape(V, width)
        H = x[V * width :].reshape(m, width)
        L = H @ W.T
        log_normaliser = logsumexp(L, axis=1)
        G = (np.exp(L - log_normaliser[:, None]) - P) * prior[:, None]
        value = prior @ (log_normaliser - (P * L).sum(1)) + penalty / 2 * (x @ x)
        W_gradient = (G.T @ H + penalty * W).ravel()
        H_gradient = (G @ W + penalty * H).ravel()
        return float(value), np.concatenate([W_gradient, H_gradient])

    generator = np.random.default_rng(seed)
    options = {"maxiter": 3000, "maxfun": 6000, "gtol": 1e-10, "ftol": 1e-16, "maxcor": 30}
    best = None
    for _ in range(starts):
        start = generator.normal(size=(V + m) * width) * 0.3
        result = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        if best is None or result.fun < best.fun:
            best = result
    assert best is not None
    W = best.x[: V * width].reshape(V, width)
    H = best.x[V * width :].reshape(m, width)
    return _Embeddings(W, H, float(best.fun))


def _certified(
    labels: SoftLabels, P: Floats, point: _Embeddings, penalty: float, gap: float
) -> LowWidth:
    prior = labels.prior
    primal = point.objective
    L = point.H @ point.W.T
    softmax = np.exp(L - logsumexp(L, axis=1)[:, None])
    norm = float(np.linalg.norm((softmax - P) * prior[:, None], 2))
    alpha = min(1.0, penalty / norm) if norm > 0 else 1.0
    mixed = (1 - alpha) * P + alpha * softmax
    entropies = -np.where(mixed > 0, mixed * np.log(np.maximum(mixed, 1e-300)), 0.0).sum(1)
    dual = float(prior @ entropies)
    return LowWidth(
        words=point.W,
        contexts=point.H,
        primal=primal,
        dual=dual,
        gap=max(primal - dual, 0.0),
        spectral_ratio=norm / penalty,
        globally_optimal=bool(primal - dual <= gap * max(primal - labels.entropy(), 1e-300)),
    )
