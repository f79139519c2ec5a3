"""The z-loss."""

from __future__ import annotations

from torch import Tensor

from headscan.training.objective import LossInputs
from headscan.training.regulariser import REGULARISERS

__all__ = ["z_loss"]


@REGULARISERS.register("z-loss")
def z_loss(inputs: LossInputs) -> Tensor:
    """Mean square of the log of the softmax's denominator, which keeps logits from drifting together. Cost: O(K V).

    Source: PaLM (Chowdhery et al. 2022), with strength 1e-4.
    """
    return inputs.logits.logsumexp(1).square().mean() if len(inputs.rows) else inputs.rows.sum() * 0
