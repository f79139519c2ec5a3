"""What is minimised: an objective is one class in one file of `headscan.training.objectives`, or of a plug-in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscan.model.tables import embedding_table
from headscan.run import BadInput, Registry, Settings, options_of
from headscan.training.heads import Unembedding, head_of
from headscan.training.records import ObjectiveRecord

__all__ = ["OBJECTIVES", "LossInputs", "Objective", "Readout", "objective_of"]


@dataclass(frozen=True)
class LossInputs:
    """What the forward pass of a body leaves for a loss.

    Attributes:
        model, own: the model, and the parameters that belong to the objective (see `Objective.parameters`).
        states, labels: the last hidden states of all positions, and the tokens they are to predict (-100: none).
        rows, targets: of these, the positions that carry loss.
        pool: all tokens to compare with, the targets among them; None: the targets.
        log_law: the log of the smoothed unigram probabilities, where the objective `needs_counts`.
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
    log_law: Float[Tensor, " vocabulary"]
    reduction: Literal["mean", "sum"]
    head: Unembedding | None = None
    block: Float[Tensor, "targets width"] | None = None

    @property
    def embeddings(self) -> Float[Tensor, "vocabulary width"]:
        """The model's input embeddings, one row a token."""
        return embedding_table(self.model)

    @cached_property
    def logits(self) -> Float[Tensor, "targets vocabulary"]:
        """The head's logits, computed once for all that ask; BadInput where there is no head."""
        if self.head is None:
            raise BadInput("A term of the logits needs a model with a head.")
        return self.head.logits(self.rows)

    @property
    def after_norm(self) -> Float[Tensor, "targets width"]:
        """`rows` in float32 or wider: squares of half-precision numbers overflow."""
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

    rows: the table that the loss compared with, where it was not the input embeddings. note: what to know of it.
    """

    temperature: float = 1.0
    rows: Tensor | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Objective(Settings, ABC):
    """What a model is trained to minimise; its `Option` fields are its parameters, on the command line too.

    headless: the model is trained without a prediction head. contrastive: the loss compares with a pool of tokens, so
    that negatives of other micro-batches and processes can be pooled, and its floor and in-batch accuracy are watched.

    >>> objective_of("cwt"), OBJECTIVES["ce"].headless
    (WeightTying(temperature=1.0, normalize=False, extra_negatives=0, form='unique'), False)
    """

    headless: ClassVar[bool] = False
    contrastive: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """As it is registered."""
        return next((name for name, item in OBJECTIVES.items() if item is type(self)), type(self).__name__)

    @property
    def needs_counts(self) -> bool:
        """Whether it must know how often each token occurs in the text."""
        return False

    def parameters(self, width: int, vocabulary: int, counts: Int[Tensor, " vocabulary"] | None) -> nn.Module | None:
        """Parameters that belong to the objective and not to the model, freshly initialised; usually none."""
        return None

    @property
    def own_rate(self) -> float | None:
        """Peak learning rate of those parameters; None: that of the others."""
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

    def table(self, model: PreTrainedModel, own: nn.Module | None) -> Float[Tensor, "vocabulary width"]:
        """The rows that a contrastive loss compares with: by default the input embeddings."""
        return embedding_table(model)

    def reading(self, own: nn.Module | None) -> Readout | str:
        """How a headless body is read out as a language model, or a sentence on why it is not."""
        return Readout()

    def recorded(self, regulariser: str | None = None) -> ObjectiveRecord:
        """Its name and parameters, for the protocol."""
        parameters = {one.name: getattr(self, one.name) for one in options_of(type(self))}
        return ObjectiveRecord(name=self.name, parameters=parameters, regulariser=regulariser)


def _wide(states: Tensor) -> Tensor:
    return states.float() if states.dtype.itemsize < 4 else states


OBJECTIVES: Registry[type[Objective]] = Registry("objective", "headscan.training.objectives")
"""All objectives by name; `registry.build(name, parameters)` makes one."""


def objective_of(given: str | Objective) -> Objective:
    """The objective of a name, with its default parameters; one that is made already is returned."""
    if isinstance(given, Objective):
        return given
    made = OBJECTIVES.build(given)
    assert isinstance(made, Objective)
    return made
