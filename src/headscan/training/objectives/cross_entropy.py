"""The usual objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.run import BadInput, Option
from headscan.training.heads import Unembedding
from headscan.training.losses import ce_loss, full_ce_loss
from headscan.training.losses.shapes import check, reduce
from headscan.training.objective import OBJECTIVES, LossInputs
from headscan.training.objectives._headed import Headed

__all__ = ["CrossEntropy", "head_loss"]


@OBJECTIVES.register("ce")
@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Headed):
    """Cross-entropy over the whole vocabulary, of a model with a head.

    "full" projects the positions that carry loss, "chunked" computes the logits twice in little memory, "fused" is
    torch's own kernel, "liger" and "cce" are those of two libraries for GPUs, and "ungathered" projects every position, as
    most masked models do.
    """

    projection: Annotated[
        Literal["full", "chunked", "fused", "liger", "cce", "ungathered"],
        Option("How the logits of the cross-entropy are computed."),
    ] = "full"
    cap: Annotated[
        float | None, Option("Soft cap of the logits: z becomes cap · tanh(z / cap); Gemma 2 has 30.", above=0)
    ] = None

    def check(self) -> None:
        """A cap is of logits that are there."""
        super().check()
        if self.cap is not None and self.projection != "full":
            raise BadInput(f"--cap is not used by the projection {self.projection}: it needs full.")

    def head(self, model: PreTrainedModel, own: nn.Module | None) -> Unembedding:
        """With the cap."""
        return super().head(model, own)._replace(cap=self.cap)

    def settle(self, model: PreTrainedModel, own: nn.Module | None) -> str | None:
        """A cap is no part of what transformers load."""
        notes = [super().settle(model, own)]
        notes += [f"the logits of the model that is kept are to be capped at {self.cap:g}"] if self.cap else []
        return "; ".join(note for note in notes if note) or None

    def loss(self, inputs: LossInputs) -> Tensor:
        """Cross-entropy of the head's logits."""
        head = inputs.head
        assert head is not None
        if self.projection == "full" and len(inputs.targets):
            check(inputs.rows, head.rows, inputs.targets)
            losses = torch.nn.functional.cross_entropy(inputs.logits, inputs.targets, reduction="none")
            return reduce(losses, inputs.reduction)
        if self.projection == "ungathered":
            states = head.transform(inputs.states)
            return full_ce_loss(states, head.rows, inputs.labels, bias=head.bias, reduction=inputs.reduction)
        return head_loss(inputs, self.projection)


def head_loss(inputs: LossInputs, form: str) -> Tensor:
    """Cross-entropy of the positions that carry loss, by one of the forms of `ce_loss`."""
    head = inputs.head
    assert head is not None
    rows = head.transform(inputs.rows)
    return ce_loss(rows, head.rows, inputs.targets, form, bias=head.bias, reduction=inputs.reduction)
