"""The usual optimiser."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from headscan.training.learner import Learner
from headscan.training.optimiser import OPTIMISERS, Optimiser, groups_of

__all__ = ["AdamW"]


@OPTIMISERS.register("adamw")
@dataclass(frozen=True, kw_only=True)
class AdamW(Optimiser):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch has it."""

    def make(
        self, learner: Learner, *, rate: float, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8,
        decay: float = 0.0,
    ) -> torch.optim.Optimizer:  # fmt: skip
        """See the class."""
        return torch.optim.AdamW(groups_of(learner, rate=rate, decay=decay), lr=rate, betas=betas, eps=epsilon)
