"""Slow, obviously right versions of dimension, partition, uniformity and collapse; plain numpy
loops.
"""

import itertools

import numpy as np


def neighbour_distances(x, k):
    found = np.empty((len(x), k))
    for i, row in enumerate(x):
        found[i] = np.sort(np.delete(np.linalg.norm(x - row, axis=1), i))[:k]
    return found


def mle(distances):
    """Levina and Bickel's sum, point by point, inverses averaged."""
    inverses = [np.mean([np.log(row[-1] / t) for t in row[:-1]]) for row in distances]
    return 1 / np.mean(inverses)


def partition_isotropy(w):
    """Both signs of every eigenvector (a column), in plain exponentials."""
    _, vectors = np.linalg.eigh(w.T @ w)
    values = [
        np.exp(w @ (sign * vectors[:, k])).sum() for k in range(w.shape[1]) for sign in (1, -1)
    ]
    return min(values) / max(values), np.std(values) / np.mean(values)


def uniformity(x, t):
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    pairs = [
        np.exp(-t * np.sum((u[i] - u[j]) ** 2)) for i, j in itertools.permutations(range(len(u)), 2)
    ]
    return np.log(np.mean(pairs))


def collapse(x, labels, weight, least=2):
    """Every metric by its definition, over pairs of classes in two loops."""
    kept = [c for c in np.unique(labels) if (labels == c).sum() >= least]
    means = {c: x[labels == c].mean(0) for c in kept}
    scatter = {c: np.mean(np.sum((x[labels == c] - means[c]) ** 2, axis=1)) for c in kept}
    centre = np.mean([means[c] for c in kept], axis=0)
    v = {c: means[c] - centre for c in kept}
    norms = np.array([np.linalg.norm(v[c]) for c in kept])
    unit = {c: v[c] / np.linalg.norm(v[c]) for c in kept}
    pairs = list(itertools.permutations(kept, 2))
    kernel = np.array([np.log(1 / np.linalg.norm(unit[a] - unit[b])) for a, b in pairs])
    duals = np.array(
        [weight[c] @ v[c] / np.linalg.norm(weight[c]) / np.linalg.norm(v[c]) for c in kept]
    )
    return {
        "classes": len(kept),
        "cdnv": np.mean(
            [(scatter[a] + scatter[b]) / (2 * np.sum((means[a] - means[b]) ** 2)) for a, b in pairs]
        ),
        "equinorm": norms.std() / norms.mean(),
        "interference": np.mean([unit[a] @ unit[b] for a, b in pairs]),
        "spread": kernel.std() / abs(kernel.mean()),
        "duality": duals.mean(),
        "duality_spread": duals.std() / abs(duals.mean()),
    }


def nearest_mean_agreement(x, predicted, data, labels, least=2):
    kept = [c for c in np.unique(labels) if (labels == c).sum() >= least]
    means = {c: data[labels == c].mean(0) for c in kept}
    hits = [
        min(kept, key=lambda c: np.linalg.norm(row - means[c])) == p
        for row, p in zip(x, predicted, strict=True)
        if p in means
    ]
    return np.mean(hits)
