"""The base class of the ledger's experiments: parameters, words, least power, and the outcome."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias, dataclass_transform

from headscan.run import Interval, Registry
from headscan_lab.ledger.measurement import PROMPTS, SEEDS, Measurement

DocumentName: TypeAlias = Literal["slides", "paper", "article", "field", "later"]
DOCUMENTS: dict[DocumentName, str] = {
    "slides": "Godey, Language models have cone-shaped heads",
    "paper": "Zhao, Behnia, Vakilian, Thrampoulidis, arXiv:2408.15417",
    "article": "Badger, Language Modeling and Discrete Encodings",
    "field": "What the field holds of states and leaks",
    "later": "Five later papers: 2404.07647, 2401.12143, 2603.10145, 2510.06477, 2511.14808",
}

Tendency: TypeAlias = Literal["supported", "refuted", "confounded", "undecided"]
"""A verdict that an experiment alone can reach."""
ClaimVerdict: TypeAlias = Literal[
    "supported", "refuted", "confounded", "misprint", "undecided", "not tested"
]
VERDICTS: tuple[ClaimVerdict, ...] = (
    "supported",
    "refuted",
    "confounded",
    "undecided",
    "misprint",
    "not tested",
)


@dataclass(frozen=True)
class Region:
    """The values of a quantity that count: from `low` to `high`, both included; None is no bound.

    >>> str(Region(0.9, None)), str(Region(None, 0.5)), str(Region(-0.1, 0.1))
    ('at least 0.9', 'at most 0.5', 'from -0.1 to 0.1')
    """

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ValueError("a region without bounds cannot fail")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"a region runs upwards, not from {self.low} to {self.high}")

    def __str__(self) -> str:
        if self.low is None:
            return f"at most {self.high:g}"
        if self.high is None:
            return f"at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}"

    def bounds(self) -> list[float]:
        """Return the bounds that are not None, upwards."""
        return [bound for bound in (self.low, self.high) if bound is not None]

    def holds(self, value: float) -> bool:
        """Return whether a value lies in the region."""
        above = self.low is None or value >= self.low
        below = self.high is None or value <= self.high
        return above and below


@dataclass(frozen=True)
class Power:
    """The least sample with which an experiment may decide: seeds, and tokens of each arm."""

    seeds: int = 5
    tokens: int = 200


@dataclass(frozen=True)
class StandIn:
    """A proxy: a small model or text that is examined in place of the claim's own, and why it may
    be.
    """

    name: str
    why: str


@dataclass(frozen=True, kw_only=True)
class ExperimentWords:
    """The description of an experiment.

    Attributes:
        quantity: what is measured.
        test: the statistical test.
        scope: how far the answer reaches.
        range: the values that the quantity can have.
    """

    quantity: str
    test: str
    scope: str
    range: Interval = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class ExperimentOutcome:
    """The measurements of an experiment.

    Attributes:
        effect: the quantity; None where it could not be measured, and `note` says why.
        control: what the effect is compared with to learn its cause.
        cause: the cause that the control would show, a clause.
        works: the control on a case where its answer is known, so that its failing means something.
        beside: what else was measured.
        models: the names of the models that were examined.
    """

    effect: Measurement | None
    control: Measurement | None = None
    cause: str = ""
    works: Measurement | None = None
    beside: tuple[Measurement, ...] = ()
    models: tuple[str, ...] = ()
    note: str = ""


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """A measurement with parameters, which several claims may share.

    A subclass stands in `headscan_lab.ledger.experiments` under `@EXPERIMENTS.register(name)`,
    which makes it a frozen dataclass.
    """

    words: ClassVar[ExperimentWords]
    power: ClassVar[Power] = Power()
    controlled: ClassVar[bool] = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the experiment with the options of a claim's row."""
        return cls(**options)

    @abstractmethod
    def observe(self, seed: int) -> ExperimentOutcome:
        """Measure under a master seed, from which everything random follows.

        Cost: seconds to a few minutes.
        """

    def closer(self) -> Self | None:
        """Return the experiment with four times the prompts.

        It is None where that would take too long, or where more prompts change nothing.
        """
        return None

    def on(self, _model: str) -> "Experiment | None":
        """Return the experiment on a trained model in place of the proxy.

        It is None where that would take more than minutes, or would not be the same experiment.

        Args:
            model: a model as any verb takes it.
        """
        return None

    def stand_ins(self) -> tuple[StandIn, ...]:
        """Return what is examined in place of the claim's own model and data."""
        return ()


EXPERIMENTS: Registry[type[Experiment]] = Registry("experiment", "headscan_lab.ledger.experiments")
"""Every kind of experiment by its name; `headscan_lab.ledger.experiments` holds them."""


def enough_prompts(scored: int, least: int = PROMPTS) -> int:
    """Return how many prompts a repeat needs for the tokens that a protocol asks for.

    Args:
        scored: scored tokens of a prompt.

    >>> enough_prompts(6), enough_prompts(1)
    (20, 40)
    """
    return max(least, math.ceil(Power().tokens / SEEDS / scored))
