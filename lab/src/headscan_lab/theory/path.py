"""The regularised problem  min CE(L) + λ‖L‖_*  and its path as λ falls to zero.

By Lemma 1 of arXiv:2408.15417 this is the unconstrained-features model min CE(WH) + λ/2 ‖W‖² + λ/2
‖H‖² of any width d >= V - 1. Its solutions split, as λ → 0, into the sparse part L^in (log-odds
inside supports) plus R(λ) L^mm, where L^mm solves the NTP-SVM and R grows by ln 10 a decade.

Method. ADMM between singular-value shrinkage and the exact proximal map of cross-entropy: unlike
proximal gradient steps, whose number triples with every decade, its count hardly depends on λ.
Contexts with the same counts are merged exactly (weight √multiplicity), and so are tokens that
never follow anything.

Proof of quality. The dual is maximum entropy under spectrally relaxed moments:  max Σ_j π_j
Ent(q_j)  subject to ‖(Q - P) diag(π)‖₂ <= λ. From any L, with G = ∇CE(L) and α = min(1, λ/‖G‖₂),
q_j = (1-α) p_j + α softmax(ℓ_j) is feasible.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import wrightomega
from torch import Tensor

from headscan.ntp.labels import Floats, Ints, SoftLabels, Supports, group_equal_rows
from headscan.ntp.subspace import shrink, singular_values, thread_limit, tune_threads
from headscan.run import BadInput


def wright_omega(x: Tensor) -> Tensor:
    """Return ω(x), the solution of ω + log ω = x."""
    return torch.from_numpy(wrightomega(x.numpy()))


class CrossEntropyProx:
    """The proximal map of cross-entropy, one row a context, warm-started.

    It is argmin over ℓ of  a [log Σ_t r_t e^{ℓ_t} - Σ_t p_t ℓ_t] + ½ Σ_t r_t (ℓ_t - y_t)².

    The optimum obeys ℓ_t + (a/1) e^{ℓ_t - c} = y_t + a p_t / r_t with c = log Σ r e^ℓ, so that ℓ_t
    = b_t - ω(log a + b_t - c) with b_t the right side: one unknown c a row. Σ_t r_t ω(log a + b_t -
    c) = a is decreasing and convex in c, and Newton's method climbs to its root monotonically after
    at most one step. Cost: O(m V) a call.
    """

    def __init__(self, probability: Tensor, multiplicity: Tensor) -> None:
        self.p = probability / multiplicity
        self.inside = probability > 0
        self.r = multiplicity
        self.c = torch.zeros(len(probability), dtype=torch.float64)

    def __call__(self, y: Tensor, a: Tensor) -> Tensor:
        log_a = a.log()[:, None]
        x = y + a[:, None] * self.p + log_a
        c = self.c
        omega = wright_omega(x - c[:, None])
        for _ in range(60):
            residual = omega @ self.r - a
            slope = ((omega / (1 + omega)) @ self.r).clamp_min(1e-290)
            step = residual / slope
            # Far to the right of the root all ω vanish and the step explodes; a bounded one returns
            # as surely.
            c = c + step.clamp(-(10 + c.abs()), None)
            omega = wright_omega(x - c[:, None])
            if float((step.abs() - 1e-13 * (1 + a)).max()) <= 0:
                break
        self.c = c
        # Two forms of the same number: the first keeps its digits where p > 0, the second where p =
        # 0.
        inside = c[:, None] + omega.clamp_min(1e-300).log() - log_a
        return torch.where(self.inside, inside, y - omega)


@dataclass(frozen=True, eq=False)
class PathPoint:
    """The solution at one λ.

    Attributes:
        penalty: λ.
        distinct_logits, inverse: the logits of distinct contexts, and the number of each context's.
        gap: primal - dual in nats, proven; `relative_gap` divides it by primal - H.
        excess: CE(L) - H in nats.
        rank: of the logits.
    """

    penalty: float
    distinct_logits: Floats
    inverse: Ints
    primal: float
    dual: float
    gap: float
    relative_gap: float
    excess: float
    rank: int

    @property
    def logits(self) -> Floats:
        """Return the logits, float64 [m, V], whose rows sum to zero."""
        return self.distinct_logits[self.inverse]


def largest_penalty(labels: SoftLabels) -> float:
    """Return λ_max = ‖(P - 11ᵀ/V) diag(π)‖₂: at and above it L = 0 is the solution.

    >>> labels = SoftLabels.of([[1, 0], [0, 1]])
    >>> round(largest_penalty(labels), 12)                 # 1/2 · ‖[[1/2, -1/2], [-1/2, 1/2]]‖₂
    0.5
    """
    return _PathProblem(SoftLabels.of(labels)).largest_penalty()


def regularised(labels: SoftLabels, penalty: float, *, gap: float = 1e-7) -> PathPoint:
    """Solve one λ = `penalty`.

    >>> point = regularised(SoftLabels.of([[1, 0], [0, 1]]), 0.05)
    >>> point.relative_gap < 1e-6, point.rank
    (True, 1)
    """
    return regularisation_path(labels, [penalty], gap=gap)[0]


def regularisation_path(
    labels: SoftLabels, penalties: Sequence[float], *, gap: float = 1e-7, max_iterations: int = 5000
) -> list[PathPoint]:
    """Solve for each λ in turn, from large to small, each started from the one before.

    `gap` is the relative gap asked for, of the objective's excess over H. Raises `BadInput` for a λ
    that is not positive, and for labels whose every support is the whole vocabulary (then nothing
    grows).
    """
    labels = SoftLabels.of(labels)
    if not len(penalties) or min(penalties) <= 0:
        raise BadInput("Every penalty of the path must be positive.")
    if int(labels.supports.sizes.min()) == labels.vocabulary:
        raise BadInput(
            "Every support covers the whole vocabulary: cross-entropy is minimised at finite "
            "logits."
        )
    threads = tune_threads(labels.contexts, labels.vocabulary, torch.device("cpu"))
    with thread_limit(threads), torch.inference_mode():
        problem = _PathProblem(labels)
        return [
            problem.solve(float(penalty), gap, max_iterations)
            for penalty in sorted(penalties, reverse=True)
        ]


def increment(points: Sequence[PathPoint]) -> Floats:
    """Return the log-λ increment (L_λ' - L_λ) / ln(λ/λ') of the last two points, float64 [m, V].

    It is an estimate of L^mm itself.

    L_λ = L^in + R(λ) L^mm + const with R' = 1 a unit of ln(1/λ), so the difference cancels all that
    stays finite. It has the scale of L^mm too. At λ = 1e-5 its cosine with L^mm is 0.9997 where
    that of L_λ is 0.991.
    """
    if len(points) < 2:
        raise BadInput("The increment needs two points of the path.")
    first = points[-2]
    second = points[-1]
    return (second.logits - first.logits) / float(np.log(first.penalty / second.penalty))


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A certified point of the search for the solution at one λ.

    Attributes:
        objective: primal - H in nats.
        excess: CE - H in nats.
        bound: dual - H in nats, a lower bound of every objective.
        scaled: the logits in the scaled variable √multiplicity q ℓ, centred.
    """

    objective: float
    excess: float
    bound: float
    scaled: Tensor


