"""Output embedding centring: after every step the mean row is taken out of the head."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headscan.model.tables import output_layer
from headscan.run import BadInput

__all__ = ["CentreHead", "centre_head"]


@torch.no_grad()
def centre_head(model: Any) -> None:
    """Subtract the mean row from the output table of a model, in place; BadInput where it has no head.

    The softmax of a plain untied head does not see it: all logits of a position move by one number. A tied table is the
    input's too, and under a soft cap the number is seen.
    """
    output = output_layer(model)
    if output is None:
        raise BadInput(f"{type(model).__name__} has no head whose rows could be centred.")
    output.weight.sub_(output.weight.mean(0))


class CentreHead(TrainerCallback):
    """μ-centring for any `transformers.Trainer`: `Trainer(..., callbacks=[CentreHead()])`.

    Source: "Output embedding centering", arXiv:2601.02031.
    """

    def on_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **_: Any,
    ) -> None:
        """Centre the head once its weights have moved."""
        inner: Any = getattr(model, "module", model)  # DDP
        centre_head(getattr(inner, "model", inner) if type(inner).__name__ == "Learner" else inner)
