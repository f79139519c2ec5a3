"""When can next-token prediction reach its bound? NTP-compatibility and NTP-separability of given
context embeddings.

With free embeddings both always hold, and only the width can be too small. With fixed embeddings
h_j (a frozen network) they are conditions on the words alone: a linear system, and a linear
program.
"""

import numpy as np
from scipy.optimize import linprog

from headscan.ntp.labels import CountsLike, Floats, SoftLabels, Supports, SupportsLike
from headscan.ntp.subspace import sparse_component
from headscan.ntp.svm import SvmSolution
from headscan.run import BadInput

__all__ = ["compatible", "fixed_margin", "needed_width", "separable"]


def needed_width(
    labels: CountsLike, solution: SvmSolution, *, tolerance: float = 1e-6
) -> dict[str, int]:
    """Ranks that bound the width d embeddings need: of L^in, of L^mm, and of L^in + ρ L^mm for
    large ρ.

    With d at least the last one, cross-entropy reaches the entropy bound along L^in + ρ L^mm (Prop.
    4 of arXiv:2408.15417).

    >>> from headscan.ntp.svm import svm
    >>> labels = SoftLabels.of(np.eye(3))
    >>> needed_width(labels, svm(labels))
    {'sparse': 0, 'low_rank': 2, 'both': 2}
    """
    labels = SoftLabels.of(labels)
    dense = np.zeros((labels.contexts, labels.vocabulary))
    dense[labels.supports.rows, labels.supports.indices] = sparse_component(labels)

    def rank(matrix: Floats) -> int:
        sigma = np.linalg.svd(matrix, compute_uv=False)
        return (
            int((sigma > tolerance * max(float(sigma[0]), 1e-12)).sum())
            if float(sigma[0]) > 1e-12
            else 0
        )

    # A generic ρ gives the generic rank: L^in and L^mm are orthogonal entry by entry of F, so
    # nothing cancels by design.
    return {
        "sparse": rank(dense),
        "low_rank": rank(solution.logits),
        "both": rank(dense + 3.7 * solution.logits),
    }


def compatible(embeddings: Floats, labels: CountsLike, *, tolerance: float = 1e-8) -> bool:
    """Tell whether words W exist with (w_z - w_z')ᵀ h_j = log(p_jz/p_jz') for all z, z' in S_j,
    given h [m, d].

    A least-squares problem in V d unknowns with Σ(k_j - 1) equations. Always true if the h_j are
    linearly independent.

    >>> counts = [[2, 1, 0], [1, 3, 0]]
    >>> bool(compatible(np.eye(2), counts)), bool(compatible(np.ones((2, 1)), counts))
    (True, False)
    """
    labels = SoftLabels.of(labels)
    H = _checked(embeddings, labels.supports)
    system, target = _equalities(H, labels)
    if not len(target):
        return True
    solution = np.linalg.lstsq(system, target, rcond=None)[0]
    return bool(
        np.abs(system @ solution - target).max()
        <= tolerance * max(1.0, float(np.abs(target).max()))
    )


def separable(embeddings: Floats, supports: SupportsLike) -> bool:
    """Tell whether words W exist that are equal inside every support and lower by at least one
    outside it, given h [m, d].

    >>> separable(np.eye(2), np.eye(2)), separable(np.ones((2, 1)), np.eye(2))
    (True, False)
    """
    return fixed_margin(embeddings, supports) is not None


def fixed_margin(embeddings: Floats, supports: SupportsLike) -> Floats | None:
    """Words W [V, d] that separate the supports with margin one for fixed embeddings, or None if
    none do.

    A linear program over V d unknowns (minimising the sum of absolute values): for tens of
    contexts, not thousands.
    """
    S = Supports.of(supports)
    H = _checked(embeddings, S)
    V = S.vocabulary
    d = H.shape[1]
    equal = []
    upper = []
    for j in range(S.contexts):
        inside = S.indices[S.indptr[j] : S.indptr[j + 1]]
        for z in inside[1:]:
            equal.append(_difference(inside[0], z, H[j], V))
        for v in np.setdiff1d(np.arange(V), inside):
            upper.append(-_difference(inside[0], v, H[j], V))
    if not upper:
        raise BadInput("Every support covers the whole vocabulary: there is nothing to separate.")
    A_ub = np.array(upper)
    b_ub = -np.ones(len(upper))
    A_eq = np.array(equal) if equal else None
    # w = p - n with p, n >= 0, so that the objective 1ᵀ(p + n) keeps the program bounded.
    solution = linprog(
        np.ones(2 * V * d),
        A_ub=np.hstack([A_ub, -A_ub]),
        b_ub=b_ub,
        A_eq=None if A_eq is None else np.hstack([A_eq, -A_eq]),
        b_eq=None if A_eq is None else np.zeros(len(A_eq)),
        method="highs",
    )
    return (
        (solution.x[: V * d] - solution.x[V * d :]).reshape(V, d) if solution.status == 0 else None
    )


def _checked(embeddings: Floats, supports: Supports) -> Floats:
    H = np.asarray(embeddings, dtype=np.float64)
    if H.ndim != 2 or len(H) != supports.contexts:
        raise BadInput(f"There must be one embedding for each of the {supports.contexts} contexts.")
    return H


def _difference(z: int, v: int, h: Floats, V: int) -> Floats:
    row = np.zeros((V, len(h)))
    row[z] += h
    row[v] -= h
    return row.ravel()


def _equalities(H: Floats, labels: SoftLabels) -> tuple[Floats, Floats]:
    S = labels.supports
    logp = np.log(labels.probability)
    rows = []
    target = []
    for j in range(S.contexts):
        first = S.indptr[j]
        last = S.indptr[j + 1]
        for entry in range(first + 1, last):
            rows.append(_difference(S.indices[first], S.indices[entry], H[j], S.vocabulary))
            target.append(logp[first] - logp[entry])
    return np.array(rows), np.array(target)
