"""The μ-loss."""

from __future__ import annotations

from torch import Tensor

from headscan.model.tables import embedding_table, output_layer
from headscan.training.objective import LossInputs
from headscan.training.regulariser import REGULARISERS

__all__ = ["mu_loss"]


@REGULARISERS.register("mu-loss")
def mu_loss(inputs: LossInputs) -> Tensor:
    """Squared norm of the mean row of the output table: the head's, or without one the input embeddings. Cost: O(V d).

    Source: "Output embedding centering", arXiv:2601.02031.
    """
    head = output_layer(inputs.model)
    return (embedding_table(inputs.model) if head is None else head.weight).mean(0).square().sum()
