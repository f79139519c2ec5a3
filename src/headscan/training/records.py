"""The records of a training run: its loss curve, its geometry and its held-out likelihood."""

from dataclasses import dataclass

from headscan.measures.kept_gradient import KeptGradient
from headscan.run import Row


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One line of the log: means over the targets since the line before, in nats.

    A field is None where the objective has no such number.

    Attributes:
        floor_corrected_loss: the loss without the least value that a contrastive loss can take on
            the same targets.
        penalty: what the regulariser adds; the loss does not contain it.
    """

    step: int
    loss: float
    floor_corrected_loss: float | None = None
    in_batch_accuracy: float | None = None
    penalty: float | None = None
    learning_rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class GeometrySnapshot:
    """The geometry of every site after a step: rows with `site` and the measures.

    Attributes:
        gradient: the part of the logits' gradient that passes the head, of a model that predicts
            the next token by one.
    """

    step: int
    sites: list[Row]
    gradient: KeptGradient | None = None

    def site(self, name: str) -> Row:
        """Return the row of a site."""
        return next(row for row in self.sites if row["site"] == name)


@dataclass(frozen=True, kw_only=True)
class Likelihood:
    """How probable a model finds windows of tokens; see `perplexity`.

    Attributes:
        interval: the 95 % interval of nats_per_token. Those of perplexity and bits_per_byte rest
            on the same clusters.
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
    """An objective by its name, its parameters, and the terms of the regulariser."""

    name: str
    parameters: dict[str, str | float | int | bool | None]
    regulariser: str | None = None
