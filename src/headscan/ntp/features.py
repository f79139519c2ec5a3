"""Unconstrained features: train words and contexts freely on the soft labels, and watch where they go.

    min over W [V, d], H [m, d]   Σ_j m π_j CE_j(H Wᵀ) + λ/2 (‖W‖² + ‖H‖²)

It is the model of the theory: what a network would do if it could give every context any embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from headscan.ntp.entropy import cross_entropy
from headscan.ntp.labels import CountsLike, Floats, Ints, SoftLabels
from headscan.ntp.prediction import Prediction, unit_rows
from headscan.ntp.subspace import thread_limit, tune_threads
from headscan.ntp.support_metrics import Embeddings, SupportMetrics, support_metrics
from headscan.run import BadInput
from headscan.statistics.classes import nearest_means, pair_sums, simplex_distance, variation


@dataclass(frozen=True)
class FeatureCheckpoint:
    """Where training stood after `step` steps: CE - H in nats, Frobenius norms of words and contexts, and all metrics
    where there is a prediction to hold them against."""

    step: int
    excess: float
    words: float
    contexts: float
    metrics: SupportMetrics | None = None


@dataclass(frozen=True, eq=False)
class FeatureRun:
    """What one training run left: final `words` [V, d], `contexts` [m, d], and one record a checkpoint.

    `increment` is L at the last checkpoint minus L at the one before, over the difference of their growth: the finite
    part cancels in it.
    """

    words: Floats
    contexts: Floats
    records: tuple[FeatureCheckpoint, ...]
    increment: Floats

    @property
    def logits(self) -> Floats:
        return self.contexts @ self.words.T


def log_steps(last: int, per_decade: int = 3) -> list[int]:
    """Checkpoints evenly spaced in the logarithm, from 0 to `last`.

    >>> log_steps(1000, 1)
    [0, 1, 10, 100, 1000]
    """
    spaced = np.geomspace(1, last, max(2, round(np.log10(last) * per_decade) + 1)) if last > 1 else np.array([1.0])
    return [0, *sorted({round(step) for step in spaced})]


def train_features(
    counts: CountsLike, width: int, steps: int = 30_000, *, optimiser: Literal["gd", "adam"] = "gd",
    learning_rate: float | None = None, penalty: float = 1e-5, init: float = 0.1, seed: int = 0,
    prediction: Prediction | None = None, checkpoints: Sequence[int] | None = None, device: str = "cpu",
) -> FeatureRun:  # fmt: skip
    """Full-batch gradient descent ("gd") or "adam" on the unconstrained features.

    `learning_rate` defaults to 0.05 for gd and 0.01 for adam; `penalty` is λ; W and H start as normal noise of standard
    deviation `init` (collapse needs a small start or decay: at 0.5 without decay it stays partial). Raises `BadInput`
    for an unknown optimiser, a width below one, or a run that diverges. Cost: O(m V d) a step.

    >>> run = train_features([[1, 1, 0], [0, 0, 2]], width=3, steps=300)
    >>> run.records[-1].excess < run.records[0].excess
    True
    """
    labels = SoftLabels.of(counts)
    if optimiser not in ("gd", "adam"):
        raise BadInput(f'The optimiser must be "gd" or "adam", not "{optimiser}".')
    if width < 1:
        raise BadInput("The width of the embeddings must be at least one.")
    rate = learning_rate if learning_rate is not None else {"gd": 0.05, "adam": 0.01}[optimiser]
    place = torch.device(device)
    at = set(checkpoints if checkpoints is not None else log_steps(steps)) | {0, steps}
    with thread_limit(tune_threads(labels.contexts, labels.vocabulary, place)), torch.inference_mode():
        generator = torch.Generator().manual_seed(seed)
        W = (init * torch.randn(labels.vocabulary, width, generator=generator, dtype=torch.float64)).to(place)
        H = (init * torch.randn(labels.contexts, width, generator=generator, dtype=torch.float64)).to(place)
        P = torch.from_numpy(labels.dense()).to(place)
        scale = torch.from_numpy(labels.prior * labels.contexts).to(place)[:, None]
        PS = P * scale
        update = _adam(W, H, rate) if optimiser == "adam" else None
        records: list[FeatureCheckpoint] = []
        before, after, gained = None, None, 0.0
        for step in range(steps + 1):
            L = H @ W.T
            if step in at:
                records.append(_record(step, W, H, labels, prediction))
                growth = float(torch.linalg.vector_norm(L))
                before, after, gained = after, L.clone(), growth
            if step == steps:
                break
            # torch.softmax in place of exp/sum: it is the step's whole cost at these sizes.
            G = torch.softmax(L, 1).mul_(scale).sub_(PS)
            gradient_W, gradient_H = torch.addmm(W, G.T, H, beta=penalty), torch.addmm(H, G, W, beta=penalty)
            if update is None:
                W.sub_(gradient_W, alpha=rate)
                H.sub_(gradient_H, alpha=rate)
            else:
                update(gradient_W, gradient_H)
        if not np.isfinite(gained):
            raise BadInput(f"Training diverged with a learning rate of {rate:g}; try a smaller one.")
        assert after is not None
        difference = after if before is None else after - before
        return FeatureRun(W.cpu().numpy(), H.cpu().numpy(), tuple(records), difference.cpu().numpy())


def _adam(W: torch.Tensor, H: torch.Tensor, rate: float) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Adam with its usual constants; λ is part of the gradient, as in the objective (not decoupled)."""
    moments = [[torch.zeros_like(X), torch.zeros_like(X)] for X in (W, H)]
    count = 0

    def update(*gradients: torch.Tensor) -> None:
        nonlocal count
        count += 1
        for X, gradient, (first, second) in zip((W, H), gradients, moments, strict=True):
            first.lerp_(gradient, 0.1)
            second.lerp_(gradient * gradient, 0.001)
            size = (second / (1 - 0.999**count)).sqrt_().add_(1e-12)
            X.addcdiv_(first, size, value=-rate / (1 - 0.9**count))

    return update


