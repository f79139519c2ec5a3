"""The theorems and printed formulas of arXiv:2408.15417, as numbers of one random instance each.

What training does is in `training_checks`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

import headscan.ntp as ntp
from headscan.run import BadInput
from headscan.text.counts import count
from headscan.text.source import Counting
from headscan_lab import theory

CheckNumbers = dict[str, float]
"""The numbers of one instance by name; the first is the effect."""
Text = tuple[int, ...]
"""A piece of a text in a tokenizer's ids, whose contexts are the instance; () for a drawn one."""


@dataclass(frozen=True)
class Check:
    """A function that takes a seed, and a text where that can be the instance."""

    function: Callable[..., CheckNumbers]

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def reads_text(self) -> bool:
        return "text" in self.function.__annotations__


def defined(value: float | None) -> float:
    """Return a number that must be defined; raise BadInput otherwise, so that its claim is open."""
    if value is None or not np.isfinite(value):
        raise BadInput("A number that the claim rests on is not defined on this instance.")
    return float(value)


SUBSET_SIZES = [(4, 2), (5, 2), (6, 3), (7, 3), (8, 2)]  # V, k
WIDTH = 10
CONTEXTS = 95
SUPPORTS = 30
WORDS = 60  # of a text that stands in place of a grammar's stories
PIECE = 400  # tokens of a text that stands in place of drawn labels
SHIFTS = (2.0, 4.0, 8.0)  # R of equation 24


def drawn_labels(
    seed: int, text: Text, contexts: int = CONTEXTS, supports: int = SUPPORTS
) -> ntp.SoftLabels:
    """Return soft labels of WIDTH tokens, each context once.

    They are random, or those of the contexts of two tokens of a piece of text.
    """
    if not text:
        return theory.random_labels(WIDTH, contexts, supports=supports, seed=seed)
    _, labels = text_labels(text[:PIECE], 2, WIDTH)
    return ntp.SoftLabels.from_probability(labels.dense())


def text_labels(
    text: Text, order: int, vocabulary: int
) -> tuple[npt.NDArray[np.int64], ntp.SoftLabels]:
    """Return the contexts [m, order] and soft labels of a text.

    The commonest tokens keep numbers of their own; all others share the last number.

    >>> text_labels((7, 7, 5, 7, 9, 7), 1, 2)[1].dense().tolist()
    [[0.3333333333333333, 0.6666666666666666], [1.0, 0.0]]
    """
    commonest = Counter(text).most_common(vocabulary - 1)
    numbers = {token: number for number, (token, _) in enumerate(commonest)}
    ids = np.array([numbers.get(token, vocabulary - 1) for token in text])
    counts = count([ids], vocabulary, Counting(order=order))
    return np.asarray(counts.contexts, dtype=np.int64), ntp.SoftLabels.of(counts.matrix())


def story_labels(
    order: int, stories: int, seed: int, text: Text = ()
) -> tuple[npt.NDArray[np.int64], ntp.SoftLabels]:
    """Return the contexts [m, order] and soft labels of a grammar's stories, or of a text."""
    if text:
        return text_labels(text, order, WORDS)
    grammar = theory.StoryGrammar()
    vocabulary = len(grammar.vocabulary)
    counts = count(grammar.stories(stories, seed=seed), vocabulary, Counting(order=order))
    return np.asarray(counts.contexts, dtype=np.int64), ntp.SoftLabels.of(counts.matrix())


def all_subsets(seed: int) -> CheckNumbers:
    """Compare the solver's solution for all k-subsets, one size a seed, with (40c) and the centred
    support matrix.

    (40c): cos(w_v, h_j) = √((V-1)/(k(V-k))) inside and -1/√(k(V-k)(V-1)) outside.
    """
    V, k = SUBSET_SIZES[seed % len(SUBSET_SIZES)]
    supports = theory.all_subsets(V, k)
    exact = theory.KSubsets(V, k)
    solution = ntp.svm(supports, gap=1e-10)
    W, H = solution.factors()
    unit_contexts = H / np.linalg.norm(H, axis=1, keepdims=True)
    unit_words = W / np.linalg.norm(W, axis=1, keepdims=True)
    cosines = unit_contexts @ unit_words.T
    inside = float(cosines[supports.dense()].mean())
    outside = float(cosines[~supports.dense()].mean())
    return {
        "error of the printed cosines": max(
            abs(inside - exact.printed_word_context_cosine_in),
            abs(outside - exact.printed_word_context_cosine_off),
        ),
        "error of √((V-k)/(k(V-1))) and -√(k/((V-k)(V-1)))": max(
            abs(inside - exact.word_context_cosine_in), abs(outside - exact.word_context_cosine_off)
        ),
        "largest difference": float(np.abs(solution.logits - supports.centred()).max()),
        "relative difference of the nuclear norm": abs(solution.primal / exact.nuclear_norm - 1),
    }


def entropy_of_three(seed: int) -> CheckNumbers:
    """Return the largest entropy of 40 random soft labels on three tokens; log 3 is the maximum."""
    entropies = []
    for number in range(40):
        labels = theory.random_labels(30, 16, sizes=(3, 3), seed=1000 * seed + number)
        entropies.append(labels.entropy())
    return {"largest entropy seen (nats)": max(entropies), "log 3": float(np.log(3))}


