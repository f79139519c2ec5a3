"""What the results of training are made of."""

from __future__ import annotations

from dataclasses import dataclass

from headscan.geometry.kept_gradient import KeptGradient
from headscan.run import Row

__all__ = ["CurvePoint", "GeometryMoment", "Likelihood", "ObjectiveRecord", "Score"]


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
class GeometryMoment:
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


@dataclass(frozen=True, kw_only=True)
class Score:
    """One number of an evaluation task. interval: 95 %, over other items (of `of_items`); None of what is no estimate from
    items: a count, a p-value, a spread."""

    task: str
    number: str
    value: float | int | None
    interval: list[float] | None = None
