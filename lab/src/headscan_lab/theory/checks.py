"""What the theorems and printed formulas of arXiv:2408.15417 say, as numbers of one random instance each."""

from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

import headscan.ntp as ntp
from headscan.ntp.observe import observe
from headscan.run import BadInput
from headscan.text.counts import count
from headscan.text.source import Counting
from headscan_lab import theory
from headscan_lab.theory.features import FeatureCheckpoint, FeatureRun, train_features
from headscan_lab.theory.transformer import train_transformer

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
    supports = theory.all_subsets(V, k)
    W, H = ntp.svm(supports, gap=1e-10).factors()
    cosines = (H / np.linalg.norm(H, axis=1, keepdims=True)) @ (W / np.linalg.norm(W, axis=1, keepdims=True)).T
    inside, outside = (float(cosines[mask].mean()) for mask in (supports.dense(), ~supports.dense()))
    exact = theory.KSubsets(V, k)
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
    supports = theory.all_subsets(V, k)
    found = ntp.svm(supports, gap=1e-10)
    return {
        "largest difference": float(np.abs(found.logits - supports.centred()).max()),
        "relative difference of the nuclear norm": abs(found.primal / theory.KSubsets(V, k).nuclear_norm - 1),
    }


def entropy_of_three(seed: int) -> Found:
    """The largest entropy of 40 random soft labels on three tokens; log 3 is the most that there can be."""
    draws = [theory.random_labels(30, 16, sizes=(3, 3), seed=1000 * seed + k).entropy() for k in range(40)]
    return {"largest entropy seen (nats)": max(draws), "log 3": float(np.log(3))}


def bound_of_equation_24(seed: int) -> Found:
    """CE(L^in + R L^mm) ≤ H + V exp(∓2‖L^in‖₂) exp(-R): share of trials in which it is violated."""
    labels = theory.random_labels(6, 10, sizes=(2, 3), concentration=0.3, seed=seed)
    prediction = ntp.predict(labels, gap=1e-9)
    assert prediction.solution is not None
    dense = np.zeros((labels.contexts, labels.vocabulary))
    dense[labels.supports.rows, labels.supports.indices] = prediction.sparse
    norm, broken = float(np.linalg.norm(dense, 2)), {-1: 0, 1: 0}
    for R in (2.0, 4.0, 8.0):
        excess = ntp.cross_entropy(dense + R * prediction.solution.logits, labels) - labels.entropy()
        for sign in broken:
            broken[sign] += bool(excess > labels.vocabulary * np.exp(sign * 2 * norm - R))
    return {"violated as printed": broken[-1] / 3, "violated with exp(+2‖L^in‖₂)": broken[1] / 3}


@lru_cache(maxsize=8)
def _path(seed: int) -> tuple[ntp.SoftLabels, ntp.SvmSolution, list[theory.PathPoint]]:
    labels = theory.random_labels(10, 40, supports=15, seed=seed)
    return labels, ntp.svm(labels, gap=1e-9), list(theory.regularisation_path(labels, [10.0**-k for k in range(2, 9)]))


