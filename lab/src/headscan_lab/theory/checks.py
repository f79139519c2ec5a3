"""What the theorems and printed formulas of arXiv:2408.15417 say, as numbers of one random instance
each.
"""

from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

import headscan.ntp as ntp
from headscan.ntp.contexts import observe
from headscan.run import BadInput
from headscan.text.counts import count
from headscan.text.source import Counting
from headscan_lab import theory
from headscan_lab.theory.features import FeatureCheckpoint, FeatureRun, train_features
from headscan_lab.theory.transformer import fit, pyramid, small_llama, train_transformer

Found = dict[str, float]
"""What one instance gave, by name; the first number is the effect."""
Text = tuple[int, ...]
"""A piece of a text in a tokenizer's ids, whose contexts are the instance; () is an instance that
is drawn.
"""


def defined(value: float | None) -> float:
    """A number that must be there; BadInput where it is not defined, which leaves its claim
    undecided.
    """
    if value is None or not np.isfinite(value):
        raise BadInput("A number that the claim rests on is not defined on this instance.")
    return float(value)


SIZES = [(4, 2), (5, 2), (6, 3), (7, 3), (8, 2)]
STEPS = 10_000
WIDTH = 10
CONTEXTS = 95
SUPPORTS = 30
# of a text: its words where a grammar's stories have so many, its tokens where labels are of WIDTH
WORDS = 60
PIECE = 400


def all_subsets(seed: int) -> Found:
    """The solver's solution for all k-subsets, one size a seed, against (40c), cos(w_v, h_j) =
    √((V-1)/(k(V-k))) inside and -1/√(k(V-k)(V-1)) outside, and against the centred support matrix.
    """
    V, k = SIZES[seed % len(SIZES)]
    supports = theory.all_subsets(V, k)
    exact = theory.KSubsets(V, k)
    found = ntp.svm(supports, gap=1e-10)
    W, H = found.factors()
    cosines = (H / np.linalg.norm(H, axis=1, keepdims=True)) @ (
        W / np.linalg.norm(W, axis=1, keepdims=True)
    ).T
    inside, outside = (
        float(cosines[mask].mean()) for mask in (supports.dense(), ~supports.dense())
    )
    printed = exact.printed_word_context_cosine_in, exact.printed_word_context_cosine_off
    return {
        "error of the printed cosines": max(abs(inside - printed[0]), abs(outside - printed[1])),
        "error of √((V-k)/(k(V-1))) and -√(k/((V-k)(V-1)))": max(
            abs(inside - exact.word_context_cosine_in), abs(outside - exact.word_context_cosine_off)
        ),
        "largest difference": float(np.abs(found.logits - supports.centred()).max()),
        "relative difference of the nuclear norm": abs(found.primal / exact.nuclear_norm - 1),
    }


def entropy_of_three(seed: int) -> Found:
    """The largest entropy of 40 random soft labels on three tokens; log 3 is the most that there
    can be.
    """
    draws = [
        theory.random_labels(30, 16, sizes=(3, 3), seed=1000 * seed + k).entropy()
        for k in range(40)
    ]
    return {"largest entropy seen (nats)": max(draws), "log 3": float(np.log(3))}


def bound_of_equation_24(seed: int, text: Text = ()) -> Found:
    """CE(L^in + R L^mm) ≤ H + V exp(∓2‖L^in‖₂) exp(-R): share of trials in which it is violated."""
    labels = (
        drawn(seed, text)
        if text
        else theory.random_labels(6, 10, sizes=(2, 3), concentration=0.3, seed=seed)
    )
    prediction = ntp.predict(labels, gap=1e-9)
    assert prediction.solution is not None
    dense = np.zeros((labels.contexts, labels.vocabulary))
    dense[labels.supports.rows, labels.supports.indices] = prediction.sparse
    norm = float(np.linalg.norm(dense, 2))
    broken = {-1: 0, 1: 0}
    for R in (2.0, 4.0, 8.0):
        excess = (
            ntp.cross_entropy(dense + R * prediction.solution.logits, labels) - labels.entropy()
        )
        for sign in broken:
            broken[sign] += bool(excess > labels.vocabulary * np.exp(sign * 2 * norm - R))
    return {"violated as printed": broken[-1] / 3, "violated with exp(+2‖L^in‖₂)": broken[1] / 3}


