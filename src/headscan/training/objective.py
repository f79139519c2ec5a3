"""What is minimised: an objective is one class in one file of `headscan.training.objectives`, or of a plug-in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.measures.kept_gradient import KeptGradient
from headscan.model.traits import embedding_table
from headscan.run import BadInput, Registry, Row, Settings, options_of
from headscan.training.heads import Unembedding, head_of


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One line of the log: means over the targets since the last one, in nats; None where the objective has no such number.

    `floor_corrected_loss` is the loss without the least that a contrastive loss can be on the same targets, `penalty`
    what the regulariser adds (the loss is without it).
    """

    step: int
    loss: float
    floor_corrected_loss: float | None = None
    in_batch_accuracy: float | None = None
    penalty: float | None = None
    learning_rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class GeometrySnapshot:
    """The geometry of every site (rows with `site` and measures) after a step; `gradient`: what of the logits' gradient
    passes the head, of a model that predicts the next token by one."""

    step: int
    sites: list[Row]
    gradient: KeptGradient | None = None

    def site(self, name: str) -> Row:
        """The row of a site."""
        return next(row for row in self.sites if row["site"] == name)


@dataclass(frozen=True, kw_only=True)
class Likelihood:
    """How probable a model finds windows of tokens; see `perplexity`. `interval`: of nats_per_token, 95 %; those of
    perplexity and bits_per_byte by the same clusters."""

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

    Attributes:
        model, own: the model, and the parameters that belong to the objective (see `Objective.parameters`).
        states, labels: the last hidden states of all positions, and the tokens they are to predict (-100: none).
        rows, targets: of these, the positions that carry loss.
        pool: all tokens to compare with, the targets among them; None: the targets.
        reduction: whether the loss is the mean over targets or their sum (micro-batches then add up).
        head: what stands between `rows` and the logits, the objective's own bias and cap with it; None without a head.
        block: the states before the final norm, of the positions that carry loss; None where nothing asks for them.
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

    @property
    def after_norm(self) -> Float[Tensor, "targets width"]:
        return _wide(self.rows)

    @property
    def before_norm(self) -> Float[Tensor, "targets width"]:
        """`block` in float32 or wider; BadInput where the body has no final norm."""
        if self.block is None:
            raise BadInput(
                f"{type(self.model).__name__} has no final norm, so its last block's states are its last states."
            )
        return _wide(self.block)


@dataclass(frozen=True)
class Readout:
    """How a trained body is read out as a language model: scores are state . row / temperature.

    note: what to know of it.
    """

    temperature: float = 1.0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Objective(Settings, ABC):
    """What a model is trained to minimise; its `Option` fields are its parameters, on the command line too.

    headless: the model is trained without a prediction head. contrastive: the loss compares with a pool of tokens, so
    that negatives of other micro-batches and processes can be pooled, and its floor and in-batch accuracy are watched.

    >>> objective_of("cwt"), OBJECTIVES["ce"].headless
    (WeightTying(temperature=1.0, normalize=False, form='unique'), False)
    """

    headless: ClassVar[bool] = False
    contrastive: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return next((name for name, item in OBJECTIVES.items() if item is type(self)), type(self).__name__)

    @property
    def needs_counts(self) -> bool:
        return False

    def parameters(self, width: int, vocabulary: int, counts: Int[Tensor, " vocabulary"] | None) -> nn.Module | None:
        """Parameters that belong to the objective and not to the model, freshly initialised; usually none."""
        return None

    @property
    def own_rate(self) -> float | None:
        return None

    def head(self, model: PreTrainedModel, own: nn.Module | None) -> Unembedding | None:
        """What stands between the last hidden states and the logits; None for a model without a head."""
        return None if self.headless else head_of(model)

    def settle(self, model: PreTrainedModel, own: nn.Module | None) -> str | None:
        """Once training is over, put what the objective holds into the model that is kept; what a reader must know of it."""
        return None

    @abstractmethod
    def loss(self, inputs: LossInputs) -> Float[Tensor, ""]:
        """The loss in nats, the mean over the targets or their sum; 0, with a gradient of zeros, for no targets."""

    def reading(self) -> Readout:
        """How a headless body is read out as a language model."""
        return Readout()

    def recorded(self, regulariser: str | None = None) -> ObjectiveRecord:
        """Its name and parameters, for the protocol."""
        parameters = {one.name: getattr(self, one.name) for one in options_of(type(self))}
        return ObjectiveRecord(name=self.name, parameters=parameters, regulariser=regulariser)


def _wide(states: Tensor) -> Tensor:
    return states.float() if states.dtype.itemsize < 4 else states


OBJECTIVES: Registry[type[Objective]] = Registry("objective", "headscan.training.objectives")
"""All objectives by name; `registry.build("NAME:KEY=VALUE")` makes one."""


def objective_of(given: str | Objective) -> Objective:
    """The objective of a name, with its default parameters; one that is made already is returned."""
    if isinstance(given, Objective):
        return given
    made = OBJECTIVES.build(given)
    assert isinstance(made, Objective)
    return made


#
# A term is one function in one file of `headscan.training.regularisers`, or of a plug-in.

Term = Callable[[LossInputs], Tensor]
REGULARISERS: Registry[Term] = Registry("regulariser", "headscan.training.regularisers")
"""Functions of what the forward pass left (the model, the states [K, d] that carry loss, the logits): a scalar with gradient."""


def parse_regularisers(text: str | None) -> dict[str, float]:
    """Strengths by name; BadInput says what is wrong with the text.

    >>> parse_regularisers("cosine:0.1, z-loss:1e-4")
    {'cosine': 0.1, 'z-loss': 0.0001}
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
            raise BadInput(f"A regulariser is written NAME:STRENGTH, as in cosine:0.1, not {part!r}.")
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
