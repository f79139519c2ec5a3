"""Unconstrained features: words and contexts that are trained freely on the soft labels.

    min over W [V, d], H [m, d]   Σ_j m π_j CE_j(H Wᵀ) + λ/2 (‖W‖² + ‖H‖²)

It is the model of the theory: what a network would do if it could give every context any embedding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

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

Rows: TypeAlias = npt.NDArray[np.floating[Any]]
FeatureOptimiser = Literal["gd", "adam", "signgd", "muon"]
RATES: dict[FeatureOptimiser, float] = {"gd": 0.05, "adam": 0.01, "signgd": 0.01, "muon": 0.01}


@dataclass(frozen=True)
class FeatureCheckpoint:
    """The state of training after `step` steps.

    Attributes:
        excess: CE - H in nats.
        words, contexts: their Frobenius norms.
        metrics: all metrics against the prediction; None without one.
        pattern_words, pattern_contexts: similarity of the trained and the predicted patterns of
            cosines.
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
    """A finished training run.

    Attributes:
        words, contexts: the final embeddings [V, d] and [m, d].
        records: one entry a checkpoint.
        increment: the logits at the last checkpoint minus those at the one before, in which the
            finite part cancels.
    """

    words: Floats
    contexts: Floats
    records: tuple[FeatureCheckpoint, ...]
    increment: Floats

    @property
    def logits(self) -> Floats:
        return self.contexts @ self.words.T


def log_steps(last: int) -> list[int]:
    """Return checkpoints evenly spaced in the logarithm, three a decade, from 0 to `last`."""
    if last <= 1:
        return [0, 1]
    count = max(2, round(np.log10(last) * 3) + 1)
    return [0, *sorted({round(step) for step in np.geomspace(1, last, count)})]


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
    """Train unconstrained features on all contexts at once.

    The run ends after `steps`, or before the first step at which CE - H is at most `until` nats.
    Cost: O(m V d) a step.

    Args:
        optimiser: gradient descent ("gd"), "adam", "signgd" (steps of the gradient's signs) or
            "muon" (torch's, on both matrices).
        learning_rate: 0.05 for gd and 0.01 for the others by default.
        penalty: λ, part of the gradient as in the objective.
        init: W and H start as normal noise of this standard deviation. (Collapse needs a small
            start or decay: at 0.5 without decay it stays partial.)
        prediction: what the records are compared with.
        checkpoints: steps that are recorded, besides the first and the last; by default
            `log_steps`.

    Raises:
        BadInput: for a run that diverges.

    >>> run = train_features([[1, 1, 0], [0, 0, 2]], width=3, steps=300)
    >>> run.records[-1].excess < run.records[0].excess
    True
    """
    labels = SoftLabels.of(counts)
    rate = learning_rate if learning_rate is not None else RATES[optimiser]
    recorded_steps = set(log_steps(steps) if checkpoints is None else checkpoints) | {0, steps}
    generator = torch.Generator().manual_seed(seed)
    W = init * torch.randn(labels.vocabulary, width, generator=generator, dtype=torch.float64)
    H = init * torch.randn(labels.contexts, width, generator=generator, dtype=torch.float64)
    move = _mover(optimiser, W, H, rate)
    scale = torch.from_numpy(labels.prior * labels.contexts)[:, None]
    target = torch.from_numpy(labels.dense()) * scale
    # The targets add up to the number of contexts.
    enough = -(labels.entropy() + until) * labels.contexts
    records: list[FeatureCheckpoint] = []
    recorded_logits: list[torch.Tensor] = []
    threads = tune_threads(labels.contexts, labels.vocabulary, torch.device("cpu"))
    with thread_limit(threads), torch.no_grad():
        for step in range(steps + 1):
            L = H @ W.T
            last = step == steps
            if until > 0 and not last:
                last = float((target * torch.log_softmax(L, 1)).sum()) >= enough
            if last or step in recorded_steps:
                records.append(_record(step, W.numpy(), H.numpy(), labels, prediction))
                recorded_logits = [*recorded_logits[-1:], L.clone()]
            if last:
                break
            # torch.softmax in place of exp/sum: it is the step's whole cost at these sizes.
            G = torch.softmax(L, 1).mul_(scale).sub_(target)
            W_gradient = torch.addmm(W, G.T, H, beta=penalty)
            H_gradient = torch.addmm(H, G, W, beta=penalty)
            move(W_gradient, H_gradient)
    if not bool(torch.isfinite(recorded_logits[-1]).all()):
        raise BadInput(f"Training diverged with a learning rate of {rate:g}; try a smaller one.")
    increment = recorded_logits[-1]
    if len(recorded_logits) > 1:
        increment = recorded_logits[-1] - recorded_logits[0]
    return FeatureRun(W.numpy(), H.numpy(), tuple(records), increment.numpy())


