"""I-STAR on the last block, as a LayerNorm sees it."""

from __future__ import annotations

from torch import Tensor

from headscan.geometry.losses import isoscore_loss
from headscan.training.objective import LossInputs
from headscan.training.regulariser import REGULARISERS

__all__ = ["isoscore_block_centred"]


@REGULARISERS.register("isoscore-block-centred")
def isoscore_block_centred(inputs: LossInputs) -> Tensor:
    """1 - IsoScore* of the last block's states, each less the mean of its own coordinates. Cost: O(K d²)."""
    states = inputs.before_norm
    return isoscore_loss([states - states.mean(1, keepdim=True)], strength=1.0) if len(states) > 1 else states.sum() * 0
