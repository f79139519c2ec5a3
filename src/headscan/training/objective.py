"""What is minimised: an objective is a class, here or in a plug-in; a regulariser (a term beside
it) is a plug-in's function.
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

from headscan.measures.kept_gradient import KeptGradient
from headscan.model.traits import embedding_table, output_layer
from headscan.run import BadInput, Option, Registry, Row, Settings, options_of
from headscan.training.heads import Unembedding, fold_bias, head_of
from headscan.training.losses import ce_loss, cwt_loss, log_unigram
from headscan.training.losses.shared import check, reduce


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One line of the log: means over the targets since the last one, in nats; None where the
    objective has no such number.

    `floor_corrected_loss` is the loss without the least that a contrastive loss can be on the same
    targets, `penalty` what the regulariser adds (the loss is without it).
    """

    step: int
    loss: float
    floor_corrected_loss: float | None = None
    in_batch_accuracy: float | None = None
    penalty: float | None = None
    learning_rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class GeometrySnapshot:
    """The geometry of every site (rows with `site` and measures) after a step; `gradient`: what of
    the logits' gradient passes the head, of a model that predicts the next token by one.
    """

    step: int
    sites: list[Row]
    gradient: KeptGradient | None = None

    def site(self, name: str) -> Row:
        """The row of a site."""
        return next(row for row in self.sites if row["site"] == name)


@dataclass(frozen=True, kw_only=True)
class Likelihood:
    """How probable a model finds windows of tokens; see `perplexity`. `interval`: of
    nats_per_token, 95 %; those of perplexity and bits_per_byte by the same clusters.
    """

    nats_per_token: float
    standard_error: float | None
    interval: list[float] | None = None
    perplexity: float
    perplexity_interval: list[float] | None = None
    bits_per_byte: float | None
    bits_per_byte_interval: list[float] | None = None
    tokens: int


@dataclass(frozen=True, kw_only=True)
class ObjectiveRecord:
    """What was minimised: the objective by name, its parameters, and the regulariser's terms."""

    name: str
    parameters: dict[str, str | float | int | bool | None]
    regulariser: str | None = None


@dataclass(frozen=True)
class LossInputs:
    """What the forward pass of a body leaves for a loss.

    own: the parameters that belong to the objective (see `Objective.parameters`). states, labels:
    the last hidden states of all positions, and the tokens they are to predict (-100: none). rows,
    targets: of these, the positions that carry loss.
    pool: all tokens to compare with, the targets among them; None: the targets. reduction: whether
    the loss is the mean over targets or their sum (micro-batches then add up). head: what stands
    between `rows` and the logits, the objective's own bias and cap with it; None without a head.
    block: the states before the final norm, of the positions that carry loss; None where nothing
    asks for them, or the body has no final norm.
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
        """The head's logits, computed once for all that ask; BadInput where there is no head."""
        if self.head is None:
            raise BadInput("A term of the logits needs a model with a head.")
        return self.head.logits(self.rows)


@dataclass(frozen=True)
class Readout:
    """How a trained body is read out as a language model: scores are state . row / temperature;
    `note`: what to know of it.
    """

    temperature: float = 1.0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Objective(Settings, ABC):
    """What a model is trained to minimise; its `Option` fields are its parameters, on the command
    line too.

    headless: the model is trained without a prediction head. contrastive: the loss compares with a
    pool of tokens, so that negatives of other micro-batches and processes can be pooled, and its
    floor and in-batch accuracy are watched.

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
        return False

    def parameters(
        self, width: int, vocabulary: int, counts: Int[Tensor, " vocabulary"] | None
    ) -> nn.Module | None:
        """Parameters that belong to the objective and not to the model, freshly initialised;
        usually none.
        """
        return None

    @property
    def own_rate(self) -> float | None:
        return None

    def head(self, model: PreTrainedModel, own: nn.Module | None) -> Unembedding | None:
        """What stands between the last hidden states and the logits; None for a model without a
        head.
        """
        return None if self.headless else head_of(model)

    def settle(self, model: PreTrainedModel, own: nn.Module | None) -> str | None:
        """Once training is over, put what the objective holds into the model that is kept; what a
        reader must know of it.
        """
        return None

    @abstractmethod
    def loss(self, inputs: LossInputs) -> Float[Tensor, ""]:
        """The loss in nats, the mean over the targets or their sum; 0, with a gradient of zeros,
        for no targets.
        """

    def reading(self) -> Readout:
        """How a headless body is read out as a language model."""
        return Readout()

    def recorded(self, regulariser: str | None = None) -> ObjectiveRecord:
        """Its name and parameters, for the protocol."""
        parameters = {one.name: getattr(self, one.name) for one in options_of(type(self))}
        return ObjectiveRecord(name=self.name, parameters=parameters, regulariser=regulariser)


OBJECTIVES: Registry[type[Objective]] = Registry("objective", "headscan.training.objective")
"""All objectives by name; `registry.build("NAME:KEY=VALUE")` makes one."""


def objective_of(given: str | Objective) -> Objective:
    """The objective of a name, with its default parameters; one that is made already is returned."""
    return given if isinstance(given, Objective) else cast(Objective, OBJECTIVES.build(given))


@dataclass(frozen=True, kw_only=True)
class Contrastive(Objective):
    """Point at the next token's row, among those of a pool of tokens."""

    headless: ClassVar[bool] = True
    contrastive: ClassVar[bool] = True
    temperature: Annotated[
        float, Option("What the contrastive scores are divided by.", above=0)
    ] = 1.0
    normalize: Annotated[bool, Option("Compare directions only, in the contrastive loss.")] = False

    def contrast(self, inputs: LossInputs, form: str) -> Tensor:
        """The loss against the pool."""
        table = inputs.embeddings
        return cwt_loss(
            inputs.rows,
            table,
            inputs.targets,
            form,
            pool=inputs.pool,
            temperature=self.temperature,
            normalize=self.normalize,
            reduction=inputs.reduction,
            sparse=type(table)
            in (nn.Parameter, Tensor),  # a sharded table takes no sparse gradient
        )

    def reading(self) -> Readout:
        note = (
            "the loss compared directions; the held-out likelihood is read out by products"
            if self.normalize
            else ""
        )
        return Readout(temperature=self.temperature, note=note)