def _mover(
    optimiser: FeatureOptimiser, W: torch.Tensor, H: torch.Tensor, rate: float
) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Return the function that moves words W and contexts H by their gradients, in place."""
    if optimiser in ("adam", "muon"):
        stepper: torch.optim.Optimizer
        if optimiser == "adam":
            stepper = torch.optim.Adam([W, H], lr=rate, eps=1e-12)
        else:
            stepper = torch.optim.Muon([W, H], lr=rate, weight_decay=0.0)

        def move_by_optimizer(W_gradient: torch.Tensor, H_gradient: torch.Tensor) -> None:
            W.grad = W_gradient
            H.grad = H_gradient
            stepper.step()

        return move_by_optimizer

    # torch's own gradient descent takes four times as long at these sizes.
    def move(W_gradient: torch.Tensor, H_gradient: torch.Tensor) -> None:
        for matrix, gradient in ((W, W_gradient), (H, H_gradient)):
            direction = gradient.sign() if optimiser == "signgd" else gradient
            matrix.sub_(direction, alpha=rate)

    return move


def _record(
    step: int, words: Floats, contexts: Floats, labels: SoftLabels, prediction: Prediction | None
) -> FeatureCheckpoint:
    checkpoint = FeatureCheckpoint(
        step=step,
        excess=cross_entropy(contexts @ words.T, labels) - labels.entropy(),
        words=float(np.linalg.norm(words)),
        contexts=float(np.linalg.norm(contexts)),
    )
    if prediction is None:
        return checkpoint
    return replace(
        checkpoint,
        metrics=support_metrics(Embeddings(words, contexts), prediction),
        pattern_words=pattern_similarity(words - words.mean(0), prediction.words),
        pattern_contexts=pattern_similarity(contexts, prediction.contexts),
    )


def pattern_similarity(A: Rows, B: Rows) -> float:
    """Return the correlation over all entries of the two cosine matrices of rows.

    It is (cov + ε)/(σσ' + ε), ε = 1e-8, in [-1, 1]: the measure of arXiv:2408.15417, section 5.3
    (the structure term of SSIM). Cost O(n d d').

    >>> A = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> round(pattern_similarity(A, 3 * A), 12)
    1.0
    """
    A = unit_rows(np.asarray(A))
    B = unit_rows(np.asarray(B))
    n = len(A)

    def covariance(X: Rows, Y: Rows) -> float:
        X_sum = float((X.sum(0) ** 2).sum())
        Y_sum = float((Y.sum(0) ** 2).sum())
        means = X_sum * Y_sum / n**4
        # ⟨XXᵀ, YYᵀ⟩ = ‖XᵀY‖_F²: d x d numbers instead of n x n.
        return float(((X.T @ Y) ** 2).sum()) / n**2 - means

    spread = np.sqrt(max(covariance(A, A), 0.0) * max(covariance(B, B), 0.0))
    return float((covariance(A, B) + 1e-8) / (spread + 1e-8))
