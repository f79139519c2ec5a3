"""The output table spread out."""

from __future__ import annotations

from torch import Tensor

from headscan.geometry.losses import cosine_regulariser
from headscan.model.tables import embedding_table, output_layer
from headscan.training.objective import LossInputs
from headscan.training.regulariser import REGULARISERS

__all__ = ["cosine"]


@REGULARISERS.register("cosine")
def cosine(inputs: LossInputs) -> Tensor:
    """Mean cosine between the rows of the output table: the head's, or without one the input embeddings.

    Source: Gao et al. 2019, with strength 1. Cost: O(V d), and a dense gradient of the table.
    """
    head = output_layer(inputs.model)
    return cosine_regulariser(embedding_table(inputs.model) if head is None else head.weight)
