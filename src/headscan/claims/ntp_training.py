"""What training does with the geometry that the data predict, as numbers of one run each."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np

import headscan.ntp as ntp
from headscan.claims.ntp_theory import Found, defined, story_labels
from headscan.claims.ntp_transformer import train_transformer
from headscan.ntp.observe import observe

__all__ = [
    "axes_in_order", "balance", "collapse_from_a_large_start", "collapse_of_equal_supports", "dominance", "entropy_reached",
    "features_align", "log_odds_learned", "only_the_pattern", "transformer_turns", "width_below_the_vocabulary",
]  # fmt: skip

STEPS = 10_000
WIDTH, CONTEXTS, SUPPORTS = 10, 95, 30


@lru_cache(maxsize=16)
def _run(
    seed: int, optimiser: Literal["gd", "adam"] = "gd", init: float = 0.1, width: int = WIDTH
) -> tuple[ntp.SoftLabels, ntp.Prediction, ntp.FeatureRun]:
    labels = ntp.random_labels(WIDTH, CONTEXTS, supports=SUPPORTS, seed=seed)
    prediction = ntp.predict(labels)
    run = ntp.train_features(
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


def _metrics(run: ntp.FeatureRun) -> ntp.SupportMetrics:
    metrics = run.records[-1].metrics
    assert metrics is not None
    return metrics


def features_align(seed: int) -> Found:
    """Gradient descent on unconstrained features: cosine of the direction of the logits with the predicted one."""
    m = _metrics(_run(seed)[2])
    return {
        "cosine of the direction": defined(m.direction), "similarity of words": defined(m.pattern_words),
        "similarity of contexts": defined(m.pattern_contexts),
    }  # fmt: skip


def collapse_of_equal_supports(seed: int) -> Found:
    """Mean cosine of contexts with equal supports, after projection on F⊥ and before."""
    collapse = _metrics(_run(seed)[2]).SC1
    assert collapse.before is not None
    assert collapse.after is not None
    return {
        "mean cosine after projection": defined(collapse.after.same_cosine),
        "before projection": defined(collapse.before.same_cosine),
    }


def collapse_from_a_large_start(seed: int) -> Found:
    """The least cosine within a support, from a start of 0.1 less from one of 1."""
    small, large = (_metrics(_run(seed, init=init)[2]).SC1.before for init in (0.1, 1.0))
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
    return {"relative distance from L^in": defined(_metrics(_run(seed)[2]).SC3)}


def dominance(seed: int) -> Found:
    """Norm of the low-rank part over that of the sparse part at the end; the first grows, the second converges."""
    labels, _, run = _run(seed)
    parts = ntp.out_of_support(run.logits, labels.supports), ntp.in_support(run.logits, labels.supports)
    low_rank, sparse = (float(np.linalg.norm(part)) for part in parts)
    return {"norm of the low-rank part over the sparse part": low_rank / sparse, "low-rank": low_rank, "sparse": sparse}


def only_the_pattern(seed: int) -> Found:
    """Two soft labels on the same supports: cosine of the two low-rank parts after training, and of the sparse parts."""
    labels, _, run = _run(seed)
    drawn = np.random.default_rng(seed).uniform(1, 5, len(labels.counts))
    dense = labels.matrix().copy()
    dense.data = drawn
    other = ntp.SoftLabels.of(dense)
    again = ntp.train_features(other, WIDTH, STEPS, seed=seed, checkpoints=[])
    outside = [ntp.out_of_support(one.logits, labels.supports) for one in (run, again)]
    inside = [ntp.in_support(one.logits, labels.supports) for one in (run, again)]
    return {"cosine of the low-rank parts": ntp.cosine(*outside), "cosine of the sparse parts": ntp.cosine(*inside)}


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
        run = ntp.train_features(labels, labels.vocabulary, last, checkpoints=[], init=1e-3, seed=seed)
        strengths.append(np.einsum("mk,mv,vk->k", spectrum.contexts[:, :count], run.logits, spectrum.tokens[:, :count]))
    grown = np.array(strengths) > 0.5 * spectrum.sigma[:count]
    half = [float(steps[int(np.flatnonzero(row)[0])]) if row.any() else 2.0 * steps[-1] for row in grown.T]
    ranks = np.argsort(np.argsort(half)).astype(float)
    return {"rank correlation": float(np.corrcoef(ranks, np.arange(count))[0, 1])}


def transformer_turns(seed: int) -> Found:
    """A small transformer on simplified stories: cosine of its logits' direction with the predicted one, and CE - H."""
    contexts, labels = story_labels(2, 60, seed)
    prediction = ntp.predict(labels)
    (_, begun), (_, lens) = train_transformer(contexts, labels, width=32, steps=400, checkpoints=(0,), seed=seed)
    first, last = (
        ntp.support_metrics(observe(one, contexts, labels.vocabulary)[0], prediction) for one in (begun, lens)
    )
    return {
        "cosine of the direction": defined(last.direction), "CE - H (nats)": float(last.SC6.excess),
        "cosine at the start": float(first.direction or 0.0),
    }  # fmt: skip
