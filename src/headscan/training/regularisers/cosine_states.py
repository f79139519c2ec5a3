"""The cone itself."""

from __future__ import annotations

from torch import Tensor
from transformers import PreTrainedModel

from headscan.geometry.losses import cosine_regulariser
from headscan.training.regulariser import REGULARISERS

__all__ = ["cosine_states"]


@REGULARISERS.register("cosine-states")
def cosine_states(model: PreTrainedModel, states: Tensor) -> Tensor:
    """Mean cosine between the last hidden states that carry loss. Cost: O(K d)."""
    # In float32: squares of half-precision numbers overflow.
    return cosine_regulariser(states.float()) if len(states) > 1 else states.sum() * 0
