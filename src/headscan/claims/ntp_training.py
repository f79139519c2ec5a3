"""Claims 410-415: what training does with the geometry that the data predict."""

from __future__ import annotations

from typing import Literal

import numpy as np

import headscan.ntp as ntp
from headscan.claims.claim import Verdict, claim
from headscan.claims.ntp_theory import SOURCE, _story_labels
from headscan.claims.ntp_transformer import train_transformer
from headscan.ntp.observe import observe
from headscan.ntp.support_metrics import Spread
from headscan.run import Json

__all__: list[str] = []


def _features(
    seed: int, *, optimiser: Literal["gd", "adam"] = "gd", init: float = 0.1
) -> tuple[ntp.SoftLabels, ntp.Prediction, ntp.FeatureRun]:
    labels = ntp.random_labels(10, 95, supports=30, seed=seed)
    prediction = ntp.predict(labels)
    run = ntp.train_features(labels, 10, 30_000, optimiser=optimiser, init=init, seed=seed, prediction=prediction)
    return labels, prediction, run


def _last(run: ntp.FeatureRun) -> ntp.SupportMetrics:
    metrics = run.records[-1].metrics
    assert metrics is not None
    return metrics


def _spreads(run: ntp.FeatureRun) -> tuple[Spread, Spread]:
    """Before and after projection."""
    collapse = _last(run).SC1
    assert collapse.before is not None
    assert collapse.after is not None
    return collapse.before, collapse.after


@claim(
    410, "Gradient descent on unconstrained features aligns with the predicted words and contexts (Figs. 3, 4).", SOURCE
)
def _(seed: int) -> Verdict:
    labels, prediction, run = _features(seed)
    m = _last(run)
    direction = m.direction or 0.0
    path = ntp.regularisation_path(labels, [10.0**-k for k in range(2, 9)])
    same = next(p for p in path if p.excess <= run.records[-1].excess)
    ahead = ntp.cosine(ntp.out_of_support(same.logits, labels.supports), prediction.solution.logits)  # type: ignore[union-attr]
    measured = {
        "excess": run.records[-1].excess, "direction": direction, "words": m.pattern_words,
        "contexts": m.pattern_contexts, "in_support_distance": m.SC3, "path_direction_at_that_gap": ahead,
    }  # fmt: skip
    why = (
        f"After 30,000 steps: CE - H = {measured['excess']:.1e}, direction {direction:.3f}, words {m.pattern_words:.3f}, "
        f"contexts {m.pattern_contexts:.3f}; it lags behind the regularisation path, which has {ahead:.3f} at that gap."
    )
    good = direction >= 0.95 and m.pattern_words > 0.95 and m.pattern_contexts > 0.9
    return Verdict("reproduced" if good else "not reproduced", why, measured)


@claim(411, "Contexts with equal supports collapse once projected on F⊥ (subspace collapse).", SOURCE)
def _(seed: int) -> Verdict:
    _, _, run = _features(seed)
    before, after = _spreads(run)
    wide, tight = before.cdnv or 0.0, after.cdnv or 0.0
    measured = {
        "same_before": before.same_cosine, "same_after": after.same_cosine, "cdnv_before": wide,
        "cdnv_after": tight, "other_after": after.other_cosine,
    }  # fmt: skip
    good = after.same_cosine > 0.98 and tight < wide / 2
    why = (
        f"Mean cosine of equal supports {before.same_cosine:.3f} before and {after.same_cosine:.4f} after projection; "
        f"variation {wide:.1e} and {tight:.1e}."
    )
    return Verdict("reproduced" if good else "not reproduced", why, measured)


@claim(
    412,
    "Collapse needs a small start or weight decay: from a large start it stays partial.",
    "derived; see docs/ntp.md",
)
def _(seed: int) -> Verdict:
    small, large = (_spreads(_features(seed, init=init)[2])[0] for init in (0.1, 1.0))
    measured = {"least_same_cosine_small": small.least_cosine, "least_same_cosine_large": large.least_cosine}
    good = small.least_cosine > large.least_cosine + 0.1
    why = f"Least cosine within a support: {small.least_cosine:.2f} from 0.1, {large.least_cosine:.2f} from 1.0."
    return Verdict("reproduced" if good else "not reproduced", why, measured)