def bound_of_equation_24(seed: int, text: Text = ()) -> CheckNumbers:
    """Return the share of trials that violate CE(L^in + R L^mm) ≤ H + V exp(∓2‖L^in‖₂) exp(-R)."""
    if text:
        labels = drawn_labels(seed, text)
    else:
        labels = theory.random_labels(6, 10, sizes=(2, 3), concentration=0.3, seed=seed)
    prediction = ntp.predict(labels, gap=1e-9)
    assert prediction.solution is not None
    sparse = np.zeros((labels.contexts, labels.vocabulary))
    sparse[labels.supports.rows, labels.supports.indices] = prediction.sparse
    norm = float(np.linalg.norm(sparse, 2))
    violated_as_printed = 0
    violated_with_plus = 0
    for R in SHIFTS:
        logits = sparse + R * prediction.solution.logits
        excess = ntp.cross_entropy(logits, labels) - labels.entropy()
        violated_as_printed += bool(excess > labels.vocabulary * np.exp(-2 * norm - R))
        violated_with_plus += bool(excess > labels.vocabulary * np.exp(2 * norm - R))
    return {
        "violated as printed": violated_as_printed / len(SHIFTS),
        "violated with exp(+2‖L^in‖₂)": violated_with_plus / len(SHIFTS),
    }


@dataclass(frozen=True, eq=False)
class _Path:
    """Soft labels, the solution of their NTP-SVM, and the regularisation path."""

    labels: ntp.SoftLabels
    solution: ntp.SvmSolution
    points: list[theory.PathPoint]


@lru_cache(maxsize=8)
def _path(seed: int, text: Text) -> _Path:
    labels = drawn_labels(seed, text, 40, 15)
    penalties = [10.0**-exponent for exponent in range(2, 9)]
    points = theory.regularisation_path(labels, penalties)
    return _Path(labels, ntp.svm(labels, gap=1e-9), points)


def limit_of_the_path(seed: int, text: Text = ()) -> CheckNumbers:
    """Return where the path is at λ = 1e-8: the direction of the logits, with CE - H, the distance
    of the in-support part, and the growth of the direction a decade of λ.
    """
    path = _path(seed, text)
    supports = path.labels.supports
    limit = path.solution.logits
    end = path.points[-1]
    sparse = ntp.sparse_component(path.labels)
    distance = np.linalg.norm(ntp.in_support(end.logits, supports) - sparse)
    growth = []
    for point in path.points[-3:]:
        growth.append(float((point.logits * limit).sum() / (limit**2).sum()))
    deviation = np.abs(np.diff(growth) / np.log(10) - 1)
    outside = ntp.out_of_support(end.logits, supports)
    return {
        "cosine of the direction with L^mm": ntp.cosine(outside, limit),
        "CE - H (nats)": end.excess,
        "relative distance of the in-support part from L^in": float(
            distance / np.linalg.norm(sparse)
        ),
        "cosine of the increment with L^mm": ntp.cosine(theory.increment(path.points), limit),
        "largest relative deviation from log 10 a decade": float(deviation.max()),
        "CE - H over λ‖L^mm‖_*": end.excess / (end.penalty * path.solution.primal),
    }


def norm_of_the_code(seed: int) -> CheckNumbers:
    """Compare what the published code minimises (cvxpy's norm2 of a matrix) with Frobenius's norm
    and the spectral one.
    """
    try:
        import cvxpy as cp
    except ImportError:
        raise BadInput(
            'cvxpy, whose norm2 is looked at, is missing: pip install "headscan[dev]".'
        ) from None
    matrix = np.random.default_rng(seed).normal(size=(4, 3))
    value = float(cp.norm2(cp.Constant(matrix)).value)  # type: ignore[attr-defined]
    frobenius = float(np.linalg.norm(matrix))
    spectral = float(np.linalg.norm(matrix, 2))
    return {
        "relative difference from Frobenius's norm": abs(value / frobenius - 1),
        "relative difference from the spectral norm": abs(value / spectral - 1),
    }


def square_root_missing(seed: int, text: Text = ()) -> CheckNumbers:
    """Compare the cheap proxy for the Gram matrix of the words with the certified one, as printed
    and with the square root.
    """
    _, labels = story_labels(1, 200, seed, text)
    prediction = ntp.predict(labels)
    words, _ = prediction.spectrum.factors()
    as_printed = words * np.sqrt(prediction.spectrum.sigma)
    return {
        "cosine with the Gram matrix, as printed": ntp.gram_cosine(as_printed, prediction.words),
        "cosine with the square root": ntp.gram_cosine(words, prediction.words),
    }


def narrow_embedding(seed: int, text: Text = ()) -> CheckNumbers:
    """Return the certified gap to the unconstrained optimum, in nats, of embeddings of the width
    that λ = λ_max/20 asks for.
    """
    _, labels = story_labels(1, 100, seed, text)
    penalty = 0.05 * theory.largest_penalty(labels)
    rank = theory.regularised(labels, penalty).rank
    full = theory.narrow(labels, rank, penalty, starts=2, seed=seed, gap=1e-4)
    third = theory.narrow(labels, max(1, rank // 3), penalty, starts=2, seed=seed, gap=1e-4)
    occurrences = np.bincount(labels.supports.indices, minlength=labels.vocabulary)
    return {
        "certified gap (nats)": full.gap,
        "gap at a third of that width": third.gap,
        "width": float(rank),
        "words that follow": float((occurrences > 0).sum()),
    }


def printed_probability(seed: int, text: Text = ()) -> CheckNumbers:
    """Return how far a context's probabilities p_jz = #{context j, then z}/n, as printed, are from
    summing to one.
    """
    labels = drawn_labels(seed, text, 20, 20)
    occurrences = np.bincount(labels.supports.rows, labels.counts, minlength=labels.contexts)
    sums = occurrences / labels.counts.sum()
    return {"largest distance of a sum from 1": float(np.abs(sums - 1).max())}


FORMULA_CHECKS = tuple(
    Check(function)
    for function in (
        all_subsets,
        entropy_of_three,
        bound_of_equation_24,
        limit_of_the_path,
        norm_of_the_code,
        square_root_missing,
        narrow_embedding,
        printed_probability,
    )
)
