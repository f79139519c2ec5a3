"""Slow, obviously right versions of dimension, partition, uniformity and collapse; plain numpy
loops.
"""

import itertools

import numpy as np


def neighbour_distances(x, k):
    distances = np.empty((len(x), k))
    for i, row in enumerate(x):
        distances[i] = np.sort(np.delete(np.linalg.norm(x - row, axis=1), i))[:k]
    return distances


def mle(distances):
    """Levina and Bickel's sum, point by point, inverses averaged."""
    inverses = [np.mean([np.log(row[-1] / t) for t in row[:-1]]) for row in distances]
    return 1 / np.mean(inverses)


def partition_isotropy(w):
    """Both signs of every eigenvector (a column), in plain exponentials."""
    _, vectors = np.linalg.eigh(w.T @ w)
    directions = [*vectors.T, *(-vectors.T)]
    values = [np.exp(w @ direction).sum() for direction in directions]
    return min(values) / max(values), np.std(values) / np.mean(values)


def uniformity(x, t):
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    pairs = itertools.permutations(u, 2)
    return np.log(np.mean([np.exp(-t * np.sum((a - b) ** 2)) for a, b in pairs]))


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def collapse(x, labels, weight, least=2):
    """Every metric by its definition, over pairs of classes in two loops."""
    labels_used = [c for c in np.unique(labels) if (labels == c).sum() >= least]
    means = {c: x[labels == c].mean(0) for c in labels_used}
    scatter = {}
    for c in labels_used:
        scatter[c] = np.mean(np.sum((x[labels == c] - means[c]) ** 2, axis=1))
    centre = np.mean([means[c] for c in labels_used], axis=0)
    v = {c: means[c] - centre for c in labels_used}
    norms = np.array([np.linalg.norm(v[c]) for c in labels_used])
    unit = {c: v[c] / np.linalg.norm(v[c]) for c in labels_used}
    pairs = list(itertools.permutations(labels_used, 2))
    kernel = np.array([np.log(1 / np.linalg.norm(unit[a] - unit[b])) for a, b in pairs])
    duals = np.array([cosine(weight[c], v[c]) for c in labels_used])
    squares = {(a, b): np.sum((means[a] - means[b]) ** 2) for a, b in pairs}
    return {
        "classes": len(labels_used),
        "cdnv": np.mean([(scatter[a] + scatter[b]) / (2 * squares[a, b]) for a, b in pairs]),
        "equinorm": norms.std() / norms.mean(),
        "interference": np.mean([unit[a] @ unit[b] for a, b in pairs]),
        "spread": kernel.std() / abs(kernel.mean()),
        "duality": duals.mean(),
        "duality_spread": duals.std() / abs(duals.mean()),
    }


def nearest_mean_agreement(x, predicted, data, labels, least=2):
    labels_used = [c for c in np.unique(labels) if (labels == c).sum() >= least]
    means = {c: data[labels == c].mean(0) for c in labels_used}
    hits = [
        min(labels_used, key=lambda c: np.linalg.norm(row - means[c])) == p
        for row, p in zip(x, predicted, strict=True)
        if p in means
    ]
    return np.mean(hits)
