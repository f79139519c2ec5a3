"""Slow, obviously right versions of the bounds on leaks, in numpy."""

from __future__ import annotations

import numpy as np


def pairwise_bounds(points, prior, sigma):
    """(lower, upper) of Kolchinsky and Tracey for equal Gaussians, in bits, by loops over the definitions of the divergences."""
    low = high = 0.0
    for i, p in enumerate(prior):
        below = above = 0.0
        for j, q in enumerate(prior):
            far = float(((points[i] - points[j]) ** 2).sum())
            bhattacharyya, kullback = far / (8 * sigma**2), far / (2 * sigma**2)
            below += q * np.exp(-bhattacharyya)
            above += q * np.exp(-kullback)
        low -= p * np.log2(below)
        high -= p * np.log2(above)
    return low, high


def mutual_information(points, prior, sigma, steps=40001, reach=12.0):
    """I(X; x_X + σN) of points on a line, in bits, by the trapezium rule on the density of what is seen."""
    centre, spread = points.mean(), np.abs(points - points.mean()).max() + reach * sigma
    y = np.linspace(centre - spread, centre + spread, steps)
    each = np.exp(-((y[:, None] - points) ** 2) / (2 * sigma**2)) / np.sqrt(2 * np.pi * sigma**2)
    mixed = each @ prior
    seen = -np.trapezoid(np.where(mixed > 0, mixed * np.log2(np.maximum(mixed, 1e-300)), 0.0), y)
    return seen - 0.5 * np.log2(2 * np.pi * np.e * sigma**2)


def mutual_information_of(points, prior, sigma, density, entropy, steps=100001, reach=40.0):
    """The same for noise of any density (of variance 1) and entropy in bits: h(Y) − h(σN) by the midpoint rule."""
    centre, spread = points.mean(), np.abs(points - points.mean()).max() + reach * sigma
    edges = np.linspace(centre - spread, centre + spread, steps)
    y = (edges[1:] + edges[:-1]) / 2
    mixed = sum(p * density((y - x) / sigma) / sigma for x, p in zip(points, prior, strict=True))
    seen = -np.where(mixed > 0, mixed * np.log2(np.maximum(mixed, 1e-300)), 0.0).sum() * (edges[1] - edges[0])
    return seen - entropy - np.log2(sigma)


def log_evidence(prior, points, seen, sigma):
    """log Σ_x p(x) Π_t N(y_t; f(x_1..x_t)) without the Gaussians' constants, over all texts of two tokens.

    prior [V, V] joint; points of the first token [V, d] and of the second [V, V, d]; seen [2, d].
    """
    first = ((points[0] - seen[0]) ** 2).sum(-1)[:, None]
    second = ((points[1] - seen[1]) ** 2).sum(-1)
    return float(np.logaddexp.reduce((np.log(prior) - (first + second) / (2 * sigma**2)).ravel()))
