"""What the objectives of a model with a head share: a bias of the head, started where its user says, at a rate of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.model.tables import output_layer
from headscan.run import BadInput, Option
from headscan.training.folding import fold_bias
from headscan.training.heads import Unembedding, head_of
from headscan.training.losses import log_unigram
from headscan.training.objective import Objective

__all__ = ["HeadBias", "Headed"]


class HeadBias(nn.Module):
    """A trained bias [V] of the head, beside one that the model may have."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.bias = nn.Parameter(start)


@dataclass(frozen=True, kw_only=True)
class Headed(Objective):
    """The logits of the model's head, and a bias where one is asked for.

    A head without a bias must draw the unigram law from a direction that all hidden states share: a cone. A bias that
    starts there, or that is fast enough to get there first, takes that work off the states.
    """

    head_bias: Annotated[
        Literal["none", "zero", "unigram"],
        Option(
            "A bias of the head: none, or one that starts at zero or at the log of the text's unigram probabilities."
        ),
    ] = "none"
    bias_rate: Annotated[
        float | None, Option("Peak learning rate of the head's bias. Default: that of the other parameters.", above=0)
    ] = None

    def check(self) -> None:
        """A rate needs a bias."""
        super().check()
        if self.bias_rate is not None and self.head_bias == "none":
            raise BadInput("--bias-rate is not used without a bias of the head: give --head-bias zero or unigram.")

    @property
    def needs_counts(self) -> bool:
        """For a bias that starts at the unigram law."""
        return self.head_bias == "unigram"

    @property
    def own_rate(self) -> float | None:
        """That of the bias."""
        return self.bias_rate

    def parameters(self, width: int, vocabulary: int, counts: Tensor | None) -> nn.Module | None:
        """The bias."""
        if self.head_bias == "none":
            return None
        if self.head_bias == "zero":
            return HeadBias(torch.zeros(vocabulary))
        assert counts is not None
        return HeadBias(log_unigram(counts, 0.5).float())

    def head(self, model: PreTrainedModel, own: nn.Module | None) -> Unembedding:
        """The model's head, with this bias added to its own."""
        found = head_of(model)
        if not isinstance(own, HeadBias):
            return found
        return found._replace(bias=own.bias if found.bias is None else found.bias + own.bias)

    def settle(self, model: PreTrainedModel, own: nn.Module | None) -> str | None:
        """Fold the bias into the head's rows, which a tied model then has of its own: any transformers loads it."""
        if not isinstance(own, HeadBias):
            return None
        output = output_layer(model)
        assert output is not None
        if output.bias is not None:
            output.bias.data.add_(own.bias.detach().to(output.bias))
            return None
        if output.weight is model.get_input_embeddings().weight:
            output.module.weight = nn.Parameter(output.weight.detach().clone())
            model.config.tie_word_embeddings = False
        if fold_bias(model, own.bias.detach()):
            return None
        return "the bias of the head is a parameter that only a model built by headscan has (lm_head.bias)"
