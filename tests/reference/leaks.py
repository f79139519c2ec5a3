"""Slow, obviously right versions of the bounds on leaks, in numpy."""

import numpy as np


def pairwise_bounds(points, prior, sigma):
    """(lower, upper) of Kolchinsky and Tracey for equal Gaussians, in bits, by loops over the
    definitions of the divergences.
    """
    low = high = 0.0
    for i, p in enumerate(prior):
        below = above = 0.0
        for j, q in enumerate(prior):
            squared_distance = float(((points[i] - points[j]) ** 2).sum())
            bhattacharyya = squared_distance / (8 * sigma**2)
            kullback = squared_distance / (2 * sigma**2)
            below += q * np.exp(-bhattacharyya)
            above += q * np.exp(-kullback)
        low -= p * np.log2(below)
        high -= p * np.log2(above)
    return low, high


def mutual_information(points, prior, sigma, steps=40001, reach=12.0):
    """I(X; x_X + σN) of points on a line, in bits, by the trapezium rule on the density of what is
    seen.
    """
    centre = points.mean()
    spread = np.abs(points - points.mean()).max() + reach * sigma
    y = np.linspace(centre - spread, centre + spread, steps)
    densities = np.exp(-((y[:, None] - points) ** 2) / (2 * sigma**2)) / np.sqrt(
        2 * np.pi * sigma**2
    )
    mixed = densities @ prior
    entropy = -np.trapezoid(np.where(mixed > 0, mixed * np.log2(np.maximum(mixed, 1e-300)), 0.0), y)
    return entropy - 0.5 * np.log2(2 * np.pi * np.e * sigma**2)