class _PathProblem:
    """Merged data, and the ADMM state carried from one λ to the next."""

    def __init__(self, labels: SoftLabels) -> None:
        first, self.inverse = _distinct_contexts(labels)
        multiplicity = np.bincount(self.inverse, minlength=len(first)).astype(np.float64)
        self.token_class = _token_classes(labels)
        token_multiplicity = np.bincount(self.token_class).astype(np.float64)
        probability = np.zeros((len(first), len(token_multiplicity)))
        distinct = SoftLabels.of(labels.matrix()[first])
        columns = self.token_class[distinct.supports.indices]
        probability[distinct.supports.rows, columns] = distinct.probability

        self.p = torch.from_numpy(probability)
        self.r = torch.from_numpy(token_multiplicity)
        self.q = torch.from_numpy(np.sqrt(token_multiplicity))
        self.prior = torch.from_numpy(labels.prior[first])
        self.weight = torch.from_numpy(multiplicity * labels.prior[first])  # Σ = 1
        self.scale = torch.from_numpy(np.sqrt(multiplicity))[:, None]
        self.entropy = labels.entropy()
        self.log_p = torch.where(self.p > 0, self.p.clamp_min(1e-300).log(), 0.0)
        self.prox = CrossEntropyProx(self.p, self.r)
        self.supports = torch.from_numpy(Supports.of(probability > 0).dense().astype(np.float64))
        self.Z: Tensor | None = None
        self.U = torch.zeros_like(self.p)
        self.rho = 0.0

    def largest_penalty(self) -> float:
        uniform = 1.0 / self.r.sum()
        centred = (self.p / self.q - uniform * self.q) * self.prior[:, None] * self.scale
        return float(singular_values(centred)[0])

    def _start(self, penalty: float) -> Tensor:
        """Return the first Z, zero; the centred supports set the size of the first step."""
        size = torch.log1p(torch.tensor(self.largest_penalty() / penalty)).item()
        row_means = (self.supports @ self.r) / self.r.sum()
        shape = (self.supports - row_means[:, None]) * self.q * self.scale
        sigma = singular_values(shape) * max(size, 1e-3)
        self.rho = 1.0 / max(_middle_of_upper_half(sigma), 1e-12)
        return torch.zeros_like(self.p)

    def _continue(self, Z: Tensor) -> Tensor:
        """Return the Z of the last λ, and fit the size of the step to it."""
        level = _middle_of_upper_half(singular_values(Z))
        if level > 1e-9:
            rho = 1.0 / level
            # ρU is the dual variable over λ, of spectral norm one at every λ.
            self.U *= self.rho / rho
            self.rho = rho
        return Z

    def solve(self, penalty: float, gap: float, iterations: int) -> PathPoint:
        """Return the solution at one λ: ADMM until the relative gap is reached."""
        Z = self._start(penalty) if self.Z is None else self._continue(self.Z)
        U = self.U
        a = self.prior / (penalty * self.rho)
        best: _Candidate | None = None
        dual = -np.inf
        for step in range(1, iterations + 1):
            X, _ = shrink(Z - U, 1.0 / self.rho)
            # In logits: CE/λ + ρ/2 ‖·‖² of the scaled variable Z = √multiplicity q ℓ.
            Y = torch.lerp(Z, X, 1.6) + U
            Z = self.prox(Y / (self.scale * self.q), a) * self.scale * self.q
            U = Y - Z
            if step % 10 and step != iterations:
                continue
            for scaled in (X, Z):
                candidate = self._certify(scaled, penalty)
                dual = max(dual, candidate.bound)
                if best is None or candidate.objective < best.objective:
                    best = candidate
            assert best is not None
            # Both numbers are excesses over H, so that the difference keeps its digits at small λ.
            if best.objective - dual <= gap * best.objective:
                break
        assert best is not None
        self.Z = Z
        self.U = U
        return self._point(penalty, best, dual)

    def _point(self, penalty: float, best: _Candidate, dual: float) -> PathPoint:
        logits = (best.scaled / (self.scale * self.q)).cpu().numpy()
        sigma = singular_values(best.scaled)
        gap = max(best.objective - dual, 0.0)
        rank = int((sigma > 1e-6 * sigma[0]).sum()) if float(sigma[0]) > 0 else 0
        return PathPoint(
            penalty=penalty,
            distinct_logits=logits[:, self.token_class],
            inverse=self.inverse,
            primal=best.objective + self.entropy,
            dual=dual + self.entropy,
            gap=gap,
            relative_gap=gap / best.objective,
            excess=best.excess,
            rank=rank,
        )

    def _certify(self, scaled: Tensor, penalty: float) -> _Candidate:
        """Return a candidate with its objective and the dual bound that follows from it."""
        unit = self.q / torch.linalg.vector_norm(self.q)
        scaled = scaled - torch.outer(scaled @ unit, unit)
        logits = scaled / (self.scale * self.q)
        # The log-probability of one token of a class.
        log_q = logits - torch.logsumexp(logits + self.r.log(), 1, keepdim=True)
        excess = float(self.weight @ (self.p * (self.log_p - log_q)).sum(1))
        norm = float(singular_values(scaled).sum())
        softmax = log_q.exp() * self.r
        gradient = (softmax - self.p) / self.q * self.prior[:, None] * self.scale
        alpha = min(1.0, penalty / max(float(singular_values(gradient)[0]), 1e-300))
        mixed = (1 - alpha) * self.p + alpha * softmax
        entropies = -(torch.xlogy(mixed, mixed / self.r) - torch.xlogy(self.p, self.p)).sum(1)
        return _Candidate(
            objective=excess + penalty * norm,
            excess=excess,
            bound=float(self.weight @ entropies),
            scaled=scaled,
        )


def _distinct_contexts(labels: SoftLabels) -> tuple[Ints, Ints]:
    """Return one context of each group of equal ones, and the group of each context.

    Contexts are equal when the same tokens follow them with the same counts.
    """
    supports = labels.supports
    # Each (token, count) pair becomes one integer, so that equal contexts are equal rows.
    _, level = np.unique(labels.counts, return_inverse=True)
    pairs = level.astype(np.int64) * labels.vocabulary + supports.indices
    _, code = np.unique(pairs, return_inverse=True)
    return group_equal_rows(supports.indptr, code)


def _token_classes(labels: SoftLabels) -> Ints:
    """Return the class of each token; all tokens that never follow anything share the last one."""
    occurrences = np.bincount(labels.supports.indices, minlength=labels.vocabulary)
    following = np.flatnonzero(occurrences > 0)
    classes = np.full(labels.vocabulary, len(following))
    classes[following] = np.arange(len(following))
    return classes


def _middle_of_upper_half(sigma: Tensor) -> float:
    """Return the median of the larger half of singular values, which are in descending order."""
    return float(sigma[: (len(sigma) + 1) // 2].median())
