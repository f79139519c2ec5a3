"""A claim of the literature as code: what was said, what to measure, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from headscan.run import BadInput, Json

__all__ = ["CLAIMS", "OUTCOMES", "Claim", "Experiment", "Outcome", "Verdict", "claim"]

Outcome = Literal["reproduced", "artefact", "not reproduced", "needs a larger model"]
OUTCOMES: tuple[Outcome, ...] = ("reproduced", "artefact", "not reproduced", "needs a larger model")


@dataclass(frozen=True)
class Verdict:
    """What an experiment found.

    outcome: "reproduced", "artefact" (what was seen is seen again, but means something else), "not reproduced", or "needs
    a larger model" (then `why` holds the command to run it there). measured: plain numbers by name. why: one sentence.
    """

    outcome: Outcome
    why: str
    measured: Mapping[str, Json] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            raise ValueError(f"a verdict is one of {', '.join(OUTCOMES)}, not {self.outcome!r}")


Experiment: TypeAlias = Callable[[int], Verdict]
"""From a seed to what was found."""


@dataclass(frozen=True)
class Claim:
    """number: in the ledger. statement: what the source says. source: where. experiment: seed -> Verdict."""

    number: int
    statement: str
    source: str
    experiment: Experiment = field(repr=False, compare=False)

    def check(self, seed: int = 0) -> Verdict:
        """Run the experiment; the verdict carries the processor seconds it took."""
        start = time.process_time()
        verdict = self.experiment(seed)
        return replace(verdict, seconds=round(time.process_time() - start, 1))


CLAIMS: dict[int, Claim] = {}


def claim(number: int, statement: str, source: str) -> Callable[[Experiment], Experiment]:
    """Enter the decorated experiment (a function of a seed) into the ledger."""

    def enter(experiment: Experiment) -> Experiment:
        if number in CLAIMS:
            raise BadInput(f"Claim {number} is entered twice.")
        CLAIMS[number] = Claim(number, statement, source, experiment)
        return experiment

    return enter
