"""What the contrastive objectives share: their parameters, and the loss against a pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.model.traits import output_layer
from headscan.run import BadInput, Option
from headscan.training.heads import Unembedding, fold_bias, head_of
from headscan.training.losses import ce_loss, cwt_loss, log_unigram
from headscan.training.losses.shared import check, reduce
from headscan.training.objective import OBJECTIVES, LossInputs, Objective, Readout


@dataclass(frozen=True, kw_only=True)
class Contrastive(Objective):
    """Point at the next token's row, among those of a pool of tokens."""

    headless: ClassVar[bool] = True
    contrastive: ClassVar[bool] = True
    temperature: Annotated[float, Option("What the contrastive scores are divided by.", above=0)] = 1.0
    normalize: Annotated[bool, Option("Compare directions only, in the contrastive loss.")] = False

    def contrast(self, inputs: LossInputs, form: str) -> Tensor:
        """The loss against the pool."""
        table = inputs.embeddings
        return cwt_loss(
            inputs.rows, table, inputs.targets, form, pool=inputs.pool, temperature=self.temperature,
            normalize=self.normalize, reduction=inputs.reduction,
            sparse=type(table) in (nn.Parameter, Tensor),  # a sharded table takes no sparse gradient
        )  # fmt: skip

    def reading(self) -> Readout:
        note = "the loss compared directions; the held-out likelihood is read out by products" if self.normalize else ""
        return Readout(temperature=self.temperature, note=note)


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
        super().check()
        if self.bias_rate is not None and self.head_bias == "none":
            raise BadInput("bias_rate is not used without a bias of the head: give head_bias=zero or unigram.")

    @property
    def needs_counts(self) -> bool:
        return self.head_bias == "unigram"

    @property
    def own_rate(self) -> float | None:
        return self.bias_rate

    def parameters(self, width: int, vocabulary: int, counts: Tensor | None) -> nn.Module | None:
        if self.head_bias == "none":
            return None
        if self.head_bias == "zero":
            return HeadBias(torch.zeros(vocabulary))
        assert counts is not None
        return HeadBias(log_unigram(counts, 0.5).float())

    def head(self, model: PreTrainedModel, own: nn.Module | None) -> Unembedding:
        found = head_of(model)
        if not isinstance(own, HeadBias):
            return found
        return found._replace(bias=own.bias if found.bias is None else found.bias + own.bias)

    def settle(self, model: PreTrainedModel, own: nn.Module | None) -> str | None:
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


@OBJECTIVES.register("ce")
@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Headed):
    """Cross-entropy over the whole vocabulary, of a model with a head.

    "full" projects the positions that carry loss, "chunked" computes the logits twice in little memory, "fused" is
    torch's own kernel.
    """

    projection: Annotated[
        Literal["full", "chunked", "fused"], Option("How the logits of the cross-entropy are computed.")
    ] = "full"
    cap: Annotated[
        float | None, Option("Soft cap of the logits: z becomes cap · tanh(z / cap); Gemma 2 has 30.", above=0)
    ] = None

    def check(self) -> None:
        super().check()
        if self.cap is not None and self.projection != "full":
            raise BadInput(f"cap is not used by the projection {self.projection}: it needs full.")

    def head(self, model: PreTrainedModel, own: nn.Module | None) -> Unembedding:
        return super().head(model, own)._replace(cap=self.cap)

    def settle(self, model: PreTrainedModel, own: nn.Module | None) -> str | None:
        notes = [super().settle(model, own)]
        notes += [f"the logits of the model that is kept are to be capped at {self.cap:g}"] if self.cap else []
        return "; ".join(note for note in notes if note) or None

    def loss(self, inputs: LossInputs) -> Tensor:
        head = inputs.head
        assert head is not None
        if self.projection == "full" and len(inputs.targets):
            check(inputs.rows, head.rows, inputs.targets)
            losses = torch.nn.functional.cross_entropy(inputs.logits, inputs.targets, reduction="none")
            return reduce(losses, inputs.reduction)
        return head_loss(inputs, self.projection)


def head_loss(inputs: LossInputs, form: str) -> Tensor:
    """Cross-entropy of the positions that carry loss, by one of the forms of `ce_loss`."""
    head = inputs.head
    assert head is not None
    rows = head.transform(inputs.rows)
    return ce_loss(rows, head.rows, inputs.targets, form, bias=head.bias, reduction=inputs.reduction)


@OBJECTIVES.register("ce+cwt")
@dataclass(frozen=True, kw_only=True)
class Mixed(Contrastive):
    """Cross-entropy and contrastive weight tying, added up, of a model with a head."""

    headless: ClassVar[bool] = False

    def loss(self, inputs: LossInputs) -> Tensor:
        return head_loss(inputs, "full") + self.contrast(inputs, "unique")


@OBJECTIVES.register("cwt")
@dataclass(frozen=True, kw_only=True)
class WeightTying(Contrastive):
    """Contrastive weight tying: find the next token's own input embedding among those of the batch, without a head.

    Source: Godey, de la Clergerie, Sagot, "Headless language models" (ICLR 2024); the forms are those of `cwt_loss`.
    """

    form: Annotated[
        Literal["unique", "dense", "chunked", "fused"], Option("How contrastive weight tying is computed.")
    ] = "unique"

    def loss(self, inputs: LossInputs) -> Tensor:
        return self.contrast(inputs, self.form)
