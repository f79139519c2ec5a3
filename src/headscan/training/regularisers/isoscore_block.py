"""I-STAR on the last block, before the final norm."""

from __future__ import annotations

from torch import Tensor

from headscan.geometry.losses import isoscore_loss
from headscan.training.objective import LossInputs
from headscan.training.regulariser import REGULARISERS

__all__ = ["isoscore_block"]


@REGULARISERS.register("isoscore-block")
def isoscore_block(inputs: LossInputs) -> Tensor:
    """1 - IsoScore* of the last block's states that carry loss. Cost: O(K d²)."""
    states = inputs.before_norm
    return isoscore_loss([states], strength=1.0) if len(states) > 1 else states.sum() * 0
