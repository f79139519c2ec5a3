"""The cone of the last block, before the final norm."""

from __future__ import annotations

from torch import Tensor

from headscan.geometry.losses import cosine_regulariser
from headscan.training.objective import LossInputs
from headscan.training.regulariser import REGULARISERS

__all__ = ["cosine_block"]


@REGULARISERS.register("cosine-block")
def cosine_block(inputs: LossInputs) -> Tensor:
    """Mean cosine between the last block's states that carry loss. Cost: O(K d).

    A model with a LayerNorm can lower it for nothing: it writes along the direction of ones, which that norm deletes.
    See `cosine-block-centred`.
    """
    states = inputs.before_norm
    return cosine_regulariser(states) if len(states) > 1 else states.sum() * 0