class HeadBias(nn.Module):
    """A trained bias [V] of the head, beside one that the model may have."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.bias = nn.Parameter(start)


@OBJECTIVES.register("ce")
class CrossEntropy(Objective):
    """Cross-entropy over the whole vocabulary, of a model with a head, and a bias of the head where
    one is asked for.

    A head without a bias must draw the unigram law from a direction that all hidden states share: a
    cone. A bias that starts there, or that is fast enough to get there first, takes that work off
    the states. "full" projects the positions that carry loss, "chunked" computes the logits twice
    in little memory, "fused" is torch's own kernel.
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

    def parameters(self, width: int, vocabulary: int, counts: Tensor | None) -> nn.Module | None:
        if self.head_bias == "none":
            return None
        if self.head_bias == "zero":
            return HeadBias(torch.zeros(vocabulary))
        assert counts is not None
        return HeadBias(log_unigram(counts, 0.5).float())

    def head(self, model: PreTrainedModel, own: nn.Module | None) -> Unembedding:
        found = head_of(model)._replace(cap=self.cap)
        if not isinstance(own, HeadBias):
            return found
        return found._replace(bias=own.bias if found.bias is None else found.bias + own.bias)

    def settle(self, model: PreTrainedModel, own: nn.Module | None) -> str | None:
        notes = []
        if isinstance(own, HeadBias) and not self._settled(model, own.bias.detach()):
            notes.append(
                "the bias of the head is a parameter that only a model built by headscan has "
                "(lm_head.bias)"
            )
        if self.cap:
            notes.append(f"the logits of the model that is kept are to be capped at {self.cap:g}")
        return "; ".join(notes) or None

    def _settled(self, model: PreTrainedModel, bias: Tensor) -> bool:
        """Whether any code that loads the model finds the bias: in one that the head has, or folded
        into the last norm.
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
    """Cross-entropy of the positions that carry loss, by one of the forms of `ce_loss`."""
    head = inputs.head
    assert head is not None
    rows = head.transform(inputs.rows)
    return ce_loss(
        rows, head.rows, inputs.targets, form, bias=head.bias, reduction=inputs.reduction
    )


@OBJECTIVES.register("ce+cwt")
class Mixed(Contrastive):
    """Cross-entropy and contrastive weight tying, added up, of a model with a head."""

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
"""Functions of what the forward pass left (the model, the states [K, d] that carry loss, the
logits): a scalar with gradient.
"""


def parse_regularisers(text: str | None) -> dict[str, float]:
    """Strengths by name; BadInput says what is wrong with the text.

    >>> parse_regularisers("cosine")
    Traceback (most recent call last):
    headscan.BadInput: A regulariser is written NAME:STRENGTH, as in cosine:0.1, not 'cosine'.
    """
    found: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in (text or "").split(","))):
        name, colon, strength = part.partition(":")
        try:
            value = float(strength)
        except ValueError:
            value = math.nan
        if not colon or not math.isfinite(value):
            raise BadInput(
                f"A regulariser is written NAME:STRENGTH, as in cosine:0.1, not {part!r}."
            )
        if name in found:
            raise BadInput(f"The regulariser {name!r} is given twice.")
        _ = REGULARISERS[name]
        found[name] = value
    return found


def penalty_of(strengths: dict[str, float], inputs: LossInputs) -> Float[Tensor, ""]:
    """The sum of the terms, a scalar with gradient; 0 where a batch has too few states to compare."""
    total = inputs.rows.sum() * 0
    for name, strength in strengths.items():
        total = total + strength * REGULARISERS[name](inputs)
    return total
