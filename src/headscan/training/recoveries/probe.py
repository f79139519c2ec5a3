"""A trained head on a frozen body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from transformers import PreTrainedModel

from headscan.run import Option
from headscan.training.heads import body_of
from headscan.training.recoveries.finetune import Finetuning
from headscan.training.recovery import RECOVERIES

__all__ = ["FrozenProbe"]


@RECOVERIES.register("probe")
@dataclass(frozen=True, kw_only=True)
class FrozenProbe(Finetuning):
    """The biased rows as a start, then trained by cross-entropy, the body frozen."""

    rate: Annotated[float, Option("Learning rate of a recovered head; probe: 0.001, finetune: 0.0001.", above=0)] = 1e-3

    def prepare(self, whole: PreTrainedModel) -> None:
        """Only the head is trained."""
        body_of(whole).requires_grad_(False)
