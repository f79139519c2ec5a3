"""The NTP-SVM: the smallest logits, in nuclear norm, that are equal inside each support and lower
by one outside it.

    min ‖L‖_*   subject to   L[j, z] = L[j, z']       for z, z' in S_j
                             L[j, z] - L[j, v] >= 1   for z in S_j, v outside S_j

Its solution L^mm is the direction in which next-token prediction makes the logits grow
(arXiv:2408.15417, Theorem 1).

Method. Contexts with equal supports may share one row (average them: the nuclear norm does not
grow), and so may tokens that stand in the same supports, with weights √multiplicity. On what is
left, ADMM alternates singular-value shrinkage with an exact projection on the margins (see
`margins`). Each iterate carries a certificate: Z is feasible, and -ρU, scaled to spectral norm one,
is feasible for the dual  max ⟨A, S~⟩  s.t.  A1 = 0, A <= 0 off the supports, ‖A‖₂ <= 1. So the gap
reported is a proof, not a stopping rule. Cost of an iteration: O(u c min(u, c)).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from headscan.ntp.labels import Floats, Ints, Supports, SupportsLike
from headscan.ntp.subspace import (
    MarginSet,
    TokenClasses,
    shrink,
    singular_values,
    thin_svd,
    thread_limit,
    tune_threads,
)
from headscan.run import BadInput

_RELAX = 1.7

_RANK_TOLERANCE = 1e-6
"""Singular values of the solution below this share of the largest count as zero in its rank."""

_FIRST_CHECK = 5
_STEPS_A_CHECK = 10

_EXACT_GAP = 1e-7
_EXACT_ENTRIES = 20_000
"""Smaller gaps and problems take the true SVD. The Gram matrix cannot tell a singular value of 1e-8
of the largest from zero, so the primal value from it is off by about that much a null direction.
"""


@dataclass(frozen=True)
class SvmStep:
    """The state of the solver at a check: bounds of the optimum and their relative gap."""

    iteration: int
    seconds: float
    primal: float
    dual: float
    gap: float


@dataclass(frozen=True)
class SvmCost:
    """The cost of a solve: rows and columns after merging, bytes, multiplications an iteration."""

    rows: float
    columns: float
    bytes: float
    multiplications: float


@dataclass(frozen=True, eq=False)
class SvmSolution:
    """The solution of the NTP-SVM with the proof of its quality.

    `primal` >= optimum >= `dual` in the units of ‖L‖_* (weighted, if weights were given); `gap` =
    (primal - dual)/primal. `inverse` int64 [m] says which distinct support each context has.
    `merged_logits` and `merged_dual` [u, c] have one column a class of equal tokens, times √(its
    tokens); the latter is to be multiplied by -`penalty`.
    """

    distinct: Supports
    inverse: Ints
    weights: Floats
    classes: TokenClasses
    merged_logits: Floats
    merged_dual: Floats
    primal: float
    dual: float
    gap: float
    rank: int
    iterations: int
    converged: bool
    seconds: float
    penalty: float

    @property
    def distinct_logits(self) -> Floats:
        """L^mm for every distinct support, float64 [u, V]. Computed at each call: 8 u V bytes."""
        return (self.merged_logits / self.classes.root)[:, self.classes.of]

    @property
    def distinct_dual(self) -> Floats:
        """The dual solution, float64 [u, V], up to scale: rows sum to 0 and are <= 0 off the
        supports. Computed at each call.
        """
        scale = -self.penalty / self.classes.root
        return (self.merged_dual * scale)[:, self.classes.of]

    @property
    def logits(self) -> Floats:
        """L^mm for every context, float64 [m, V]; rows sum to zero. Computed at each call: 8 m V
        bytes.
        """
        return self.distinct_logits[self.inverse]

    def factors(self) -> tuple[Floats, Floats]:
        """Return W [V, r] and H [m, r] with L^mm = H Wᵀ, W = VΣ^½ and H = UΣ^½: the words and
        contexts that training ends with. They are unique up to a rotation of the r axes.
        """
        merged, contexts = self.merged_factors()
        return self.classes.tokens(merged), contexts

    def merged_factors(self) -> tuple[Floats, Floats]:
        """Return `factors` with W [c, r] of the classes of equal tokens instead of the tokens."""
        root = np.sqrt(self.weights)[:, None]
        left, sigma, right = thin_svd(root * self.merged_logits)
        rank = int((sigma > _RANK_TOLERANCE * sigma[0]).sum())
        scale = np.sqrt(sigma[:rank])
        return right[:, :rank] * scale, (left[:, :rank] * scale / root)[self.inverse]


def estimate_cost(supports: SupportsLike) -> SvmCost:
    """Return the cost of `svm` without starting it: rows, columns, bytes, multiplications an
    iteration.

    Seconds are left to the caller, who knows the machine: divide by its float64 multiplications a
    second (about 1.5e10 on one core) and multiply by 30 to 300 iterations.

    >>> cost = estimate_cost(np.array([[1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]]))
    >>> cost.rows, cost.columns
    (2.0, 3.0)
    """
    distinct, _, _ = Supports.of(supports).unique()
    rows = distinct.contexts
    columns = len(distinct.equal_tokens()[0])
    small = min(rows, columns)
    work = 2.0 * rows * columns * small + 10.0 * small**3 + 40.0 * rows * columns
    return SvmCost(float(rows), float(columns), 34.0 * rows * columns, work)


def svm(
    supports: SupportsLike,
    weights: npt.ArrayLike | None = None,
    gap: float = 1e-6,
    *,
    vocabulary: int | None = None,
    max_iterations: int = 5000,
    max_seconds: float = float("inf"),
    device: str = "cpu",
    progress: Callable[[SvmStep], None] | None = None,
) -> SvmSolution:
    """Return the solution of the NTP-SVM to a certified relative gap.

    `supports`: anything `Supports.of` reads, [contexts, vocabulary]. `weights` float [m] > 0 asks
    for the smallest ‖diag(√weights) L‖_* instead (the shape of training depends on supports alone,
    so the default is one for each context; repeated supports count each time they occur). `gap` is
    relative to the primal value. `progress` is called with an `SvmStep` at every check. Stops at
    `max_iterations` or `max_seconds` with `converged` False and the gap reached, which is valid all
    the same. Raises `BadInput` when every support covers the whole vocabulary (the solution would
    be zero).

    >>> solution = svm([[0, 1], [2], [0, 1]], vocabulary=4)
    >>> solution.gap <= 1e-6 and solution.dual <= solution.primal
    True
    >>> L = solution.logits
    >>> bool(abs(L[0, 0] - L[0, 1]) < 1e-12), bool(L[0, 0] - L[0, 2:].max() >= 1 - 1e-12)
    (True, True)
    """
    S = Supports.of(supports, vocabulary)
    if int(S.sizes.min()) == S.vocabulary:
        raise BadInput("Every support covers the whole vocabulary: there is nothing to separate.")
    if not 0 < gap < 1:
        raise BadInput("The relative gap must lie between 0 and 1.")
    distinct, inverse, _ = S.unique()
    weights = np.ones(S.contexts) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (S.contexts,) or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise BadInput("Weights must be one positive finite number for each context.")
    weight = np.asarray(
        np.bincount(inverse, weights=weights, minlength=distinct.contexts), dtype=np.float64
    )
    torch_device = torch.device(device)
    classes = TokenClasses.of_supports(distinct)
    threads = tune_threads(distinct.contexts, len(classes.first), torch_device)
    with thread_limit(threads), torch.inference_mode():
        solver = _Solver(distinct, weight, classes, torch_device)
        return solver.run(
            inverse, gap=gap, iterations=max_iterations, seconds=max_seconds, progress=progress
        )


class _Solver:
    """One solve: rows are distinct supports [u], columns classes of equal tokens [c]."""

    def __init__(
        self, distinct: Supports, weight: Floats, classes: TokenClasses, device: torch.device
    ) -> None:
        self.distinct = distinct
        self.weight = weight
        self.classes = classes
        merged = np.asarray(distinct.matrix(bool)[:, classes.first].todense(), dtype=bool)
        self.set = MarginSet(
            torch.from_numpy(merged).to(device),
            torch.from_numpy(np.sqrt(weight)).to(device),
            torch.from_numpy(classes.root).to(device),
        )
        self.q_unit = self.set.q / torch.linalg.vector_norm(self.set.q)

    def run(
        self,
        inverse: Ints,
        *,
        gap: float,
        iterations: int,
        seconds: float,
        progress: Callable[[SvmStep], None] | None,
    ) -> SvmSolution:
        started = time.perf_counter()
        Z = self.set.centred_supports()
        U = torch.zeros_like(Z)
        penalty = _penalty(singular_values(Z))
        exact = gap < _EXACT_GAP or Z.numel() <= _EXACT_ENTRIES
        best = Z
        primal = np.inf
        dual = -np.inf
        reached = np.inf
        step = 0
        longest_step = 0.0
        for step in range(1, iterations + 1):
            step_start = time.perf_counter()
            self.set.update(shrink(Z - U, 1.0 / penalty)[0], Z, U, _RELAX)
            longest_step = max(longest_step, time.perf_counter() - step_start)
            # A check takes about as long as an iteration: the last one is made while there is time
            # for it.
            late = time.perf_counter() - started + 2 * longest_step > seconds
            is_check = step % _STEPS_A_CHECK == 0 or step in (_FIRST_CHECK, iterations)
            if not is_check and not late:
                continue
            # The free shift of every row (its part along q) is taken out, which can only lower the
            # norm.
            centred = Z - torch.outer(Z @ self.q_unit, self.q_unit)
            value = float(singular_values(centred, exact=exact).sum())
            if value < primal:
                primal = value
                best = centred
            spectral = float(singular_values(U)[0])
            dual = max(dual, self.set.dual_value(U, penalty) / max(1.0, penalty * spectral))
            reached = (primal - dual) / primal
            if progress is not None:
                progress(SvmStep(step, time.perf_counter() - started, primal, dual, reached))
            if reached <= gap or late:
                break
        sigma = singular_values(best, exact=best.numel() < 1e6)
        return SvmSolution(
            distinct=self.distinct,
            inverse=inverse,
            weights=self.weight,
            classes=self.classes,
            merged_logits=(best / self.set.scale[:, None]).cpu().numpy(),
            merged_dual=U.cpu().numpy(),
            primal=primal,
            dual=dual,
            gap=max(reached, 0.0),
            rank=int((sigma > _RANK_TOLERANCE * sigma[0]).sum()),
            iterations=step,
            converged=bool(reached <= gap),
            seconds=time.perf_counter() - started,
            penalty=penalty,
        )


def _penalty(sigma: torch.Tensor) -> float:
    """Return the penalty of ADMM: one over the median of the larger half of the singular values.

    Four times more or less costs two to four times the iterations; adapting it on the way did worse
    than leaving it (measured).
    """
    larger_half = sigma[: max(1, (len(sigma) + 1) // 2)]
    return 1.0 / max(float(larger_half.median()), 1e-12)


@dataclass(frozen=True)
class CentredCertificate:
    """The answer whether S~ solves the NTP-SVM; `decisive` says that the test also proves the
    contrary when it fails.

    `violating_share` is the share of off-support entries where UVᵀ is positive, `worst` the largest
    of them; `nuclear_norm` is ‖S~‖_*, an upper bound of ‖L^mm‖_*.
    """

    optimal: bool
    decisive: bool
    worst: float
    violating_share: float
    rank: int
    nuclear_norm: float


def certificate(supports: SupportsLike, *, tolerance: float = 1e-9) -> CentredCertificate:
    """Test whether S~ = S(I - 11ᵀ/V) is optimal, and return the answer.

    With S~ = UΣVᵀ, S~ is optimal if UVᵀ is nowhere positive off the supports (Prop. 3 asks for
    strictly negative, which also makes the solution unique).

    Where the rank of S~, after equal rows and equal columns are merged, is as high as centring
    allows, UVᵀ is the only candidate for the dual solution, so that a positive entry proves S~ not
    optimal (`decisive`). On real text it has never been optimal, yet within 0.001 % to 16 % in
    nuclear norm; random supports mostly pass, and are too easy a test. Cost: one SVD of [distinct
    supports, distinct tokens].

    >>> certificate(np.eye(3)).optimal
    True
    """
    S = Supports.of(supports)
    distinct, _, multiplicity = S.unique()
    classes = TokenClasses.of_supports(distinct)
    inside = np.asarray(distinct.matrix(np.float64)[:, classes.first].todense())
    q = classes.root
    means = (distinct.sizes / S.vocabulary)[:, None]
    centred = (inside - means) * np.sqrt(multiplicity)[:, None] * q
    left, sigma, right = thin_svd(centred)
    rank = int((sigma > tolerance * max(float(sigma[0]), 1e-300)).sum())
    off_support = (left[:, :rank] @ right[:, :rank].T)[inside == 0]
    # Every entry off the support counts as often as contexts and tokens were merged into it.
    counts = np.outer(multiplicity, q**2)[inside == 0]
    worst = 0.0
    violating_share = 0.0
    if len(off_support):
        worst = float(off_support.max())
        violating_share = float(counts[off_support > tolerance].sum() / counts.sum())
    return CentredCertificate(
        optimal=bool(len(off_support) == 0 or worst <= tolerance),
        decisive=rank == min(len(inside), len(classes.first) - 1),
        worst=worst,
        violating_share=violating_share,
        rank=rank,
        nuclear_norm=float(sigma.sum()),
    )
