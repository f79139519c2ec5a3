"""Objectives: the losses that a training minimises.

An objective is a class, here or in a plug-in; a regulariser, a term that is added to it, is a
function of a plug-in.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.model.traits import embedding_table, output_layer
from headscan.run import BadInput, Option, Registry, Settings, options_of
from headscan.training.heads import Unembedding, fold_bias, head_of
from headscan.training.losses import ce_loss, cwt_loss, log_unigram
from headscan.training.losses.shared import check, reduce
from headscan.training.records import ObjectiveRecord


@dataclass(frozen=True)
class LossInputs:
    """The outputs of a body's forward pass that a loss reads.

    Attributes:
        own: the parameters that belong to the objective (see `Objective.parameters`).
        states: the last hidden states of all positions.
        labels: the tokens that the states are to predict (-100: none).
        rows, targets: states and labels of the positions that carry loss.
        pool: all tokens to compare with, the targets among them; None: the targets.
        reduction: "mean" over targets, or "sum" (micro-batches then add up).
        head: the map from `rows` to the logits, with the objective's own bias and cap; None without
            a head.
        block: the states before the final norm, of the positions that carry loss; None where no
            penalty reads them, or the body has no final norm.
    """

    model: PreTrainedModel
    own: nn.Module | None
    states: Float[Tensor, "batch time width"]
    labels: Int[Tensor, "batch time"]
    rows: Float[Tensor, "targets width"]
    targets: Int[Tensor, " targets"]
    pool: Int[Tensor, " pool"] | None
    reduction: Literal["mean", "sum"]
    head: Unembedding | None = None
    block: Float[Tensor, "targets width"] | None = None

    @property
    def embeddings(self) -> Float[Tensor, "vocabulary width"]:
        return embedding_table(self.model)

    @cached_property
    def logits(self) -> Float[Tensor, "targets vocabulary"]:
        """The head's logits, computed once for all readers; BadInput where there is no head."""
        if self.head is None:
            raise BadInput("A term of the logits needs a model with a head.")
        return self.head.logits(self.rows)


@dataclass(frozen=True)
class Readout:
    """The way in which a headless body is read out: scores are state . row / temperature.

    Attributes:
        note: a sentence about it for a reader of the numbers.
    """

    temperature: float = 1.0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Objective(Settings, ABC):
    """A loss that a model is trained to minimise; its `Option` fields are its parameters, on the
    command line too.

    Attributes:
        headless: the model is trained without a prediction head.
        contrastive: the loss compares with a pool of tokens, so that negatives of other
            micro-batches and processes can be pooled, and its floor and in-batch accuracy are
            watched.

    >>> objective_of("cwt"), OBJECTIVES["ce"].headless
    (WeightTying(temperature=1.0, normalize=False, form='unique'), False)
    """

    headless: ClassVar[bool] = False
    contrastive: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return OBJECTIVES.name_of(self)

    @property
    def needs_counts(self) -> bool:
        """Whether `parameters` needs the token counts of the training text."""
        return False

    def parameters(
        self, _width: int, _vocabulary: int, _counts: Int[Tensor, " vocabulary"] | None
    ) -> nn.Module | None:
        """Return fresh parameters that belong to the objective, not to the model; mostly None."""
        return None

    @property
    def own_rate(self) -> float | None:
        """The learning rate of the objective's own parameters; None: that of the others."""
        return None

    def head(self, model: PreTrainedModel, _own: nn.Module | None) -> Unembedding | None:
        """Return the map from the last hidden states to the logits; None for a headless model."""
        return None if self.headless else head_of(model)

    def settle(self, _model: PreTrainedModel, _own: nn.Module | None) -> str | None:
        """Put the objective's own parameters into the trained model; return a note for a reader of
        the model.
        """
        return None

    @abstractmethod
    def loss(self, inputs: LossInputs) -> Float[Tensor, ""]:
        """Return the loss in nats, the mean over the targets or their sum.

        It is 0, with a gradient of zeros, for no targets.
        """

    def reading(self) -> Readout:
        """Return the way in which a headless body is read out as a language model."""
        return Readout()

    def recorded(self, regulariser: str | None = None) -> ObjectiveRecord:
        """Return its name and parameters, for the protocol."""
        options = options_of(type(self))
        parameters = {option.name: getattr(self, option.name) for option in options}
        return ObjectiveRecord(name=self.name, parameters=parameters, regulariser=regulariser)


