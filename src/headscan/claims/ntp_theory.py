"""What the theorems and printed formulas of arXiv:2408.15417 say, as numbers of one random instance each."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

import headscan.ntp as ntp
from headscan.run import BadInput

__all__ = [
    "all_subsets_solution", "bound_of_equation_24", "defined", "entropy_of_three", "growth_of_the_path", "limit_of_the_path",
    "narrow_embedding", "norm_of_the_code", "printed_cosine", "printed_probability", "square_root_missing", "story_labels",
]  # fmt: skip

Found = dict[str, float]
"""What one instance gave, by name; the first number is the effect."""


def defined(value: float | None) -> float:
    """A number that must be there; BadInput where it is not defined, which leaves its claim undecided."""
    if value is None or not np.isfinite(value):
        raise BadInput("A number that the claim rests on is not defined on this instance.")
    return float(value)


SIZES = [(4, 2), (5, 2), (6, 3), (7, 3), (8, 2)]


def printed_cosine(seed: int) -> Found:
    """(40c): cos(w_v, h_j) = √((V-1)/(k(V-k))) inside, -1/√(k(V-k)(V-1)) outside, against the solver, one size a seed."""
    V, k = SIZES[seed % len(SIZES)]
    supports = ntp.all_subsets(V, k)
    W, H = ntp.svm(supports, gap=1e-10).factors()
    cosines = (H / np.linalg.norm(H, axis=1, keepdims=True)) @ (W / np.linalg.norm(W, axis=1, keepdims=True)).T
    inside, outside = (float(cosines[mask].mean()) for mask in (supports.dense(), ~supports.dense()))
    exact = ntp.KSubsets(V, k)
    return {
        "error of the printed cosines": max(
            abs(inside - exact.printed_word_context_cosine_in), abs(outside - exact.printed_word_context_cosine_off)
        ),
        "error of √((V-k)/(k(V-1))) and -√(k/((V-k)(V-1)))": max(
            abs(inside - exact.word_context_cosine_in), abs(outside - exact.word_context_cosine_off)
        ),
    }


def all_subsets_solution(seed: int) -> Found:
    """The solution for all k-subsets is the centred support matrix: largest difference from the solver's, one size a seed."""
    V, k = SIZES[seed % len(SIZES)]
    supports = ntp.all_subsets(V, k)
    found = ntp.svm(supports, gap=1e-10)
    return {
        "largest difference": float(np.abs(found.logits - supports.centred()).max()),
        "relative difference of the nuclear norm": abs(found.primal / ntp.KSubsets(V, k).nuclear_norm - 1),
    }


def entropy_of_three(seed: int) -> Found:
    """The largest entropy of 40 random soft labels on three tokens; log 3 is the most that there can be."""
    draws = [ntp.random_labels(30, 16, sizes=(3, 3), seed=1000 * seed + k).entropy() for k in range(40)]
    return {"largest entropy seen (nats)": max(draws), "log 3": float(np.log(3))}


def bound_of_equation_24(seed: int) -> Found:
    """CE(L^in + R L^mm) ≤ H + V exp(∓2‖L^in‖₂) exp(-R): share of trials in which it is violated."""
    labels = ntp.random_labels(6, 10, sizes=(2, 3), concentration=0.3, seed=seed)
    prediction = ntp.predict(labels, gap=1e-9)
    assert prediction.solution is not None
    dense = np.zeros((labels.contexts, labels.vocabulary))
    dense[labels.supports.rows, labels.supports.indices] = prediction.sparse
    norm, broken = float(np.linalg.norm(dense, 2)), {-1: 0, 1: 0}
    growths = (2.0, 4.0, 8.0)
    for R in growths:
        excess = ntp.cross_entropy(dense + R * prediction.solution.logits, labels) - labels.entropy()
        for sign in broken:
            broken[sign] += bool(excess > labels.vocabulary * np.exp(sign * 2 * norm - R))
    return {"violated as printed": broken[-1] / 3, "violated with exp(+2‖L^in‖₂)": broken[1] / 3}


@lru_cache(maxsize=8)
def _path(seed: int) -> tuple[ntp.SoftLabels, ntp.SvmSolution, list[ntp.PathPoint]]:
    labels = ntp.random_labels(10, 40, supports=15, seed=seed)
    return labels, ntp.svm(labels, gap=1e-9), list(ntp.regularisation_path(labels, [10.0**-k for k in range(2, 9)]))


