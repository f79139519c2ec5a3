"""The cone of the last block, as a LayerNorm sees it."""

from __future__ import annotations

from torch import Tensor

from headscan.geometry.losses import cosine_regulariser
from headscan.training.objective import LossInputs
from headscan.training.regulariser import REGULARISERS

__all__ = ["cosine_block_centred"]


@REGULARISERS.register("cosine-block-centred")
def cosine_block_centred(inputs: LossInputs) -> Tensor:
    """Mean cosine between the last block's states, each less the mean of its own coordinates. Cost: O(K d)."""
    states = inputs.before_norm
    return cosine_regulariser(states - states.mean(1, keepdim=True)) if len(states) > 1 else states.sum() * 0
