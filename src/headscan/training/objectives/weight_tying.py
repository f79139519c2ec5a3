"""Contrastive weight tying: the headless objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from headscan.run import Option
from headscan.training.objective import OBJECTIVES, LossInputs
from headscan.training.objectives._contrastive import Contrastive

__all__ = ["WeightTying"]


@OBJECTIVES.register("cwt")
@dataclass(frozen=True, kw_only=True)
class WeightTying(Contrastive):
    """Contrastive weight tying: find the next token's own input embedding among those of the batch, without a head.

    Source: Godey, de la Clergerie, Sagot, "Headless language models" (ICLR 2024); the forms are those of `cwt_loss`.
    """

    form: Annotated[
        Literal["unique", "dense", "chunked", "fused", "liger", "cce"],
        Option("How contrastive weight tying is computed."),
    ] = "unique"

    def loss(self, inputs: LossInputs) -> Tensor:
        """The contrastive loss; the table also feeds the model: its rows' gradient joins a dense one."""
        return self.contrast(inputs, self.form, sparse=True)