OBJECTIVES: Registry[type[Objective]] = Registry("objective", "headscan.training.objective")
"""All objectives by name; `registry.build("NAME:KEY=VALUE")` makes one."""


def objective_of(objective: str | Objective) -> Objective:
    """Return the objective of a name, with its default parameters, or the objective itself."""
    if isinstance(objective, Objective):
        return objective
    return cast(Objective, OBJECTIVES.build(objective))


@dataclass(frozen=True, kw_only=True)
class Contrastive(Objective):
    """An objective that finds the next token's row among those of a pool of tokens."""

    headless: ClassVar[bool] = True
    contrastive: ClassVar[bool] = True
    temperature: Annotated[
        float, Option("What the contrastive scores are divided by.", above=0)
    ] = 1.0
    normalize: Annotated[bool, Option("Compare directions only, in the contrastive loss.")] = False

    def contrast(self, inputs: LossInputs, form: str) -> Tensor:
        """Return the loss against the pool."""
        table = inputs.embeddings
        # A sharded table takes no sparse gradient.
        is_plain_tensor = type(table) in (nn.Parameter, Tensor)
        return cwt_loss(
            inputs.rows,
            table,
            inputs.targets,
            form,
            pool=inputs.pool,
            temperature=self.temperature,
            normalize=self.normalize,
            reduction=inputs.reduction,
            sparse=is_plain_tensor,
        )

    def reading(self) -> Readout:
        note = ""
        if self.normalize:
            note = "the loss compared directions; the held-out likelihood is read out by products"
        return Readout(temperature=self.temperature, note=note)


