"""Slow, obviously right versions of what needs pairs, windows and words: one pair at a time where
that is affordable.
"""

import itertools

import numpy as np


def cosine(a, b):
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def contributions(x):
    """E over ordered pairs of distinct rows of x_d·y_d/(‖x‖‖y‖), pair by pair."""
    total = np.zeros(x.shape[1])
    for i, j in itertools.permutations(range(len(x)), 2):
        total += x[i] * x[j] / (np.linalg.norm(x[i]) * np.linalg.norm(x[j]))
    return total / (len(x) * (len(x) - 1))


def agreement_without(x, removed):
    cut = x.copy()
    cut[:, removed] = 0
    pairs = list(itertools.combinations(range(len(x)), 2))
    full = [cosine(x[i], x[j]) for i, j in pairs]
    part = [cosine(cut[i], cut[j]) for i, j in pairs]
    return np.corrcoef(full, part)[0, 1] ** 2


def contexts(windows):
    """`windows`: a list of [n_w, d]."""
    within = [cosine(a, b) for w in windows for a, b in itertools.permutations(w, 2)]
    between = [
        cosine(a, b)
        for u, v in itertools.permutations(range(len(windows)), 2)
        for a in windows[u]
        for b in windows[v]
    ]
    intra = [np.mean([cosine(w.mean(0), row) for row in w]) for w in windows]
    return {
        "within_cosine": np.mean(within),
        "between_cosine": np.mean(between),
        "intra_similarity": np.mean(intra),
    }


def self_similarity(x, labels, least):
    similarities = {}
    for label in np.unique(labels):
        rows = x[labels == label]
        if len(rows) >= least:
            similarities[int(label)] = np.mean(
                [cosine(a, b) for a, b in itertools.permutations(rows, 2)]
            )
    return similarities
