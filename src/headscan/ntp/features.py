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

from headscan.ntp.arrays import CountsLike, Floats
from headscan.ntp.entropy import cross_entropy
from headscan.ntp.labels import SoftLabels
from headscan.ntp.prediction import Prediction
from headscan.ntp.spectral import thread_limit, tune_threads
from headscan.ntp.support_metrics import Embeddings, SupportMetrics, support_metrics
from headscan.run import BadInput

__all__ = ["FeatureCheckpoint", "FeatureRun", "log_steps", "train_features"]


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
        """H Wᵀ, float64 [m, V]."""
        return self.contexts @ self.words.T


def log_steps(last: int, per_decade: int = 3) -> list[int]:
    """Checkpoints evenly spaced in the logarithm, from 0 to `last`.

    >>> log_steps(1000, 1)
    [0, 1, 10, 100, 1000]
    """
    spaced = np.geomspace(1, last, max(2, round(np.log10(last) * per_decade) + 1)) if last > 1 else np.array([1.0])
    return [0, *sorted({round(step) for step in spaced})]


def train_features(
    counts: CountsLike,
    width: int,
    steps: int = 30_000,
    *,
    optimiser: Literal["gd", "adam"] = "gd",
    learning_rate: float | None = None,
    penalty: float = 1e-5,
    init: float = 0.1,
    seed: int = 0,
    prediction: Prediction | None = None,
    checkpoints: Sequence[int] | None = None,
    device: str = "cpu",
) -> FeatureRun:
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
        step=step,
        excess=cross_entropy(contexts @ words.T, labels) - labels.entropy(),
        words=float(np.linalg.norm(words)),
        contexts=float(np.linalg.norm(contexts)),
        metrics=None if prediction is None else support_metrics(Embeddings(words, contexts), prediction),
    )