class HeadBias(nn.Module):
    """A trained bias [V] of the head, beside one that the model may have."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.bias = nn.Parameter(start)


@OBJECTIVES.register("ce")
class CrossEntropy(Objective):
    """Cross-entropy over the whole vocabulary, of a model with a head; a bias of the head is an
    option.

    A head without a bias must draw the unigram distribution from a direction that all hidden states
    share: a cone. A bias that starts there, or that is fast enough to get there first, takes that
    task off the states. "full" projects the positions that carry loss, "chunked" computes the
    logits twice in little memory, "fused" is torch's own kernel.
    """

    head_bias: Annotated[
        Literal["none", "zero", "unigram"],
        Option(
            "A bias of the head: none, or one that starts at zero or at the log of the text's "
            "unigram probabilities."
        ),
    ] = "none"
    bias_rate: Annotated[
        float | None,
        Option(
            "Peak learning rate of the head's bias. Default: that of the other parameters.", above=0
        ),
    ] = None
    projection: Annotated[
        Literal["full", "chunked", "fused"],
        Option("How the logits of the cross-entropy are computed."),
    ] = "full"
    cap: Annotated[
        float | None,
        Option("Soft cap of the logits: z becomes cap · tanh(z / cap); Gemma 2 has 30.", above=0),
    ] = None

    def check(self) -> None:
        super().check()
        if self.bias_rate is not None and self.head_bias == "none":
            raise BadInput(
                "bias_rate is not used without a bias of the head: give head_bias=zero or unigram."
            )
        if self.cap is not None and self.projection != "full":
            raise BadInput(f"cap is not used by the projection {self.projection}: it needs full.")

    @property
    def needs_counts(self) -> bool:
        return self.head_bias == "unigram"

    @property
    def own_rate(self) -> float | None:
        return self.bias_rate

    def parameters(self, _width: int, vocabulary: int, counts: Tensor | None) -> nn.Module | None:
        if self.head_bias == "none":
            return None
        if self.head_bias == "zero":
            return HeadBias(torch.zeros(vocabulary))
        assert counts is not None
        return HeadBias(log_unigram(counts, 0.5).float())

    def head(self, model: PreTrainedModel, own: nn.Module | None) -> Unembedding:
        head = head_of(model)._replace(cap=self.cap)
        if not isinstance(own, HeadBias):
            return head
        bias = own.bias if head.bias is None else head.bias + own.bias
        return head._replace(bias=bias)

    def settle(self, model: PreTrainedModel, own: nn.Module | None) -> str | None:
        notes = []
        if isinstance(own, HeadBias) and not self._add_bias(model, own.bias.detach()):
            notes.append(
                "the bias of the head is a parameter that only a model built by headscan has "
                "(lm_head.bias)"
            )
        if self.cap:
            notes.append(f"the logits of the model that is kept are to be capped at {self.cap:g}")
        return "; ".join(notes) or None

    def _add_bias(self, model: PreTrainedModel, bias: Tensor) -> bool:
        """Add a bias to the head; return whether any code that loads the model has it then: in a
        bias that the head had before, or folded into the last norm.
        """
        output = output_layer(model)
        assert output is not None
        if output.bias is not None:
            output.bias.data.add_(bias.to(output.bias))
            return True
        if output.weight is model.get_input_embeddings().weight:
            output.module.weight = nn.Parameter(output.weight.detach().clone())
            model.config.tie_word_embeddings = False
        return fold_bias(model, bias)

    def loss(self, inputs: LossInputs) -> Tensor:
        if self.projection != "full" or not len(inputs.targets):
            return head_loss(inputs, self.projection)
        assert inputs.head is not None
        check(inputs.rows, inputs.head.rows, inputs.targets)
        losses = torch.nn.functional.cross_entropy(inputs.logits, inputs.targets, reduction="none")
        return reduce(losses, inputs.reduction)


def head_loss(inputs: LossInputs, form: str) -> Tensor:
    """Return the cross-entropy of the positions that carry loss, by a form of `ce_loss`."""
    head = inputs.head
    assert head is not None
    rows = head.transform(inputs.rows)
    return ce_loss(
        rows, head.rows, inputs.targets, form, bias=head.bias, reduction=inputs.reduction
    )


@OBJECTIVES.register("ce+cwt")
class Mixed(Contrastive):
    """The sum of cross-entropy and contrastive weight tying, of a model with a head."""

    headless: ClassVar[bool] = False

    def loss(self, inputs: LossInputs) -> Tensor:
        return head_loss(inputs, "full") + self.contrast(inputs, "unique")


@OBJECTIVES.register("cwt")
class WeightTying(Contrastive):
    """Contrastive weight tying: find the next token's own input embedding among those of the batch,
    without a head.

    Source: Godey, de la Clergerie, Sagot, "Headless language models" (ICLR 2024); the forms are
        those of `cwt_loss`.
    """

    form: Annotated[
        Literal["unique", "dense", "chunked", "fused"],
        Option("How contrastive weight tying is computed."),
    ] = "unique"

    def loss(self, inputs: LossInputs) -> Tensor:
        return self.contrast(inputs, self.form)


Term = Callable[[LossInputs], Tensor]
REGULARISERS: Registry[Term] = Registry("regulariser")
"""Functions of the outputs of the forward pass (the model, the states [K, d] that carry loss, the
logits); each returns a scalar with gradient.
"""


def parse_regularisers(text: str | None) -> dict[str, float]:
    """Return the strengths by name; BadInput says what is wrong with the text.

    >>> parse_regularisers("cosine")
    Traceback (most recent call last):
    headscan.BadInput: A regulariser is written NAME:STRENGTH, as in cosine:0.1, not 'cosine'.
    """
    strengths: dict[str, float] = {}
    for part in (text or "").split(","):
        term = part.strip()
        if not term:
            continue
        name, colon, number = term.partition(":")
        try:
            strength = float(number)
        except ValueError:
            strength = math.nan
        if not colon or not math.isfinite(strength):
            raise BadInput(
                f"A regulariser is written NAME:STRENGTH, as in cosine:0.1, not {term!r}."
            )
        if name in strengths:
            raise BadInput(f"The regulariser {name!r} is given twice.")
        _ = REGULARISERS[name]  # BadInput where there is none of this name
        strengths[name] = strength
    return strengths


def penalty_of(strengths: dict[str, float], inputs: LossInputs) -> Float[Tensor, ""]:
    """Return the sum of the terms, a scalar with gradient; 0 where a batch has too few states to
    compare.
    """
    total = inputs.rows.sum() * 0
    for name, strength in strengths.items():
        total = total + strength * REGULARISERS[name](inputs)
    return total
