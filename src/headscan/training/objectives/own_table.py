"""Contrast without weight tying: the published ablation with a table of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.training.objective import OBJECTIVES, LossInputs, Readout
from headscan.training.objectives._contrastive import Contrastive

__all__ = ["OwnTable"]


@OBJECTIVES.register("nce")
@dataclass(frozen=True, kw_only=True)
class OwnTable(Contrastive):
    """The contrastive loss against a table of its own instead of the input embeddings (no weight tying)."""

    def parameters(self, width: int, vocabulary: int, counts: Tensor | None) -> nn.Module | None:
        """The table, N(0, .02)."""
        table = nn.Embedding(vocabulary, width)
        table.weight.data.normal_(std=0.02)
        return table

    def table(self, model: PreTrainedModel, own: nn.Module | None) -> Tensor:
        """The table of its own."""
        assert isinstance(own, nn.Embedding)
        return own.weight

    def loss(self, inputs: LossInputs) -> Tensor:
        """The contrastive loss over unique tokens."""
        return self.contrast(inputs, "unique", sparse=False)

    def reading(self, own: nn.Module | None) -> Readout | str:
        """By its own table."""
        found = super().reading(own)
        assert isinstance(found, Readout)
        assert isinstance(own, nn.Embedding)
        return replace(found, rows=own.weight)
