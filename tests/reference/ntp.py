"""The definitions of next-token prediction's geometry, one context at a time, as the papers write
them.
"""

import numpy as np


def centring(supports: np.ndarray) -> np.ndarray:
    """S (I - 11ᵀ/V) for dense bool supports [m, V]."""
    V = supports.shape[1]
    return supports @ (np.eye(V) - np.ones((V, V)) / V)


def projection_on_f(logits: np.ndarray, supports: np.ndarray) -> np.ndarray:
    """P_F by the published formula E_jᵀ(E_jE_jᵀ)⁻¹E_j ℓ_j with difference matrices."""
    out = np.zeros_like(logits, dtype=np.float64)
    for j, inside in enumerate(supports):
        tokens = np.flatnonzero(inside)
        E = np.zeros((len(tokens) - 1, logits.shape[1]))
        for i, z in enumerate(tokens[1:]):
            E[i, tokens[0]] = 1
            E[i, z] = -1
        if len(E):
            out[j] = E.T @ np.linalg.solve(E @ E.T, E @ logits[j])
    return out


def entropy(counts: np.ndarray) -> float:
    """H in nats from a table of counts."""
    total = 0.0
    for row in counts:
        for count in row[row > 0]:
            total -= count / counts.sum() * np.log(count / row.sum())
    return total


def cross_entropy(logits: np.ndarray, counts: np.ndarray) -> float:
    """CE in nats."""
    total = 0.0
    for ell, row in zip(logits, counts, strict=True):
        q = np.exp(ell - ell.max())
        q /= q.sum()
        total -= float((row[row > 0] * np.log(q[row > 0])).sum())
    return total / counts.sum()


def infeasibility(logits: np.ndarray, supports: np.ndarray) -> float:
    """The largest violation of the NTP-SVM's constraints: spread inside supports, margin missing
    outside.
    """
    worst = 0.0
    for ell, inside in zip(logits, supports, strict=True):
        worst = max(worst, float(np.ptp(ell[inside])))
        if not inside.all():
            worst = max(worst, 1 - float(ell[inside].min() - ell[~inside].max()))
    return worst


def svm_by_cvxpy(
    supports: np.ndarray, solver: str = "CLARABEL", weights: np.ndarray | None = None, **options
):
    """min ‖diag(√w) L‖_* by a general conic solver: (value, logits)."""
    import cvxpy as cp

    m, V = supports.shape
    L = cp.Variable((m, V))
    level = cp.Variable((m, 1))
    inside = supports.astype(float)
    difference = level @ np.ones((1, V)) - L
    constraints = [
        cp.multiply(inside, difference) == 0,
        cp.multiply(1 - inside, difference) >= 1 - inside,
    ]
    root = np.ones(m) if weights is None else np.sqrt(weights)
    problem = cp.Problem(cp.Minimize(cp.normNuc(cp.diag(root) @ L)), constraints)
    problem.solve(solver=solver, **options)
    return problem.value, L.value


def regularised_by_proximal_gradient(P, prior, penalty, *, steps: int = 20_000) -> np.ndarray:
    """min CE + λ‖L‖_* by accelerated proximal gradient, the textbook way."""
    L = np.zeros_like(P)
    Y = L.copy()
    t = 1.0
    step = 2.0 / prior.max()
    for _ in range(steps):
        q = np.exp(Y - Y.max(1, keepdims=True))
        q /= q.sum(1, keepdims=True)
        U, s, Vt = np.linalg.svd(Y - step * (q - P) * prior[:, None], full_matrices=False)
        new = (U * np.maximum(s - step * penalty, 0)) @ Vt
        if ((Y - new) * (new - L)).sum() > 0:
            t = 1.0
        t_new = (1 + np.sqrt(1 + 4 * t * t)) / 2
        Y = new + (t - 1) / t_new * (new - L)
        L = new
        t = t_new
    return L


def collapse(H, W, counts) -> dict:
    """NC1-NC4 by loops over classes and positions."""
    m = len(counts)
    classes = np.flatnonzero(counts.sum(0) > 0)
    mu = {}
    var = {}
    for c in classes:
        h = np.repeat(H, counts[:, c].astype(int), axis=0)
        mu[c] = h.mean(0)
        var[c] = ((h - mu[c]) ** 2).sum(1).mean()
    centre = np.mean([mu[c] for c in classes], axis=0)
    bar = {c: mu[c] - centre for c in classes}
    unit = {c: bar[c] / np.linalg.norm(bar[c]) for c in classes}
    pairs = [(a, b) for i, a in enumerate(classes) for b in classes[i + 1 :]]
    kernel = [-np.log(np.linalg.norm(unit[a] - unit[b])) for a, b in pairs]
    M = np.stack([bar[c] for c in classes])
    Wc = np.stack([W[c] for c in classes])
    K = len(classes)
    target = (np.eye(K) - np.ones((K, K)) / K) / np.sqrt(K - 1)
    cosines = [unit[c] @ W[c] / np.linalg.norm(W[c]) for c in classes]
    agree = 0.0
    for j in range(m):
        predicted = classes[np.argmax([W[c] @ H[j] for c in classes])]
        nearest = classes[np.argmin([np.linalg.norm(H[j] - mu[c]) for c in classes])]
        agree += counts[j].sum() * (predicted == nearest)
    variances = np.array([(var[a] + var[b]) / 2 for a, b in pairs])
    distances = np.array([((mu[a] - mu[b]) ** 2).sum() for a, b in pairs])
    norms = [np.linalg.norm(bar[c]) for c in classes]
    return {
        "cdnv": np.mean(variances / distances),
        "cdnv_squared": np.mean(variances / distances**2),
        "equinorm": np.std(norms) / np.mean(norms),
        "simplex": np.linalg.norm(M @ M.T / np.linalg.norm(M @ M.T) - target),
        "kernel_mean": np.mean(kernel),
        "kernel_variance": np.var(kernel),
        "spread": np.std(kernel) / abs(np.mean(kernel)),
        "dual_simplex": np.linalg.norm(Wc @ M.T / np.linalg.norm(Wc @ M.T) - target),
        "duality": np.mean(cosines),
        "duality_variance": np.var(cosines),
        "duality_spread": np.std(cosines) / abs(np.mean(cosines)),
        "agreement": agree / counts.sum(),
    }
