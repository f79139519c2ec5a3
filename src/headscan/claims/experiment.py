"""What every experiment of the ledger is: parameters, words, the power it must have, and what it saw."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from headscan.claims.measurement import Measurement
from headscan.claims.protocol import Power, StandIn
from headscan.run import Interval, Registry

__all__ = [
    "EXPERIMENTS",
    "PROMPTS",
    "SEEDS",
    "Experiment",
    "ExperimentOutcome",
    "ExperimentWords",
    "enough",
    "own_seeds",
]

SEEDS = 5
"""How often an experiment is repeated, each time with a seed of its own."""
PROMPTS = 20
"""Prompts of a repeat at least: where all 100 agree the interval is .038 wide, so that a share of 0 or 1 decides every rule;
at a half it is .1 to either side."""


@dataclass(frozen=True, kw_only=True)
class ExperimentWords:
    """What an experiment says of itself: the quantity, the values it can have, the test, and how far its answer reaches."""

    quantity: str
    test: str
    scope: str
    range: Interval = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class ExperimentOutcome:
    """What an experiment saw.

    Attributes:
        effect: the quantity; None where it could not be measured, and `note` says why.
        control: what the effect is measured against to tell its cause; cause: the cause that it would show, a clause.
        works: the control on a case where its answer is known, so that its failing means something.
        beside: what else was measured.
        models: those examined, by their names.
    """

    effect: Measurement | None
    control: Measurement | None = None
    cause: str = ""
    works: Measurement | None = None
    beside: tuple[Measurement, ...] = ()
    models: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """A measurement with parameters, which several claims may share.

    A subclass is a frozen dataclass in a file of `headscan.claims.experiments` under `@EXPERIMENTS.register(name)`.
    """

    words: ClassVar[ExperimentWords]
    power: ClassVar[Power] = Power()
    controlled: ClassVar[bool] = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """From the options of a claim's row."""
        return cls(**options)

    @abstractmethod
    def observe(self, seed: int) -> ExperimentOutcome:
        """Measure under a master seed, from which everything random follows. Cost: seconds to a few minutes."""

    def closer(self) -> Self | None:
        """The same with four times the prompts; None where that would take too long, or is what it is."""
        return None

    def on(self, model: str) -> Self | None:
        """The same on a trained model (as any verb takes it) in place of the stand-in; None where that cannot be done in
        minutes, or would not be the same."""
        return None

    def stand_ins(self) -> tuple[StandIn, ...]:
        """What is examined in place of the claim's own model and data."""
        return ()


EXPERIMENTS: Registry[type[Experiment]] = Registry("experiment", "headscan.claims.experiments")
"""Every kind of experiment by its name; `headscan.claims.experiments` holds one a file."""


def own_seeds(seed: int) -> list[int]:
    """The seeds of the repeats under a master seed.

    >>> own_seeds(3)
    [3000, 3001, 3002, 3003, 3004]
    """
    return [1000 * seed + k for k in range(SEEDS)]


def enough(scored: int, least: int = PROMPTS) -> int:
    """Prompts of a repeat, so many tokens of each of which are scored, that give the tokens a protocol asks for.

    >>> enough(6), enough(1)
    (20, 40)
    """
    return max(least, math.ceil(Power().tokens / SEEDS / scored))
