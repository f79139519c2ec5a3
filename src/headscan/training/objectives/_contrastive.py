"""What the contrastive objectives share: their parameters, and the loss against a pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from headscan.run import Option
from headscan.training.losses import cwt_loss, sample_noise
from headscan.training.objective import LossInputs, Objective, Readout

__all__ = ["Contrastive"]


@dataclass(frozen=True, kw_only=True)
class Contrastive(Objective):
    """Point at the next token's row, among those of a pool of tokens."""

    headless: ClassVar[bool] = True
    contrastive: ClassVar[bool] = True
    temperature: Annotated[float, Option("What the contrastive scores are divided by.", above=0)] = 1.0
    normalize: Annotated[bool, Option("Compare directions only, in the contrastive loss.")] = False
    extra_negatives: Annotated[int, Option("Tokens drawn by frequency and added to the negatives.", low=0)] = 0

    @property
    def needs_counts(self) -> bool:
        """Where it draws negatives."""
        return self.extra_negatives > 0

    def contrast(self, inputs: LossInputs, form: str, *, sparse: bool) -> Tensor:
        """The loss against the pool and what is drawn besides; `sparse`: see `cwt_loss`."""
        pool = inputs.pool
        if self.extra_negatives:
            drawn = sample_noise(inputs.log_law, self.extra_negatives)
            pool = torch.cat([inputs.targets if pool is None else pool, drawn])
        table = self.table(inputs.model, inputs.own)
        return cwt_loss(
            inputs.rows, table, inputs.targets, form, pool=pool, temperature=self.temperature, normalize=self.normalize,
            sparse=sparse and type(table) in (nn.Parameter, Tensor),  # a sharded table takes no sparse gradient
            reduction=inputs.reduction,
        )  # fmt: skip

    def reading(self, own: nn.Module | None) -> Readout | str:
        """At the temperature of the loss."""
        note = "the loss compared directions; the held-out likelihood is read out by products" if self.normalize else ""
        return Readout(temperature=self.temperature, note=note)