@lru_cache(maxsize=8)
def _path(seed: int, text: Text) -> tuple[ntp.SoftLabels, ntp.SvmSolution, list[theory.PathPoint]]:
    labels = drawn(seed, text, 40, 15)
    return (
        labels,
        ntp.svm(labels, gap=1e-9),
        list(theory.regularisation_path(labels, [10.0**-k for k in range(2, 9)])),
    )


def limit_of_the_path(seed: int, text: Text = ()) -> Found:
    """λ → 0 (here 1e-8): the direction of the logits, with CE - H, the distance of the in-support
    part, and the growth of the direction a decade of λ, beside it.
    """
    labels, solution, points = _path(seed, text)
    sparse = ntp.sparse_component(labels)
    last = points[-1].logits
    near = np.linalg.norm(ntp.in_support(last, labels.supports) - sparse) / np.linalg.norm(sparse)
    growth = [
        float((p.logits * solution.logits).sum() / (solution.logits**2).sum()) for p in points[-3:]
    ]
    return {
        "cosine of the direction with L^mm": ntp.cosine(
            ntp.out_of_support(last, labels.supports), solution.logits
        ),
        "CE - H (nats)": points[-1].excess,
        "relative distance of the in-support part from L^in": float(near),
        "cosine of the increment with L^mm": ntp.cosine(theory.increment(points), solution.logits),
        "largest relative deviation from log 10 a decade": float(
            np.abs(np.diff(growth) / np.log(10) - 1).max()
        ),
        "CE - H over λ‖L^mm‖_*": points[-1].excess / (points[-1].penalty * solution.primal),
    }


def norm_of_the_code(seed: int) -> Found:
    """What the published code minimises (cvxpy's norm2 of a matrix), against Frobenius's norm and
    the spectral one.
    """
    try:
        import cvxpy as cp
    except ImportError:
        raise BadInput(
            'cvxpy, whose norm2 is looked at, is missing: pip install "headscan[dev]".'
        ) from None
    matrix = np.random.default_rng(seed).normal(size=(4, 3))
    value = float(cp.norm2(cp.Constant(matrix)).value)  # type: ignore[attr-defined]
    return {
        "relative difference from Frobenius's norm": abs(value / float(np.linalg.norm(matrix)) - 1),
        "relative difference from the spectral norm": abs(
            value / float(np.linalg.norm(matrix, 2)) - 1
        ),
    }


def drawn(
    seed: int, text: Text, contexts: int = CONTEXTS, supports: int = SUPPORTS
) -> ntp.SoftLabels:
    """Soft labels of WIDTH tokens, each context once: random ones, or those of the contexts of two
    tokens of a piece.
    """
    if not text:
        return theory.random_labels(WIDTH, contexts, supports=supports, seed=seed)
    return ntp.SoftLabels.from_probability(text_labels(text[:PIECE], 2, WIDTH)[1].dense())


def text_labels(
    text: Text, order: int, vocabulary: int
) -> tuple[npt.NDArray[np.int64], ntp.SoftLabels]:
    """Contexts [m, order] and soft labels of a text whose commonest tokens keep numbers of their
    own; all others are one.

    >>> text_labels((7, 7, 5, 7, 9, 7), 1, 2)[1].dense().tolist()
    [[0.3333333333333333, 0.6666666666666666], [1.0, 0.0]]
    """
    number = {
        token: place for place, (token, _) in enumerate(Counter(text).most_common(vocabulary - 1))
    }
    ids = np.array([number.get(token, vocabulary - 1) for token in text])
    counts = count([ids], vocabulary, Counting(order=order))
    return np.asarray(counts.contexts, dtype=np.int64), ntp.SoftLabels.of(counts.matrix())


def story_labels(
    order: int, stories: int, seed: int, text: Text = ()
) -> tuple[npt.NDArray[np.int64], ntp.SoftLabels]:
    """Contexts [m, order] and soft labels of stories by a small grammar, or of a text."""
    if text:
        return text_labels(text, order, WORDS)
    grammar = theory.StoryGrammar()
    counts = count(
        grammar.stories(stories, seed=seed), len(grammar.vocabulary), Counting(order=order)
    )
    return np.asarray(counts.contexts, dtype=np.int64), ntp.SoftLabels.of(counts.matrix())