def limit_of_the_path(seed: int) -> Found:
    """λ → 0 (here 1e-8): the direction of the logits, with CE - H and the distance of the in-support part beside it."""
    labels, solution, points = _path(seed)
    sparse, last = ntp.sparse_component(labels), points[-1].logits
    near = np.linalg.norm(ntp.in_support(last, labels.supports) - sparse) / np.linalg.norm(sparse)
    return {
        "cosine of the direction with L^mm": ntp.cosine(ntp.out_of_support(last, labels.supports), solution.logits),
        "CE - H (nats)": points[-1].excess,
        "relative distance of the in-support part from L^in": float(near),
        "cosine of the increment with L^mm": ntp.cosine(theory.increment(points), solution.logits),
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
    grammar = theory.StoryGrammar()
    counts = count(grammar.stories(stories, seed=seed), len(grammar.vocabulary), Counting(order=order))
    return np.asarray(counts.contexts, dtype=np.int64), ntp.SoftLabels.of(counts.matrix())


def square_root_missing(seed: int) -> Found:
    """The cheap proxy for the Gram matrix of the words: cosine with the certified one, as printed and with the square root."""
    _, labels = story_labels(1, 200, seed)
    prediction = ntp.predict(labels)
    words, _ = prediction.spectrum.factors()
    return {
        "cosine with the Gram matrix, as printed": ntp.gram_cosine(words * np.sqrt(prediction.spectrum.sigma), prediction.words),
        "cosine with the square root": ntp.gram_cosine(words, prediction.words),
    }


def narrow_embedding(seed: int) -> Found:
    """Embeddings of the width that λ = λ_max/20 asks for: certified gap to the unconstrained optimum, nats."""
    _, labels = story_labels(1, 100, seed)
    penalty = 0.05 * theory.largest_penalty(labels)
    enough = theory.regularised(labels, penalty)
    found = theory.narrow(labels, enough.rank, penalty, starts=2, seed=seed, gap=1e-4)
    thin = theory.narrow(labels, max(1, enough.rank // 3), penalty, starts=2, seed=seed, gap=1e-4)
    follows = int((np.bincount(labels.supports.indices, minlength=labels.vocabulary) > 0).sum())
    return {
        "certified gap (nats)": found.gap, "gap at a third of that width": thin.gap, "width": float(enough.rank),
        "words that follow": float(follows),
    }  # fmt: skip


def printed_probability(seed: int) -> Found:
    """p_jz = #{context j, then z}/n as printed: how far a context's probabilities are from summing to one."""
    labels = theory.random_labels(10, 20, seed=seed)
    sums = np.bincount(labels.supports.rows, labels.counts, minlength=labels.contexts) / labels.counts.sum()
    return {"largest distance of a sum from 1": float(np.abs(sums - 1).max())}


# ---- What training does with the geometry that the data predict, as numbers of one run each.

STEPS = 10_000
WIDTH, CONTEXTS, SUPPORTS = 10, 95, 30


@lru_cache(maxsize=16)
def _run(
    seed: int, optimiser: Literal["gd", "adam"] = "gd", init: float = 0.1, width: int = WIDTH
) -> tuple[ntp.SoftLabels, ntp.Prediction, FeatureRun]:
    labels = theory.random_labels(WIDTH, CONTEXTS, supports=SUPPORTS, seed=seed)
    prediction = ntp.predict(labels)
    run = train_features(
        labels, width, STEPS, optimiser=optimiser, init=init, seed=seed, prediction=prediction, checkpoints=[STEPS // 100]
    )
    return labels, prediction, run


def _metrics(checkpoint: FeatureCheckpoint) -> ntp.SupportMetrics:
    assert checkpoint.metrics is not None
    return checkpoint.metrics


def features_align(seed: int) -> Found:
    """Gradient descent on unconstrained features: cosine of the direction of the logits with the predicted one."""
    last = _run(seed)[2].records[-1]
    return {
        "cosine of the direction": defined(_metrics(last).direction), "similarity of words": defined(last.pattern_words),
        "similarity of contexts": defined(last.pattern_contexts),
    }  # fmt: skip


def collapse_of_equal_supports(seed: int) -> Found:
    """Mean cosine of contexts with equal supports, after projection on F⊥ and before."""
    collapse = _metrics(_run(seed)[2].records[-1]).SC1
    assert collapse.before is not None
    assert collapse.after is not None
    return {
        "mean cosine after projection": defined(collapse.after.same_cosine),
        "before projection": defined(collapse.before.same_cosine),
    }


def collapse_from_a_large_start(seed: int) -> Found:
    """The least cosine within a support, from a start of 0.1 less from one of 1."""
    small, large = (_metrics(_run(seed, init=init)[2].records[-1]).SC1.before for init in (0.1, 1.0))
    assert small is not None
    assert large is not None
    low, high = defined(large.least_cosine), defined(small.least_cosine)
    return {"least cosine, small start less large": high - low, "small start": high, "large start": low}


def balance(seed: int) -> Found:
    """|log ‖H‖/‖W‖| by Adam less that by gradient descent."""
    names: tuple[Literal["gd", "adam"], ...] = ("gd", "adam")
    last = {name: _run(seed, name)[2].records[-1] for name in names}
    gd, adam = (abs(float(np.log(last[name].contexts / last[name].words))) for name in names)
    return {"|log ‖H‖/‖W‖|, Adam less gradient descent": adam - gd, "gradient descent": gd, "Adam": adam}


def entropy_reached(seed: int) -> Found:
    """CE - H at the end, nats."""
    return {"CE - H (nats)": _run(seed)[2].records[-1].excess}


def log_odds_learned(seed: int) -> Found:
    """Relative distance of the in-support part of the logits from the log-odds L^in."""
    return {"relative distance from L^in": defined(_metrics(_run(seed)[2].records[-1]).SC3)}


def dominance(seed: int) -> Found:
    """Norm of the low-rank part over that of the sparse part, at the end over a hundredth of the steps, and at the end."""
    labels, _, run = _run(seed)
    early = train_features(labels, WIDTH, STEPS // 100, optimiser="gd", init=0.1, seed=seed, checkpoints=[])
    ratios = [
        float(np.linalg.norm(ntp.out_of_support(one.logits, labels.supports)))
        / float(np.linalg.norm(ntp.in_support(one.logits, labels.supports)))
        for one in (early, run)
    ]
    name = "norm of the low-rank part over the sparse part"
    return {f"{name}, the end over a hundredth of the steps": ratios[1] / ratios[0], f"{name} at the end": ratios[1]}


def only_the_pattern(seed: int) -> Found:
    """Two soft labels on the same supports: cosine of the two low-rank parts after training, and of the sparse parts; and of the
    low-rank parts where the supports of the second are drawn anew, of the same sizes."""
    labels, _, run = _run(seed)
    generator = np.random.default_rng(seed)
    dense = labels.matrix().copy()
    dense.data = generator.uniform(1, 5, len(labels.counts))
    moved = dense.copy()
    for begin, end in pairwise(moved.indptr):  # each context's support anew, of its size
        moved.indices[begin:end] = np.sort(generator.choice(labels.vocabulary, end - begin, replace=False))
    again, elsewhere = (ntp.SoftLabels.of(one) for one in (dense, moved))
    trained = [run.logits, *(train_features(one, WIDTH, STEPS, seed=seed, checkpoints=[]).logits for one in (again, elsewhere))]
    outside = [ntp.out_of_support(one, labels.supports) for one in trained[:2]]
    inside = [ntp.in_support(one, labels.supports) for one in trained[:2]]
    return {
        "cosine of the low-rank parts": ntp.cosine(*outside),
        "cosine of the sparse parts": ntp.cosine(*inside),
        "cosine with other supports of equal sizes": ntp.cosine(outside[0], ntp.out_of_support(trained[2], elsewhere.supports)),
    }  # fmt: skip


def width_below_the_vocabulary(seed: int) -> Found:
    """log10 of CE - H at width 6 less at width 10, V = 10."""
    thin, full = (_run(seed, width=width)[2].records[-1].excess for width in (6, WIDTH))
    return {"log10 CE - H, width 6 less width 10": float(np.log10(thin / full)), "width 6": thin, "width 10": full}


def axes_in_order(seed: int) -> Found:
    """Rank correlation of a centred support axis's place in the order of strength with the steps to half of its strength."""
    _, labels = story_labels(1, 100, seed)
    spectrum = ntp.support_spectrum(labels)
    steps, count = [2**k for k in range(3, 11)], min(10, len(spectrum.sigma))
    strengths = []
    for last in steps:
        run = train_features(labels, labels.vocabulary, last, checkpoints=[], init=1e-3, seed=seed)
        strengths.append(np.einsum("mk,mv,vk->k", spectrum.contexts[:, :count], run.logits, spectrum.tokens[:, :count]))
    grown = np.array(strengths) > 0.5 * spectrum.sigma[:count]
    half = [float(steps[int(np.flatnonzero(row)[0])]) if row.any() else 2.0 * steps[-1] for row in grown.T]
    ranks = np.argsort(np.argsort(half)).astype(float)
    return {"rank correlation": float(np.corrcoef(ranks, np.arange(count))[0, 1])}


def transformer_turns(seed: int) -> Found:
    """A small transformer on simplified stories: cosine of its logits' direction with the predicted one, and CE - H."""
    contexts, labels = story_labels(2, 60, seed)
    prediction = ntp.predict(labels)
    (_, begun), (_, lens) = train_transformer(contexts, labels, width=32, steps=2000, checkpoints=(0,), seed=seed)
    first, last = (ntp.support_metrics(observe(one, contexts, labels.vocabulary)[0], prediction) for one in (begun, lens))
    return {
        "cosine of the direction": defined(last.direction), "CE - H (nats)": float(last.SC6),
        "cosine at the start": float(first.direction or 0.0),
    }  # fmt: skip
