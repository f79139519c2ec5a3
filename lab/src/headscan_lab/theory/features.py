"""Unconstrained features: train words and contexts freely on the soft labels, and watch where they
go.

    min over W [V, d], H [m, d]   Σ_j m π_j CE_j(H Wᵀ) + λ/2 (‖W‖² + ‖H‖²)

It is the model of the theory: what a network would do if it could give every context any embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from headscan.ntp import (
    Embeddings,
    Prediction,
    SoftLabels,
    SupportMetrics,
    cross_entropy,
    support_metrics,
)
from headscan.ntp.labels import CountsLike, Floats
from headscan.ntp.prediction import unit_rows
from headscan.ntp.subspace import thread_limit, tune_threads
from headscan.run import BadInput

FeatureOptimiser = Literal["gd", "adam", "signgd", "muon"]
RATES: dict[FeatureOptimiser, float] = {"gd": 0.05, "adam": 0.01, "signgd": 0.01, "muon": 0.01}


@dataclass(frozen=True)
class FeatureCheckpoint:
    """Where training stood after `step` steps: CE - H in nats, Frobenius norms of words and
    contexts; and, where there is a prediction, all metrics against it and the similarity of the two
    patterns of cosines.
    """

    step: int
    excess: float
    words: float
    contexts: float
    metrics: SupportMetrics | None = None
    pattern_words: float | None = None
    pattern_contexts: float | None = None


@dataclass(frozen=True, eq=False)
class FeatureRun:
    """What one training run left: final `words` [V, d], `contexts` [m, d], and one record a
    checkpoint.

    `increment` is L at the last checkpoint minus L at the one before: the finite part cancels in
    it.
    """

    words: Floats
    contexts: Floats
    records: tuple[FeatureCheckpoint, ...]
    increment: Floats

    @property
    def logits(self) -> Floats:
        return self.contexts @ self.words.T


def log_steps(last: int) -> list[int]:
    """Checkpoints evenly spaced in the logarithm, three a decade, from 0 to `last`."""
    spaced = (
        np.geomspace(1, last, max(2, round(np.log10(last) * 3) + 1))
        if last > 1
        else np.array([1.0])
    )
    return [0, *sorted({round(step) for step in spaced})]


def train_features(
    counts: CountsLike,
    width: int,
    steps: int = 30_000,
    *,
    optimiser: FeatureOptimiser = "gd",
    learning_rate: float | None = None,
    penalty: float = 1e-5,
    init: float = 0.1,
    seed: int = 0,
    prediction: Prediction | None = None,
    checkpoints: Sequence[int] | None = None,
    until: float = 0.0,
) -> FeatureRun:
    """Full-batch gradient descent ("gd"), "adam", "signgd" (steps of the gradient's signs) or
    "muon" (torch's, on both matrices) on the unconstrained features.

    `learning_rate` defaults to 0.05 for gd and 0.01 for the others; `penalty` is λ (part of the
    gradient, as in the objective); W and H start as normal noise of standard deviation `init`
    (collapse needs a small start or decay: at 0.5 without decay it stays partial). The run ends
    after `steps`, or before the first step at which CE - H is at most `until` nats. Raises
    `BadInput` for a run that diverges. Cost: O(m V d) a step.

    >>> run = train_features([[1, 1, 0], [0, 0, 2]], width=3, steps=300)
    >>> run.records[-1].excess < run.records[0].excess
    True
    """
    labels = SoftLabels.of(counts)
    rate = learning_rate if learning_rate is not None else RATES[optimiser]
    at = set(checkpoints if checkpoints is not None else log_steps(steps)) | {0, steps}
    generator = torch.Generator().manual_seed(seed)
    W, H = (
        init * torch.randn(rows, width, generator=generator, dtype=torch.float64)
        for rows in (labels.vocabulary, labels.contexts)
    )
    chosen: torch.optim.Optimizer | None = None
    if optimiser == "adam":
        chosen = torch.optim.Adam([W, H], lr=rate, eps=1e-12)
    elif optimiser == "muon":
        chosen = torch.optim.Muon([W, H], lr=rate, weight_decay=0.0)
    scale = torch.from_numpy(labels.prior * labels.contexts)[:, None]
    target = torch.from_numpy(labels.dense()) * scale
    # targets add up to the number of contexts
    enough = -(labels.entropy() + until) * labels.contexts
    records: list[FeatureCheckpoint] = []
    logits: list[torch.Tensor] = []
    with (
        thread_limit(tune_threads(labels.contexts, labels.vocabulary, torch.device("cpu"))),
        torch.no_grad(),
    ):
        for step in range(steps + 1):
            L = H @ W.T
            last = step == steps or (
                until > 0 and float((target * torch.log_softmax(L, 1)).sum()) >= enough
            )
            if last or step in at:
                records.append(_record(step, W.numpy(), H.numpy(), labels, prediction))
                logits = [*logits[-1:], L.clone()]
            if last:
                break
            # torch.softmax in place of exp/sum: it is the step's whole cost at these sizes.
            G = torch.softmax(L, 1).mul_(scale).sub_(target)
            W.grad, H.grad = (
                torch.addmm(W, G.T, H, beta=penalty),
                torch.addmm(H, G, W, beta=penalty),
            )
            if chosen is not None:
                chosen.step()
                continue
            for matrix, slope in (
                (W, W.grad),
                (H, H.grad),
            ):  # torch's own takes four times as long at these sizes
                matrix.sub_(slope.sign() if optimiser == "signgd" else slope, alpha=rate)
    if not bool(torch.isfinite(logits[-1]).all()):
        raise BadInput(f"Training diverged with a learning rate of {rate:g}; try a smaller one.")
    increment = logits[-1] - logits[0] if len(logits) > 1 else logits[-1]
    return FeatureRun(W.numpy(), H.numpy(), tuple(records), increment.numpy())


def _record(
    step: int, words: Floats, contexts: Floats, labels: SoftLabels, prediction: Prediction | None
) -> FeatureCheckpoint:
    excess = cross_entropy(contexts @ words.T, labels) - labels.entropy()
    norms = float(np.linalg.norm(words)), float(np.linalg.norm(contexts))
    if prediction is None:
        return FeatureCheckpoint(step, excess, *norms)
    return FeatureCheckpoint(
        step,
        excess,
        *norms,
        support_metrics(Embeddings(words, contexts), prediction),
        pattern_similarity(words - words.mean(0), prediction.words),
        pattern_similarity(contexts, prediction.contexts),
    )


def pattern_similarity(A: npt.NDArray[np.floating[Any]], B: npt.NDArray[np.floating[Any]]) -> float:
    """Correlation over all entries of the two cosine matrices of rows: (cov + ε)/(σσ' + ε), ε =
    1e-8, in [-1, 1].

    The measure of arXiv:2408.15417, section 5.3 (the structure term of SSIM). O(n d d').

    >>> A = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> round(pattern_similarity(A, 3 * A), 12)
    1.0
    """
    A = unit_rows(np.asarray(A))
    B = unit_rows(np.asarray(B))
    n = len(A)

    def covariance(X: npt.NDArray[np.floating[Any]], Y: npt.NDArray[np.floating[Any]]) -> float:
        means = float((X.sum(0) ** 2).sum()) * float((Y.sum(0) ** 2).sum()) / n**4
        # ⟨XXᵀ, YYᵀ⟩ = ‖XᵀY‖_F²: d x d numbers instead of n x n.
        return float(((X.T @ Y) ** 2).sum()) / n**2 - means

    spread = np.sqrt(max(covariance(A, A), 0.0) * max(covariance(B, B), 0.0))
    return float((covariance(A, B) + 1e-8) / (spread + 1e-8))