def limit_of_the_path(seed: int) -> Found:
    """λ → 0 (here 1e-8): the direction of the logits, with CE - H and the distance of the in-support part beside it."""
    labels, solution, points = _path(seed)
    sparse, last = ntp.sparse_component(labels), points[-1].logits
    near = np.linalg.norm(ntp.in_support(last, labels.supports) - sparse) / np.linalg.norm(sparse)
    return {
        "cosine of the direction with L^mm": ntp.cosine(ntp.out_of_support(last, labels.supports), solution.logits),
        "CE - H (nats)": points[-1].excess,
        "relative distance of the in-support part from L^in": float(near),
        "cosine of the increment with L^mm": ntp.cosine(ntp.increment(points), solution.logits),
    }


def growth_of_the_path(seed: int) -> Found:
    """Growth of the direction a decade of λ against log 10, and CE - H over λ‖L^mm‖_*."""
    _, solution, points = _path(seed)
    growth = [float((p.logits * solution.logits).sum() / (solution.logits**2).sum()) for p in points[-3:]]
    return {
        "largest relative deviation from log 10 a decade": float(np.abs(np.diff(growth) / np.log(10) - 1).max()),
        "CE - H over λ‖L^mm‖_*": points[-1].excess / (points[-1].penalty * solution.primal),
    }


def norm_of_the_code(seed: int) -> Found:
    """What the published code minimises (cvxpy's norm2 of a matrix), against Frobenius's norm and the spectral one."""
    try:
        import cvxpy as cp
    except ImportError:
        raise BadInput('cvxpy, whose norm2 is looked at, is missing: pip install "headscan[dev]".') from None
    matrix = np.random.default_rng(seed).normal(size=(4, 3))
    value = float(cp.norm2(cp.Constant(matrix)).value)  # type: ignore[attr-defined]
    return {
        "relative difference from Frobenius's norm": abs(value / float(np.linalg.norm(matrix)) - 1),
        "relative difference from the spectral norm": abs(value / float(np.linalg.norm(matrix, 2)) - 1),
    }


def story_labels(order: int, stories: int, seed: int) -> tuple[npt.NDArray[np.int64], ntp.SoftLabels]:
    """Contexts [m, order] and soft labels of stories by a small grammar."""
    from headscan.text.counts import count
    from headscan.text.settings import Counting

    grammar = ntp.StoryGrammar()
    counts = count(grammar.stories(stories, seed=seed), len(grammar.vocabulary), Counting(order=order))
    return np.asarray(counts.contexts, dtype=np.int64), ntp.SoftLabels.of(counts.matrix())


def square_root_missing(seed: int) -> Found:
    """The cheap proxy for the Gram matrix of the words: cosine with the certified one, as printed and with the square root."""
    _, labels = story_labels(1, 200, seed)
    prediction = ntp.predict(labels)
    words, _ = prediction.spectrum.factors()
    unrooted = words * np.sqrt(prediction.spectrum.sigma)
    return {
        "cosine with the Gram matrix, as printed": ntp.gram_cosine(unrooted, prediction.words),
        "cosine with the square root": ntp.gram_cosine(words, prediction.words),
    }


def narrow_embedding(seed: int) -> Found:
    """Embeddings of the width that λ = λ_max/20 asks for: certified gap to the unconstrained optimum, nats."""
    _, labels = story_labels(1, 100, seed)
    penalty = 0.05 * ntp.largest_penalty(labels)
    enough = ntp.regularised(labels, penalty)
    found = ntp.narrow(labels, enough.rank, penalty, starts=2, seed=seed, gap=1e-4)
    thin = ntp.narrow(labels, max(1, enough.rank // 3), penalty, starts=2, seed=seed, gap=1e-4)
    follows = int((np.bincount(labels.supports.indices, minlength=labels.vocabulary) > 0).sum())
    return {
        "certified gap (nats)": found.gap, "gap at a third of that width": thin.gap, "width": float(enough.rank),
        "words that follow": float(follows),
    }  # fmt: skip


def printed_probability(seed: int) -> Found:
    """p_jz = #{context j, then z}/n as printed: how far a context's probabilities are from summing to one."""
    labels = ntp.random_labels(10, 20, seed=seed)
    sums = np.bincount(labels.supports.rows, labels.counts, minlength=labels.contexts) / labels.counts.sum()
    return {"largest distance of a sum from 1": float(np.abs(sums - 1).max())}
