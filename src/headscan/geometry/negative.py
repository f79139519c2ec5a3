"""Is there a direction in which every hidden state is negative? A certificate, either way.

If v exists with v·h < 0 for all hidden states h, cross-entropy can lower the logit of a token that is never to be
predicted for ever by moving its output vector along v: rare tokens drift (Gao et al. 2019, arXiv:1907.12009). Such a v
exists if and only if 0 lies outside the convex hull of the states. The point of the hull nearest to 0 answers both ways:
it is either a direction x with min x·h > 0 (then −x is uniformly negative), or it is 0 as a convex combination of states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["NearestPoint", "nearest_point"]


@dataclass(frozen=True)
class NearestPoint:
    """The nearest point to the origin of the hull of n states, and the proof of what it says.

    Attributes:
        point: x = Σ weights·h over `support`, the nearest point found [d].
        support, weights: rows of the states and their convex weights.
        lowest: min over all states of x̂·h, in the units of the states: the distance from 0 to the hull is at least this.
        distance: ‖x‖, at least the true distance; `distance − lowest` bounds the error.
        gap: the duality gap ‖x‖² − min x·h ≥ 0; ‖x − x*‖² ≤ gap.
        verdict: "uniformly negative" (−x is such a direction, proved by lowest > 0), "none" (0 is in the hull up to
            1e-6 of the mean length of the states), or "open" (the iterations ran out between the two).
        iterations: major cycles of the algorithm.
    """

    point: npt.NDArray[np.float64]
    support: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    lowest: float
    distance: float
    gap: float
    verdict: str
    iterations: int


def nearest_point(states: npt.ArrayLike, *, tolerance: float = 1e-6, iterations: int = 3000) -> NearestPoint | None:
    """The point of the convex hull of the rows [n, d] nearest to the origin, by Wolfe's active sets (1976).

    The states' directions decide, not their lengths, whether a uniformly negative direction exists; so they are scaled to
    length 1 first, and `distance`, `lowest` and `gap` are of unit vectors: in [0, 1], the same as the widest margin in
    cosines that any direction has to all states. Rows of norm zero are left out (with one, no direction is strictly
    negative: the verdict is then "none"). None without rows.

    Stops as soon as min x·h > 0 with the gap below `tolerance`·‖x‖, or ‖x‖ < tolerance. A major cycle costs O(nd) for the
    next state and O(s³) to solve for the weights of the s ≤ d + 1 states in the support.

    >>> nearest_point([[1.0, 1.0], [1.0, -1.0]]).verdict, nearest_point([[1.0, 0.0], [-1.0, 0.0]]).verdict
    ('uniformly negative', 'none')
    """
    rows = np.asarray(states, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1)
    if not len(rows):
        return None
    if (lengths == 0).any():
        at = int(np.argmin(lengths))
        return NearestPoint(np.zeros(rows.shape[1]), np.array([at]), np.ones(1), 0.0, 0.0, 0.0, "none", 0)
    rows = rows / lengths[:, None]
    # The state nearest to the mean direction is the best single guess.
    support = [int(np.argmax(rows @ rows.mean(0)))]
    weights = np.ones(1)
    point = rows[support[0]]
    done = 0
    while done < iterations:
        done += 1
        products = rows @ point
        nearest = int(np.argmin(products))
        square = float(point @ point)
        gap = square - float(products[nearest])
        if square <= tolerance**2 or (products[nearest] > 0 and gap <= tolerance * square) or nearest in support:
            break
        support.append(nearest)
        weights = np.append(weights, 0.0)
        support, weights = _minor_cycles(rows, support, weights)
        point = weights @ rows[support]
    products = rows @ point
    distance = float(np.linalg.norm(point))
    gap = max(0.0, distance**2 - float(products.min()))
    lowest = float(products.min()) / distance if distance > 0 else 0.0
    inside = distance <= tolerance
    verdict = "none" if inside else "uniformly negative" if lowest > 0 else "open"
    return NearestPoint(point, np.array(support), weights, lowest, distance, gap, verdict, done)


def _minor_cycles(
    rows: npt.NDArray[np.float64], support: list[int], weights: npt.NDArray[np.float64]
) -> tuple[list[int], npt.NDArray[np.float64]]:
    """Move to the nearest point of the support's affine hull, dropping states whose weight would turn negative."""
    while True:
        affine = _affine_weights(rows[support])
        if (affine > 1e-12).all():
            return support, affine
        falling = affine <= 1e-12
        steps = weights[falling] / np.maximum(weights[falling] - affine[falling], 1e-300)
        step = min(1.0, float(steps.min()))
        weights = (1 - step) * weights + step * affine
        kept = weights > 1e-12
        if kept.all():  # rounding: drop the smallest, so that the cycle ends
            kept[int(np.argmin(np.where(falling, weights, np.inf)))] = False
        support = [index for index, keep in zip(support, kept, strict=True) if keep]
        weights = weights[kept] / weights[kept].sum()


def _affine_weights(vertices: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Weights with sum 1 of the point of the vertices' affine hull nearest to 0: G w ∝ 1, G = VVᵀ + 11ᵀ."""
    gram = vertices @ vertices.T + 1.0
    try:
        found = np.linalg.solve(gram, np.ones(len(gram)))
    except np.linalg.LinAlgError:
        found = np.linalg.lstsq(gram, np.ones(len(gram)), rcond=None)[0]
    weights: npt.NDArray[np.float64] = found / found.sum()
    return weights