@claim(413, "Adam does not keep words and contexts in balance as gradient descent does.", "derived; see docs/ntp.md")
def _(seed: int) -> Verdict:
    ratios: dict[str, float] = {}
    names: tuple[Literal["gd", "adam"], ...] = ("gd", "adam")
    for optimiser in names:
        last = _features(seed, optimiser=optimiser)[2].records[-1]
        ratios[optimiser] = last.contexts / last.words
    good = abs(np.log(ratios["gd"])) < 0.1 < abs(np.log(ratios["adam"]))
    why = f"‖H‖/‖W‖ after 30,000 steps: {ratios['gd']:.2f} by gradient descent, {ratios['adam']:.2f} by Adam."
    return Verdict("reproduced" if good else "not reproduced", why, ratios)


@claim(414, "Strong axes of the centred supports are learned before weak ones.", "arXiv:2505.08348")
def _(seed: int) -> Verdict:
    _, labels, _ = _story_labels(1, 400, seed)
    spectrum = ntp.support_spectrum(labels)
    run_at = [2**k for k in range(3, 13)]
    half: list[float] = []
    count = min(12, len(spectrum.sigma))
    strengths = []
    for steps in run_at:
        run = ntp.train_features(labels, labels.vocabulary, steps, checkpoints=[], init=1e-3, seed=seed)
        strengths.append(np.einsum("mk,mv,vk->k", spectrum.contexts[:, :count], run.logits, spectrum.tokens[:, :count]))
    grown = np.array(strengths)
    for k in range(count):
        reached = np.flatnonzero(grown[:, k] > 0.5 * spectrum.sigma[k])
        half.append(float(run_at[reached[0]]) if len(reached) else float("inf"))
    order = np.corrcoef(np.argsort(np.argsort(np.log(np.array(half)))), np.arange(count))[0, 1]
    _, first = ntp.early_spectrum(labels, 3)
    overlap = float(np.linalg.norm(first.T @ spectrum.tokens[:, :3]) ** 2 / 3)
    measured: dict[str, Json] = {
        "rank_correlation": float(order), "steps_to_half": [*half[:6]], "early_overlap": overlap,
    }  # fmt: skip
    why = (
        f"Rank correlation of strength and time to half of it: {order:.2f}. The very first directions are those of the "
        f"prior-weighted labels, which share {overlap:.0%} of their top three with the centred supports."
    )
    return Verdict("reproduced" if order > 0.5 else "not reproduced", why, measured)


@claim(
    415,
    "A small transformer on simplified stories nears the entropy bound and the predicted geometry (Fig. 2).",
    SOURCE,
)
def _(seed: int) -> Verdict:
    contexts, labels, _ = _story_labels(3, 100, seed)
    prediction = ntp.predict(labels)
    course: list[dict[str, float]] = []
    for step, lens in train_transformer(contexts, labels, width=64, steps=1500, checkpoints=(0, 30, 200), seed=seed):
        m = ntp.support_metrics(observe(lens, contexts, labels.vocabulary)[0], prediction)
        nowhere = float("nan")
        course.append(
            {"step": step, "excess": m.SC6.excess, "direction": m.direction or 0.0, "words": m.SC2_words or 0.0,
             "contexts": m.SC2_contexts or 0.0, "same": m.SC1.after.same_cosine if m.SC1.after else nowhere,
             "W": m.word_norm, "H": m.context_norm}
        )  # fmt: skip
    first, last = course[0], course[-1]
    measured: dict[str, Json] = {"entropy_bound": labels.entropy(), "course": [dict[str, Json](one) for one in course]}
    rises = last["direction"] > first["direction"] + 0.3 and last["words"] > first["words"]
    good = last["excess"] < 0.02 and last["direction"] > 0.8 and rises
    why = (
        f"In {last['step']} steps CE - H falls from {first['excess']:.2f} to {last['excess']:.4f}, the direction rises to "
        f"{last['direction']:.3f}, words to {last['words']:.3f}, contexts to {last['contexts']:.3f}, equal supports to "
        f"{last['same']:.3f}; ‖H‖ is held by the final norm ({first['H']:.0f} to {last['H']:.0f})."
    )
    return Verdict("reproduced" if good else "not reproduced", why, measured)
