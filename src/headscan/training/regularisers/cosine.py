"""The output table spread out."""

from __future__ import annotations

from torch import Tensor
from transformers import PreTrainedModel

from headscan.geometry.losses import cosine_regulariser
from headscan.model.tables import embedding_table, output_layer
from headscan.training.regulariser import REGULARISERS

__all__ = ["cosine"]


@REGULARISERS.register("cosine")
def cosine(model: PreTrainedModel, states: Tensor) -> Tensor:
    """Mean cosine between the rows of the output table: the head's, or without one the input embeddings.

    Source: Gao et al. 2019, with strength 1. Cost: O(V d), and a dense gradient of the table.
    """
    head = output_layer(model)
    return cosine_regulariser(embedding_table(model) if head is None else head.weight)