def _record(
    step: int, W: torch.Tensor, H: torch.Tensor, labels: SoftLabels, prediction: Prediction | None
) -> FeatureCheckpoint:
    words, contexts = W.cpu().numpy(), H.cpu().numpy()
    return FeatureCheckpoint(
        step=step, excess=cross_entropy(contexts @ words.T, labels) - labels.entropy(),
        words=float(np.linalg.norm(words)), contexts=float(np.linalg.norm(contexts)),
        metrics=None if prediction is None else support_metrics(Embeddings(words, contexts), prediction),
    )  # fmt: skip


#
# One pass: class means and variances come from sparse products of the counts with the embeddings, so no one-hot matrix
# [batch, classes] is ever formed. The formulas and their sources stand in `headscan.statistics.classes`.


@dataclass(frozen=True)
class CollapseMetrics:
    """NC1 to NC5; see `headscan.statistics.classes` for those that geometry measures too.

    Attributes:
        classes, pairwise_classes: next tokens that occur, and those of which pairs were taken.
        cdnv, cdnv_squared (NC1), equinorm (NC2), kernel_mean, kernel_variance, spread (GNC2), duality (NC3),
            duality_spread (UNC3): as there.
        scatter_ratio, scatter_pinv (NC1): tr Σ_W / tr Σ_B; tr(Σ_B† Σ_W) / C.
        simplex, dual_simplex (NC2, NC3): distance of the class means, and of words against means, from a simplex.
        duality_variance (UNC3): variance of cos(w_c, v_c).
        agreement (NC4): share of positions where argmax ⟨w_c, h⟩ (+ bias) is the class with the nearest mean.
        outside (NC5): mean |cos(μ_c, mean of features from outside the training distribution)|, where such are given.
    """

    classes: int
    pairwise_classes: int
    cdnv: float | None
    cdnv_squared: float | None
    scatter_ratio: float
    scatter_pinv: float
    equinorm: float | None
    simplex: float | None
    kernel_mean: float | None
    kernel_variance: float | None
    spread: float | None
    dual_simplex: float | None
    duality: float
    duality_variance: float
    duality_spread: float | None
    agreement: float
    outside: float | None


