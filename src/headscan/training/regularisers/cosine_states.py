"""The cone itself, where the head sees it."""

from __future__ import annotations

from torch import Tensor

from headscan.geometry.losses import cosine_regulariser
from headscan.training.objective import LossInputs
from headscan.training.regulariser import REGULARISERS

__all__ = ["cosine_states"]


@REGULARISERS.register("cosine-states")
def cosine_states(inputs: LossInputs) -> Tensor:
    """Mean cosine between the last hidden states that carry loss. Cost: O(K d)."""
    states = inputs.after_norm
    return cosine_regulariser(states) if len(states) > 1 else states.sum() * 0
