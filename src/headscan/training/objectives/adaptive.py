"""Adaptive softmax: a baseline with a short head for frequent tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from headscan.training.losses import AdaptiveSoftmax
from headscan.training.objective import OBJECTIVES, LossInputs, Objective, Readout

__all__ = ["Adaptive"]


@OBJECTIVES.register("adaptive")
@dataclass(frozen=True, kw_only=True)
class Adaptive(Objective):
    """Adaptive softmax: frequent tokens in a short head, rare ones in narrow tails (Grave et al. 2017)."""

    headless: ClassVar[bool] = True

    @property
    def needs_counts(self) -> bool:
        """Tokens are sorted by frequency."""
        return True

    def parameters(self, width: int, vocabulary: int, counts: Tensor | None) -> nn.Module | None:
        """The clusters."""
        assert counts is not None
        return AdaptiveSoftmax(width, counts)

    def loss(self, inputs: LossInputs) -> Tensor:
        """The mean over targets, or as many times that."""
        assert isinstance(inputs.own, AdaptiveSoftmax)
        loss: Tensor = inputs.own(inputs.rows, inputs.targets)
        return loss * (1 if inputs.reduction == "mean" else len(inputs.targets))

    def reading(self, own: nn.Module | None) -> Readout | str:
        """It is not."""
        return "the adaptive softmax is no linear head, so its held-out likelihood is not read out"