def class_statistics(labels: SoftLabels, contexts: Floats) -> tuple[Ints, Floats, Floats, Floats]:
    """(classes seen [K], occurrences [K], means μ [K, d], variances σ² = E‖h - μ‖² [K]) of next-token classes.

    μ_c = Σ_j n_jc h_j / n_c, and σ_c² from Σ_j n_jc ‖h_j - g‖², centred on the grand mean g first so that no digits
    cancel.
    """
    if len(contexts) != labels.contexts:
        raise BadInput("There must be one embedding for each context.")
    by_class = labels.matrix().T.tocsr()
    occurrences = np.asarray(by_class.sum(1)).ravel()
    seen = np.flatnonzero(occurrences > 0)
    H = np.asarray(contexts, dtype=np.float64)
    grand = labels.prior @ H
    centred = H - grand
    n = occurrences[seen]
    shift = (by_class[seen] @ centred) / n[:, None]
    second = (by_class[seen] @ (centred**2).sum(1)) / n
    return seen, n, shift + grand, np.maximum(second - (shift**2).sum(1), 0.0)


def collapse_metrics(
    embeddings: Embeddings, labels: SoftLabels, *, outside: Floats | None = None, pairs: int = 2048, seed: int = 0
) -> CollapseMetrics:
    """NC1 to NC5 of embeddings over soft labels.

    Pairs of classes are taken among at most `pairs`, drawn with `seed`; two classes with one mean (every context that one
    follows, the other follows as often) have no ratio and are left out of NC1. `outside` are features [n, d] from outside
    the training distribution. Raises `BadInput` where fewer than two tokens follow.
    """
    H = np.asarray(embeddings.contexts, dtype=np.float64)
    seen, n, means, variance = class_statistics(labels, H)
    K = len(seen)
    if K < 2:
        raise BadInput("Collapse metrics need at least two next-token classes.")
    W = np.asarray(embeddings.words, dtype=np.float64)[seen]
    centred = means - means.mean(0)
    chosen = np.arange(K)
    if pairs < K:
        chosen = np.sort(np.random.default_rng(seed).choice(K, pairs, replace=False))
    of_pairs = pair_sums(
        torch.from_numpy(means[chosen]), torch.from_numpy(variance[chosen]), centre=torch.from_numpy(means.mean(0))
    ).of()
    between = centred.T @ centred / K
    grand = labels.prior @ H
    total = ((H - grand) * labels.prior[:, None]).T @ (H - grand)
    shifted = means - grand
    within = total - (shifted * (n / n.sum())[:, None]).T @ shifted
    cosines = (unit_rows(centred) * unit_rows(W)).sum(1)
    offsets, words = torch.from_numpy(centred), torch.from_numpy(W)
    return CollapseMetrics(
        classes=K, pairwise_classes=len(chosen), cdnv=of_pairs.cdnv, cdnv_squared=of_pairs.cdnv_squared,
        scatter_ratio=float(np.trace(within) / np.trace(between)),
        scatter_pinv=float(np.trace(np.linalg.pinv(between, hermitian=True) @ within) / K),
        equinorm=variation(torch.linalg.vector_norm(offsets, dim=-1)), simplex=simplex_distance(offsets, offsets),
        kernel_mean=of_pairs.kernel_mean, kernel_variance=of_pairs.kernel_variance, spread=of_pairs.spread,
        dual_simplex=simplex_distance(words, offsets), duality=float(cosines.mean()),
        duality_variance=float(cosines.var()), duality_spread=variation(torch.from_numpy(cosines)),
        agreement=_agreement(embeddings, labels, H, W, seen, means),
        outside=None if outside is None else _outside(means, np.asarray(outside, dtype=np.float64)),
    )  # fmt: skip


def _agreement(embeddings: Embeddings, labels: SoftLabels, H: Floats, W: Floats, seen: Ints, means: Floats) -> float:
    bias = 0.0 if embeddings.bias is None else embeddings.bias[seen]
    agree = 0.0
    block = max(1, (1 << 22) // len(seen))
    for start in range(0, len(H), block):
        rows = slice(start, start + block)
        chosen = (H[rows] @ W.T + bias).argmax(1)
        nearest = nearest_means(torch.from_numpy(H[rows]), torch.from_numpy(means)).numpy()
        agree += float(labels.prior[rows] @ (chosen == nearest))
    return agree


def _outside(means: Floats, outside: Floats) -> float:
    direction = outside.mean(0)
    return float(np.abs(unit_rows(means) @ (direction / np.linalg.norm(direction))).mean())
