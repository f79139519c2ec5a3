"""What the contrastive objectives share: their parameters, and the loss against a pool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.model.traits import output_layer
from headscan.run import BadInput, Option
from headscan.training.heads import Unembedding, fold_bias, head_of
from headscan.training.losses import (
    AdaptiveSoftmax,
    ce_loss,
    cwt_loss,
    full_ce_loss,
    log_unigram,
    sample_noise,
    sampled_softmax_loss,
)
from headscan.training.losses.shared import check, reduce
from headscan.training.objective import OBJECTIVES, LossInputs, Objective, Readout


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


@OBJECTIVES.register("adaptive")
@dataclass(frozen=True, kw_only=True)
class Adaptive(Objective):
    """Adaptive softmax: frequent tokens in a short head, rare ones in narrow tails (Grave et al. 2017)."""

    headless: ClassVar[bool] = True

    @property
    def needs_counts(self) -> bool:
        return True

    def parameters(self, width: int, vocabulary: int, counts: Tensor | None) -> nn.Module | None:
        assert counts is not None
        return AdaptiveSoftmax(width, counts)

    def loss(self, inputs: LossInputs) -> Tensor:
        assert isinstance(inputs.own, AdaptiveSoftmax)
        loss: Tensor = inputs.own(inputs.rows, inputs.targets)
        return loss * (1 if inputs.reduction == "mean" else len(inputs.targets))

    def reading(self, own: nn.Module | None) -> Readout | str:
        return "the adaptive softmax is no linear head, so its held-out likelihood is not read out"


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


@OBJECTIVES.register("ce+cwt")
@dataclass(frozen=True, kw_only=True)
class Mixed(Contrastive):
    """Cross-entropy and contrastive weight tying, added up, of a model with a head."""

    headless: ClassVar[bool] = False

    def loss(self, inputs: LossInputs) -> Tensor:
        return head_loss(inputs, "full") + self.contrast(inputs, "unique", sparse=True)


@OBJECTIVES.register("nce")
@dataclass(frozen=True, kw_only=True)
class OwnTable(Contrastive):
    """The contrastive loss against a table of its own instead of the input embeddings (no weight tying)."""

    def parameters(self, width: int, vocabulary: int, counts: Tensor | None) -> nn.Module | None:
        table = nn.Embedding(vocabulary, width)
        table.weight.data.normal_(std=0.02)
        return table

    def table(self, model: PreTrainedModel, own: nn.Module | None) -> Tensor:
        assert isinstance(own, nn.Embedding)
        return own.weight

    def loss(self, inputs: LossInputs) -> Tensor:
        return self.contrast(inputs, "unique", sparse=False)

    def reading(self, own: nn.Module | None) -> Readout | str:
        found = super().reading(own)
        assert isinstance(found, Readout)
        assert isinstance(own, nn.Embedding)
        return replace(found, rows=own.weight)


@OBJECTIVES.register("sampled")
@dataclass(frozen=True, kw_only=True)
class SampledSoftmax(Headed):
    """Sampled softmax: cross-entropy among the target and noise from the unigram distribution (Jean et al. 2015)."""

    noise_tokens: Annotated[int, Option("Noise tokens that the sampled softmax draws a step.", low=1)] = 1024

    @property
    def needs_counts(self) -> bool:
        return True

    def loss(self, inputs: LossInputs) -> Tensor:
        head = inputs.head
        assert head is not None
        noise = sample_noise(inputs.log_law, self.noise_tokens)
        rows = head.transform(inputs.rows)
        return sampled_softmax_loss(
            rows, head.rows, inputs.targets, noise, inputs.log_law, bias=head.bias, reduction=inputs.reduction
        )


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
        return self.contrast(inputs, self.form, sparse=True)
