"""The usual objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from headscan.run import Option
from headscan.training.heads import head_of
from headscan.training.losses import ce_loss, full_ce_loss
from headscan.training.objective import OBJECTIVES, LossInputs, Objective

__all__ = ["CrossEntropy", "head_loss"]


@OBJECTIVES.register("ce")
@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Objective):
    """Cross-entropy over the whole vocabulary, of a model with a head.

    "full" projects the positions that carry loss, "chunked" computes the logits twice in little memory, "fused" is
    torch's own kernel, and "ungathered" projects every position, as most masked models do.
    """

    projection: Annotated[
        Literal["full", "chunked", "fused", "ungathered"], Option("How the logits of the cross-entropy are computed.")
    ] = "full"

    def loss(self, inputs: LossInputs) -> Tensor:
        """Cross-entropy of the head's logits."""
        if self.projection == "ungathered":
            head = head_of(inputs.model)
            states = head.transform(inputs.states)
            return full_ce_loss(states, head.rows, inputs.labels, bias=head.bias, reduction=inputs.reduction)
        return head_loss(inputs, self.projection)


def head_loss(inputs: LossInputs, form: str) -> Tensor:
    """Cross-entropy of the positions that carry loss, by one of the forms of `ce_loss`."""
    head = head_of(inputs.model)
    rows = head.transform(inputs.rows)
    return ce_loss(rows, head.rows, inputs.targets, form, bias=head.bias, reduction=inputs.reduction)
