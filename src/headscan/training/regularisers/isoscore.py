"""I-STAR."""

from __future__ import annotations

from torch import Tensor

from headscan.geometry.losses import isoscore_loss
from headscan.training.objective import LossInputs
from headscan.training.regulariser import REGULARISERS

__all__ = ["isoscore"]


@REGULARISERS.register("isoscore")
def isoscore(inputs: LossInputs) -> Tensor:
    """1 - IsoScore* of the last hidden states that carry loss; a negative strength lowers isotropy.

    Source: Rudman and Eickhoff 2024, who found a negative one to help. Cost: O(K d²).
    """
    states = inputs.after_norm
    return isoscore_loss([states], strength=1.0) if len(states) > 1 else states.sum() * 0