def square_root_missing(seed: int, text: Text = ()) -> Found:
    """The cheap proxy for the Gram matrix of the words: cosine with the certified one, as printed
    and with the square root.
    """
    _, labels = story_labels(1, 200, seed, text)
    prediction = ntp.predict(labels)
    words, _ = prediction.spectrum.factors()
    return {
        "cosine with the Gram matrix, as printed": ntp.gram_cosine(
            words * np.sqrt(prediction.spectrum.sigma), prediction.words
        ),
        "cosine with the square root": ntp.gram_cosine(words, prediction.words),
    }


def narrow_embedding(seed: int, text: Text = ()) -> Found:
    """Embeddings of the width that λ = λ_max/20 asks for: certified gap to the unconstrained
    optimum, nats.
    """
    _, labels = story_labels(1, 100, seed, text)
    penalty = 0.05 * theory.largest_penalty(labels)
    enough = theory.regularised(labels, penalty)
    found = theory.narrow(labels, enough.rank, penalty, starts=2, seed=seed, gap=1e-4)
    thin = theory.narrow(labels, max(1, enough.rank // 3), penalty, starts=2, seed=seed, gap=1e-4)
    follows = int((np.bincount(labels.supports.indices, minlength=labels.vocabulary) > 0).sum())
    return {
        "certified gap (nats)": found.gap,
        "gap at a third of that width": thin.gap,
        "width": float(enough.rank),
        "words that follow": float(follows),
    }


def printed_probability(seed: int, text: Text = ()) -> Found:
    """p_jz = #{context j, then z}/n as printed: how far a context's probabilities are from summing
    to one.
    """
    labels = drawn(seed, text, 20, 20)
    sums = (
        np.bincount(labels.supports.rows, labels.counts, minlength=labels.contexts)
        / labels.counts.sum()
    )
    return {"largest distance of a sum from 1": float(np.abs(sums - 1).max())}


# ---- What training does with the geometry that the data predict, as numbers of one run each.


@lru_cache(maxsize=16)
def _run(
    seed: int,
    text: Text,
    optimiser: Literal["gd", "adam"] = "gd",
    init: float = 0.1,
    width: int = WIDTH,
) -> tuple[ntp.SoftLabels, ntp.Prediction, FeatureRun]:
    labels = drawn(seed, text)
    prediction = ntp.predict(labels)
    run = train_features(
        labels,
        width,
        STEPS,
        optimiser=optimiser,
        init=init,
        seed=seed,
        prediction=prediction,
        checkpoints=[STEPS // 100],
    )
    return labels, prediction, run


def _metrics(checkpoint: FeatureCheckpoint) -> ntp.SupportMetrics:
    assert checkpoint.metrics is not None
    return checkpoint.metrics


def trained_features(seed: int, text: Text = ()) -> Found:
    """Where gradient descent on unconstrained features ends: distances from the entropy bound, the
    predicted directions and the log-odds, and the mean cosine of contexts with equal supports,
    after projection on F⊥ and before.
    """
    last = _run(seed, text)[2].records[-1]
    metrics = _metrics(last)
    found = {
        "cosine of the direction": metrics.direction,
        "similarity of words": last.pattern_words,
        "similarity of contexts": last.pattern_contexts,
        "CE - H (nats)": last.excess,
        "relative distance from L^in": metrics.SC3,
        "mean cosine after projection": getattr(metrics.SC1.after, "same_cosine", None),
        "before projection": getattr(metrics.SC1.before, "same_cosine", None),
    }
    return {name: float("nan") if value is None else value for name, value in found.items()}


def collapse_from_a_large_start(seed: int, text: Text = ()) -> Found:
    """The least cosine within a support, from a start of 0.1 less from one of 1."""
    starts = (
        _metrics(_run(seed, text, init=init)[2].records[-1]).SC1.before for init in (0.1, 1.0)
    )
    high, low = (defined(getattr(one, "least_cosine", None)) for one in starts)
    return {
        "least cosine, small start less large": high - low,
        "small start": high,
        "large start": low,
    }


def balance(seed: int, text: Text = ()) -> Found:
    """|log ‖H‖/‖W‖| by Adam less that by gradient descent."""
    names: tuple[Literal["gd", "adam"], ...] = ("gd", "adam")
    last = {name: _run(seed, text, name)[2].records[-1] for name in names}
    gd, adam = (abs(float(np.log(last[name].contexts / last[name].words))) for name in names)
    return {
        "|log ‖H‖/‖W‖|, Adam less gradient descent": adam - gd,
        "gradient descent": gd,
        "Adam": adam,
    }


def dominance(seed: int, text: Text = ()) -> Found:
    """Norm of the low-rank part over that of the sparse part, at the end over a hundredth of the
    steps, and at the end.
    """
    labels, _, run = _run(seed, text)
    early = train_features(
        labels, WIDTH, STEPS // 100, optimiser="gd", init=0.1, seed=seed, checkpoints=[]
    )
    ratios = [
        float(np.linalg.norm(ntp.out_of_support(one.logits, labels.supports)))
        / float(np.linalg.norm(ntp.in_support(one.logits, labels.supports)))
        for one in (early, run)
    ]
    name = "norm of the low-rank part over the sparse part"
    return {
        f"{name}, the end over a hundredth of the steps": ratios[1] / ratios[0],
        f"{name} at the end": ratios[1],
    }


def only_the_pattern(seed: int, text: Text = ()) -> Found:
    """Two soft labels on the same supports: cosine of the two low-rank parts after training, and of
    the sparse parts; and of the low-rank parts where the supports of the second are drawn anew, of
    the same sizes.
    """
    labels, _, run = _run(seed, text)
    generator = np.random.default_rng(seed)
    dense = labels.matrix().copy()
    dense.data = generator.uniform(1, 5, len(labels.counts))
    moved = dense.copy()
    for begin, end in pairwise(moved.indptr):  # each context's support anew, of its size
        moved.indices[begin:end] = np.sort(
            generator.choice(labels.vocabulary, end - begin, replace=False)
        )
    again, elsewhere = (ntp.SoftLabels.of(one) for one in (dense, moved))
    trained = [
        run.logits,
        *(
            train_features(one, WIDTH, STEPS, seed=seed, checkpoints=[]).logits
            for one in (again, elsewhere)
        ),
    ]
    outside = [ntp.out_of_support(one, labels.supports) for one in trained[:2]]
    inside = [ntp.in_support(one, labels.supports) for one in trained[:2]]
    return {
        "cosine of the low-rank parts": ntp.cosine(*outside),
        "cosine of the sparse parts": ntp.cosine(*inside),
        "cosine with other supports of equal sizes": ntp.cosine(
            outside[0], ntp.out_of_support(trained[2], elsewhere.supports)
        ),
    }


def width_below_the_vocabulary(seed: int, text: Text = ()) -> Found:
    """log10 of CE - H at width 6 less at width 10, V = 10."""
    thin, full = (_run(seed, text, width=width)[2].records[-1].excess for width in (6, WIDTH))
    return {
        "log10 CE - H, width 6 less width 10": float(np.log10(thin / full)),
        "width 6": thin,
        "width 10": full,
    }


def axes_in_order(seed: int, text: Text = ()) -> Found:
    """Rank correlation of a centred support axis's place in the order of strength with the steps to
    half of its strength.
    """
    _, labels = story_labels(1, 100, seed, text)
    spectrum = ntp.support_spectrum(labels)
    steps = [2**k for k in range(3, 11)]
    count = min(10, len(spectrum.sigma))
    strengths = []
    for last in steps:
        run = train_features(labels, labels.vocabulary, last, checkpoints=[], init=1e-3, seed=seed)
        strengths.append(
            np.einsum(
                "mk,mv,vk->k", spectrum.contexts[:, :count], run.logits, spectrum.tokens[:, :count]
            )
        )
    grown = np.array(strengths) > 0.5 * spectrum.sigma[:count]
    half = [
        float(steps[int(np.flatnonzero(row)[0])]) if row.any() else 2.0 * steps[-1]
        for row in grown.T
    ]
    ranks = np.argsort(np.argsort(half)).astype(float)
    return {"rank correlation": float(np.corrcoef(ranks, np.arange(count))[0, 1])}


def transformer_turns(seed: int, text: Text = ()) -> Found:
    """A small transformer on simplified stories: cosine of its logits' direction with the predicted
    one, and CE - H.
    """
    contexts, labels = story_labels(2, 60, seed, text)
    prediction = ntp.predict(labels)
    (_, begun), (_, lens) = train_transformer(
        contexts, labels, width=32, steps=2000, checkpoints=(0,), seed=seed
    )
    first, last = (
        ntp.support_metrics(observe(one, contexts, labels.vocabulary)[0], prediction)
        for one in (begun, lens)
    )
    return {
        "cosine of the direction": defined(last.direction),
        "CE - H (nats)": float(last.SC6),
        "cosine at the start": float(first.direction or 0.0),
    }


def mlp_stays_behind(seed: int, text: Text = ()) -> Found:
    """CE - H of an MLP with eight times the parameters of the small transformer, after as many
    steps.
    """
    contexts, labels = story_labels(2, 60, seed, text)
    many = 8 * sum(
        one.numel() for one in small_llama(labels.vocabulary, 32, 2, 2, seed).parameters()
    )
    mlps = (pyramid(labels.vocabulary, 2, narrowest, seed) for narrowest in range(8, 200))
    mlp = next(one for one in mlps if sum(part.numel() for part in one.parameters()) >= many)
    return {
        "CE - H of the MLP (nats)": fit(mlp, contexts, labels, 2000, learning_rate=1e-3, seed=seed)
    }


LONGEST = 5  # tokens of a context


def short_contexts_first(seed: int, text: Text = ()) -> Found:
    """Trained on all positions of windows: CE - H of contexts of LONGEST tokens less that of one
    token, nats; and how much nearer contexts of LONGEST tokens that no token follows both lie where
    they end alike.
    """
    documents = [np.array(text)] if text else theory.StoryGrammar().stories(30, seed=seed)
    windows = np.concatenate(
        [np.lib.stride_tricks.sliding_window_view(one, LONGEST + 1) for one in documents]
    )
    ids = torch.from_numpy(np.unique(windows, return_inverse=True)[1].reshape(windows.shape))
    model = small_llama(int(ids.max()) + 1, 32, 2, LONGEST, seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    drawing = torch.Generator().manual_seed(seed)
    for _ in range(1500):
        rows = ids[torch.randint(len(ids), (128,), generator=drawing)]
        optimiser.zero_grad()
        F.cross_entropy(
            model(input_ids=rows[:, :-1]).logits.flatten(0, 1), rows[:, 1:].flatten()
        ).backward()
        optimiser.step()
    shares = [
        np.unique(ids[:, :k], axis=0, return_counts=True)[1] / len(ids)
        for k in range(1, LONGEST + 2)
    ]
    with torch.no_grad():
        seen = model.model(input_ids=ids[:, :-1]).last_hidden_state
        nats = (
            F.cross_entropy(model.lm_head(seen).transpose(1, 2), ids[:, 1:], reduction="none")
            .mean(0)
            .numpy()
        )
    excess = nats - np.diff([-(one * np.log(one)).sum() for one in shares])
    ends, which = np.unique(ids[:, :-1], axis=0, return_inverse=True)
    follows = np.zeros((len(ends), int(ids.max()) + 1))
    states = np.zeros((len(ends), seen.shape[2]))
    follows[which, ids[:, -1]], states[which] = 1, F.normalize(seen[:, -1], dim=1).numpy()
    cosines = states @ states.T
    apart = follows @ follows.T == 0
    alike = ends[:, None, -1] == ends[None, :, -1]
    return {
        f"CE - H (nats), contexts of {LONGEST} tokens less those of one": float(
            excess[-1] - excess[0]
        ),
        "cosine of contexts that end alike, of which no token follows both, less others": float(
            cosines[apart & alike].mean() - cosines[apart & ~alike].mean()
        ),
    }
