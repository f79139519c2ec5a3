"""Do directions lie in one open half-space? The widest margin by Newton's method, and its proof or its refutation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve, null_space

Floats = npt.NDArray[np.float64]
EPS = float(np.finfo(float).eps)
RIDGES = 10.0 ** -np.arange(2, 15, 2)
NONE = 1e-9  # convex combinations at most this long refute every direction that is of any use


@dataclass(frozen=True)
class Halfspace:
    """The best direction found for unit rows [m, d], and the convex weights of its dual.

    direction [d] of length 1 (zero where there is none); margin: its least cosine to a row, a lower bound of the best;
    weights [m]: convex; distance ‖Σ weights·row‖: an upper bound of the best margin, for x·v ≤ ‖x‖ for every v.
    """

    direction: Floats
    margin: float
    weights: Floats
    distance: float


def separate(rows: Floats, *, start: Floats | None = None, tolerance: float = 1e-6) -> Halfspace:
    """The direction of the widest margin to unit rows [m, d]: argmax over v of min v·row.

    Minimises ½δ‖w‖² + ½Σ max(0, 1 − row·w)² for a falling δ by Newton's method on the active rows, which ends after
    finitely many steps (Mangasarian 2002). Its slacks sᵢ = max(0, 1 − rowᵢ·w) are a dual solution: Σ sᵢ·rowᵢ = δw, so
    both bounds come with every δ, and meet as δ → 0. Stops where they agree to `tolerance` of the distance, or where the
    distance is below 1e-9. Cost O(m·d·min(a, d)) a step for a active rows; 10 to 60 steps.

    >>> found = separate(np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> found.direction.round(4).tolist(), round(found.margin, 4), round(found.distance, 4)
    ([0.7071, 0.7071], 0.7071, 0.7071)
    """
    m, d = rows.shape
    w = np.zeros(d) if start is None else start
    best = Halfspace(np.zeros(d), -1.0, np.full(m, 1 / m), float(np.linalg.norm(rows.mean(0))))
    for ridge in RIDGES:
        w = _newton(rows, w, ridge)
        best = _better(best, rows, w)
        if best.margin <= 0 and best.distance > NONE and (rows @ w < 1).sum() > d:
            # More active rows than dimensions: perhaps there is no direction, and then no δ is needed to see it.
            best = _better(best, rows, _newton(rows, w, RIDGES[-1] / 10))
        if best.distance <= NONE or best.distance - max(best.margin, 0.0) <= tolerance * best.distance:
            break
    return best


def _better(best: Halfspace, rows: Floats, w: Floats) -> Halfspace:
    products, length = rows @ w, float(np.linalg.norm(w))
    if length > 0 and products.min() / length > best.margin:
        best = replace(best, direction=w / length, margin=float(products.min()) / length)
    slack = np.maximum(0.0, 1 - products)
    if slack.sum() > 0:
        weights = slack / slack.sum()
        distance = float(np.linalg.norm(weights @ rows))
        if distance < best.distance:
            best = replace(best, weights=weights, distance=distance)
    return best


def _newton(rows: Floats, w: Floats, ridge: float) -> Floats:
    products = rows @ w
    for _ in range(60):
        active = products < 1
        step = _restricted(rows[active], ridge) - w
        moved = rows @ step

        def slope(
            t: float, products: Floats = products, moved: Floats = moved, w: Floats = w, step: Floats = step
        ) -> float:
            slack = np.maximum(0.0, 1 - products - t * moved)
            return ridge * float((w + t * step) @ step) - float(slack @ moved)

        t = 1.0
        scale = max(abs(slope(0.0)), 1e-300)
        if slope(1.0) > 1e-9 * scale:
            low, high = 0.0, 1.0
            for _ in range(40):
                t = (low + high) / 2
                low, high = (low, t) if slope(t) > 0 else (t, high)
        w = w + t * step
        products = rows @ w
        if t == 1.0 and np.array_equal(products < 1, active):
            break
    return w


def _restricted(active: Floats, ridge: float) -> Floats:
    """argmin ½δ‖w‖² + ½‖1 − Aw‖² [d], on the smaller side of A [a, d]."""
    a, d = active.shape
    if not a:
        return np.zeros(d)
    wide = a < d
    gram = active @ active.T if wide else active.T @ active
    right = np.ones(a) if wide else active.sum(0)
    for more in (1.0, 1e2, 1e4, 1e6):  # the ridge that rounding allows
        try:
            gram[np.diag_indices(len(gram))] += ridge * more
            found = cho_solve(cho_factor(gram, check_finite=False), right, check_finite=False)
        except LinAlgError:
            continue
        solved: Floats = active.T @ found if wide else found
        return solved
    return np.asarray(np.linalg.lstsq(active, np.ones(a), rcond=None)[0], dtype=np.float64)


@dataclass(frozen=True)
class Witness:
    """Convex weights on at most d + 1 rows whose combination is short.

    support [s]: the rows; weights [s]; distance: the length of the combination, with the rounding of its computation:
    no direction has a larger margin. exact: whether weights close by are proved to give 0 itself.
    """

    support: npt.NDArray[np.int64]
    weights: Floats
    distance: float
    exact: bool


def witness(rows: Floats, weights: Floats) -> Witness:
    """The same convex combination of unit rows [m, d] with at most d + 1 of them (Carathéodory), polished and proved.

    Weights [m]. With B the support's rows under a row of ones, B·λ = (0, 1): where σ_min(B) times the least weight is
    above the residual (rounding of the rows and of the product included), positive weights exist that give exactly 0.
    Cost O(d³) for every d/2 rows too many.

    >>> found = witness(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), np.full(4, 0.25))
    >>> len(found.support) <= 3, found.distance < 1e-14
    (True, True)
    """
    d = rows.shape[1]
    order = np.argsort(-weights, kind="stable")
    order = order[weights[order] > 0]
    size = d + 1 + max(64, d // 2)
    kept, mass, rest = order[:0], np.zeros(0), list(order)
    while rest:
        room = size - len(kept)
        entering, rest = np.array(rest[:room]), rest[room:]
        kept, mass = np.append(kept, entering), np.append(mass, weights[entering])
        kept, mass = _fewer(rows[kept], kept, mass)
    system = np.vstack([rows[kept].T, np.ones(len(kept))])
    target = np.append(np.zeros(d), 1.0)
    polished = np.linalg.lstsq(system, target, rcond=None)[0]
    if (polished > 0).all() and np.linalg.norm(system @ polished - target) < np.linalg.norm(system @ mass - target):
        mass = polished
    mass = mass / mass.sum()
    rounding = (len(mass) + 4) * EPS
    residual = float(np.linalg.norm(system @ mass - target)) + rounding * (len(target) ** 0.5 + 1)
    exact = False
    if len(mass) == d + 1:
        sigma = float(np.linalg.svd(system, compute_uv=False)[-1]) - rounding * len(mass) ** 0.5
        exact = sigma > 0 and residual < sigma * float(mass.min())
    return Witness(kept, mass, float(np.linalg.norm(mass @ rows[kept])) + rounding, exact)


def _fewer(rows: Floats, kept: npt.NDArray[np.int64], mass: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    free = null_space(np.vstack([rows.T, np.ones(len(rows))]))
    alive = np.ones(len(mass), dtype=bool)
    while free.shape[1]:
        along = free[:, -1] if free[:, -1].max() > 0 else -free[:, -1]
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(along > 1e-14, mass / along, np.inf)
        out = int(np.argmin(steps))
        if not np.isfinite(steps[out]):
            free = free[:, :-1]
            continue
        mass = np.maximum(mass - steps[out] * along, 0.0)
        mass[out], alive[out] = 0.0, False
        # The other dependences without this row: eliminated by the largest entry, so that rounding does not grow.
        pivot = int(np.argmax(np.abs(free[out])))
        column = free[:, pivot].copy()
        free = np.delete(free, pivot, axis=1)
        free -= np.outer(column, free[out] / column[out]) if free.shape[1] else 0.0
        free[out] = 0.0
    alive &= mass > 0
    return kept[alive], mass[alive]
