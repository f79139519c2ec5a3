"""The effects of training on the geometry that the data predict, as numbers of one run each."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaForCausalLM

import headscan.ntp as ntp
from headscan.model import Lens
from headscan.ntp.contexts import observe
from headscan_lab import theory
from headscan_lab.theory.checks import (
    WIDTH,
    Check,
    CheckNumbers,
    Text,
    defined,
    drawn_labels,
    story_labels,
)
from headscan_lab.theory.features import FeatureCheckpoint, FeatureRun, train_features
from headscan_lab.theory.transformer import fit, pyramid, small_llama, train_transformer

STEPS = 10_000
NARROW_WIDTH = 6


@lru_cache(maxsize=16)
def _run(
    seed: int,
    text: Text,
    optimiser: Literal["gd", "adam"] = "gd",
    init: float = 0.1,
    width: int = WIDTH,
) -> FeatureRun:
    """Return a run on the unconstrained features of an instance, with its prediction."""
    labels = drawn_labels(seed, text)
    return train_features(
        labels,
        width,
        STEPS,
        optimiser=optimiser,
        init=init,
        seed=seed,
        prediction=ntp.predict(labels),
        checkpoints=[STEPS // 100],
    )


def _metrics(checkpoint: FeatureCheckpoint) -> ntp.SupportMetrics:
    assert checkpoint.metrics is not None
    return checkpoint.metrics


def trained_features(seed: int, text: Text = ()) -> CheckNumbers:
    """Return where gradient descent on unconstrained features ends.

    The numbers are distances from the entropy bound, the predicted directions and the log-odds, and
    the mean cosine of contexts with equal supports, after projection on F⊥ and before.
    """
    end = _run(seed, text).records[-1]
    metrics = _metrics(end)
    numbers = {
        "cosine of the direction": metrics.direction,
        "similarity of words": end.pattern_words,
        "similarity of contexts": end.pattern_contexts,
        "CE - H (nats)": end.excess,
        "relative distance from L^in": metrics.SC3,
        "mean cosine after projection": getattr(metrics.SC1.after, "same_cosine", None),
        "before projection": getattr(metrics.SC1.before, "same_cosine", None),
    }
    return {name: float("nan") if value is None else value for name, value in numbers.items()}


def collapse_from_a_large_start(seed: int, text: Text = ()) -> CheckNumbers:
    """Return the least cosine within a support, from a start of 0.1 less from one of 1."""
    small_start = _least_cosine(seed, text, 0.1)
    large_start = _least_cosine(seed, text, 1.0)
    return {
        "least cosine, small start less large": small_start - large_start,
        "small start": small_start,
        "large start": large_start,
    }


def _least_cosine(seed: int, text: Text, init: float) -> float:
    collapse = _metrics(_run(seed, text, init=init).records[-1]).SC1.before
    return defined(getattr(collapse, "least_cosine", None))


def balance(seed: int, text: Text = ()) -> CheckNumbers:
    """Return |log ‖H‖/‖W‖| by Adam less that by gradient descent."""
    gradient_descent = _imbalance(_run(seed, text, "gd").records[-1])
    adam = _imbalance(_run(seed, text, "adam").records[-1])
    return {
        "|log ‖H‖/‖W‖|, Adam less gradient descent": adam - gradient_descent,
        "gradient descent": gradient_descent,
        "Adam": adam,
    }


def _imbalance(checkpoint: FeatureCheckpoint) -> float:
    return abs(float(np.log(checkpoint.contexts / checkpoint.words)))


def dominance(seed: int, text: Text = ()) -> CheckNumbers:
    """Return the norm of the low-rank part over that of the sparse part.

    It is read at the end over a hundredth of the steps, and at the end.
    """
    labels = drawn_labels(seed, text)
    end = _run(seed, text)
    early = train_features(
        labels, WIDTH, STEPS // 100, optimiser="gd", init=0.1, seed=seed, checkpoints=[]
    )
    early_ratio = _low_rank_over_sparse(early, labels)
    end_ratio = _low_rank_over_sparse(end, labels)
    name = "norm of the low-rank part over the sparse part"
    return {
        f"{name}, the end over a hundredth of the steps": end_ratio / early_ratio,
        f"{name} at the end": end_ratio,
    }


def _low_rank_over_sparse(run: FeatureRun, labels: ntp.SoftLabels) -> float:
    low_rank = float(np.linalg.norm(ntp.out_of_support(run.logits, labels.supports)))
    return low_rank / float(np.linalg.norm(ntp.in_support(run.logits, labels.supports)))


def only_the_pattern(seed: int, text: Text = ()) -> CheckNumbers:
    """Return the cosines of the trained parts of two soft labels on the same supports.

    They are those of the two low-rank parts and of the two sparse parts; and of the low-rank parts
    where the supports of the second labels are drawn anew, of the same sizes.
    """
    labels = drawn_labels(seed, text)
    generator = np.random.default_rng(seed)
    same_supports = labels.matrix().copy()
    same_supports.data = generator.uniform(1, 5, len(labels.counts))
    other_supports = same_supports.copy()
    for begin, end in pairwise(other_supports.indptr):
        drawn = generator.choice(labels.vocabulary, end - begin, replace=False)
        other_supports.indices[begin:end] = np.sort(drawn)

    original_logits = _run(seed, text).logits
    same_logits = _trained_logits(ntp.SoftLabels.of(same_supports), seed)
    other_labels = ntp.SoftLabels.of(other_supports)
    other_logits = _trained_logits(other_labels, seed)
    low_rank = ntp.out_of_support(original_logits, labels.supports)
    return {
        "cosine of the low-rank parts": ntp.cosine(
            low_rank, ntp.out_of_support(same_logits, labels.supports)
        ),
        "cosine of the sparse parts": ntp.cosine(
            ntp.in_support(original_logits, labels.supports),
            ntp.in_support(same_logits, labels.supports),
        ),
        "cosine with other supports of equal sizes": ntp.cosine(
            low_rank, ntp.out_of_support(other_logits, other_labels.supports)
        ),
    }


def _trained_logits(labels: ntp.SoftLabels, seed: int) -> npt.NDArray[np.float64]:
    return train_features(labels, WIDTH, STEPS, seed=seed, checkpoints=[]).logits


def width_below_the_vocabulary(seed: int, text: Text = ()) -> CheckNumbers:
    """Return log10 of CE - H at width 6 less at width 10, V = 10."""
    narrow = _run(seed, text, width=NARROW_WIDTH).records[-1].excess
    full = _run(seed, text, width=WIDTH).records[-1].excess
    return {
        "log10 CE - H, width 6 less width 10": float(np.log10(narrow / full)),
        "width 6": narrow,
        "width 10": full,
    }


def axes_in_order(seed: int, text: Text = ()) -> CheckNumbers:
    """Return the rank correlation of a support axis's strength with the steps to half of it.

    The axes of the centred supports are in the order of their strength.
    """
    _, labels = story_labels(1, 100, seed, text)
    spectrum = ntp.support_spectrum(labels)
    steps = [2**exponent for exponent in range(3, 11)]
    axes = min(10, len(spectrum.sigma))
    left = spectrum.contexts[:, :axes]
    right = spectrum.tokens[:, :axes]
    strengths = []
    for last in steps:
        run = train_features(labels, labels.vocabulary, last, checkpoints=[], init=1e-3, seed=seed)
        strengths.append(np.einsum("mk,mv,vk->k", left, run.logits, right))
    half_grown = np.array(strengths) > 0.5 * spectrum.sigma[:axes]
    steps_to_half = []
    for axis in half_grown.T:
        reached = np.flatnonzero(axis)
        steps_to_half.append(float(steps[reached[0]]) if len(reached) else 2.0 * steps[-1])
    ranks = np.argsort(np.argsort(steps_to_half)).astype(float)
    return {"rank correlation": float(np.corrcoef(ranks, np.arange(axes))[0, 1])}


def transformer_turns(seed: int, text: Text = ()) -> CheckNumbers:
    """Train a small transformer on simplified stories; return the cosine of its logits' direction
    with the predicted one, and CE - H.
    """
    contexts, labels = story_labels(2, 60, seed, text)
    prediction = ntp.predict(labels)
    checkpoints = train_transformer(
        contexts, labels, width=32, steps=2000, checkpoints=(0,), seed=seed
    )
    (_, untrained), (_, trained) = checkpoints

    def metrics(lens: Lens) -> ntp.SupportMetrics:
        embeddings = observe(lens, contexts, labels.vocabulary)[0]
        return ntp.support_metrics(embeddings, prediction)

    start = metrics(untrained)
    end = metrics(trained)
    return {
        "cosine of the direction": defined(end.direction),
        "CE - H (nats)": float(end.SC6),
        "cosine at the start": float(start.direction or 0.0),
    }


def mlp_stays_behind(seed: int, text: Text = ()) -> CheckNumbers:
    """Return CE - H of an MLP with eight times the parameters of the small transformer, after as
    many steps.
    """
    contexts, labels = story_labels(2, 60, seed, text)
    least = 8 * _parameters(small_llama(labels.vocabulary, 32, 2, 2, seed))
    mlps = (pyramid(labels.vocabulary, 2, narrowest, seed) for narrowest in range(8, 200))
    mlp = next(mlp for mlp in mlps if _parameters(mlp) >= least)
    excess = fit(mlp, contexts, labels, 2000, learning_rate=1e-3, seed=seed)
    return {"CE - H of the MLP (nats)": excess}


def _parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


LONGEST = 5  # tokens of a context


def short_contexts_first(seed: int, text: Text = ()) -> CheckNumbers:
    """Train on all positions of windows, and compare long contexts with short ones.

    Return CE - H of contexts of LONGEST tokens less that of one token, in nats; and how much nearer
    contexts of LONGEST tokens that no token follows both lie where they end alike.
    """
    documents = [np.array(text)] if text else theory.StoryGrammar().stories(30, seed=seed)
    sliding = np.lib.stride_tricks.sliding_window_view
    windows = np.concatenate([sliding(document, LONGEST + 1) for document in documents])
    numbers = np.unique(windows, return_inverse=True)[1]
    ids = torch.from_numpy(numbers.reshape(windows.shape))
    model = _trained_on_windows(ids, seed)
    with torch.no_grad():
        states = model.model(input_ids=ids[:, :-1]).last_hidden_state
        logits = model.lm_head(states).transpose(1, 2)
        nats = F.cross_entropy(logits, ids[:, 1:], reduction="none").mean(0).numpy()
    excess = nats - np.diff(_entropies(ids))

    geometry = _contexts_of(ids, states)
    cosines = geometry.states @ geometry.states.T
    disjoint = geometry.follows @ geometry.follows.T == 0
    same_end = geometry.contexts[:, None, -1] == geometry.contexts[None, :, -1]
    difference = cosines[disjoint & same_end].mean() - cosines[disjoint & ~same_end].mean()
    return {
        f"CE - H (nats), contexts of {LONGEST} tokens less those of one": float(
            excess[-1] - excess[0]
        ),
        "cosine of contexts that end alike, of which no token follows both, less others": float(
            difference
        ),
    }


def _trained_on_windows(ids: Tensor, seed: int) -> LlamaForCausalLM:
    """Return a small Llama trained on windows [n, LONGEST + 1]."""
    model = small_llama(int(ids.max()) + 1, 32, 2, LONGEST, seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(1500):
        rows = ids[torch.randint(len(ids), (128,), generator=generator)]
        optimiser.zero_grad()
        logits = model(input_ids=rows[:, :-1]).logits.flatten(0, 1)
        F.cross_entropy(logits, rows[:, 1:].flatten()).backward()
        optimiser.step()
    return model


def _entropies(ids: Tensor) -> list[float]:
    """Return the entropy of the first 1, 2, ... tokens of the windows, in nats."""
    entropies = []
    for length in range(1, LONGEST + 2):
        occurrences = np.unique(ids[:, :length], axis=0, return_counts=True)[1]
        shares = occurrences / len(ids)
        entropies.append(-(shares * np.log(shares)).sum())
    return entropies


@dataclass(frozen=True, eq=False)
class _Contexts:
    """Distinct contexts [m, LONGEST], the tokens that follow each [m, V], unit states [m, d]."""

    contexts: npt.NDArray[np.int64]
    follows: npt.NDArray[np.float64]
    states: npt.NDArray[np.float64]


def _contexts_of(ids: Tensor, states: Tensor) -> _Contexts:
    contexts, context_of_window = np.unique(ids[:, :-1], axis=0, return_inverse=True)
    follows = np.zeros((len(contexts), int(ids.max()) + 1))
    follows[context_of_window, ids[:, -1]] = 1
    unit_states = np.zeros((len(contexts), states.shape[2]))
    unit_states[context_of_window] = F.normalize(states[:, -1], dim=1).numpy()
    return _Contexts(contexts, follows, unit_states)


TRAINING_CHECKS = tuple(
    Check(function)
    for function in (
        trained_features,
        collapse_from_a_large_start,
        balance,
        dominance,
        only_the_pattern,
        width_below_the_vocabulary,
        axes_in_order,
        transformer_turns,
        mlp_stays_behind,
        short_contexts_first,
    )
)
