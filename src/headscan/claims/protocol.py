"""The parts of a claim's protocol: documents, verdicts, the values that count, the power asked for, what stands in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["DOCUMENTS", "VERDICTS", "ClaimVerdict", "DocumentName", "Power", "Region", "StandIn", "Tendency"]

DocumentName: TypeAlias = Literal["slides", "paper", "article", "field"]
DOCUMENTS: dict[DocumentName, str] = {
    "slides": "Godey, Language models have cone-shaped heads",
    "paper": "Zhao, Behnia, Vakilian, Thrampoulidis, arXiv:2408.15417",
    "article": "Badger, Language Modeling and Discrete Encodings",
    "field": "What is held of leaked states",
}

Tendency: TypeAlias = Literal["holds here", "fails here", "artefact", "undecided"]
"""What an experiment alone can say."""
ClaimVerdict: TypeAlias = Literal["holds here", "fails here", "artefact", "undecided", "about a larger model"]
VERDICTS: tuple[ClaimVerdict, ...] = ("holds here", "fails here", "artefact", "undecided", "about a larger model")


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
        return f"at least {self.low:g}" if self.high is None else f"from {self.low:g} to {self.high:g}"

    def bounds(self) -> list[float]:
        """Those there are, upwards."""
        return [bound for bound in (self.low, self.high) if bound is not None]

    def holds(self, value: float) -> bool:
        """Whether a value lies in it."""
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True)
class Power:
    """The least an experiment must have seen before it may decide: seeds, and tokens an arm."""

    seeds: int = 5
    tokens: int = 200


@dataclass(frozen=True)
class StandIn:
    """A small model or text that is examined in place of the claim's own, and why it may stand in."""

    name: str
    why: str
