"""Both losses at once: the published ablation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from headscan.training.objective import OBJECTIVES, LossInputs
from headscan.training.objectives._contrastive import Contrastive
from headscan.training.objectives.cross_entropy import head_loss

__all__ = ["Mixed"]


@OBJECTIVES.register("ce+cwt")
@dataclass(frozen=True, kw_only=True)
class Mixed(Contrastive):
    """Cross-entropy and contrastive weight tying, added up, of a model with a head."""

    headless: ClassVar[bool] = False

    def loss(self, inputs: LossInputs) -> Tensor:
        """The sum of both."""
        return head_loss(inputs, "full") + self.contrast(inputs, "unique", sparse=True)
