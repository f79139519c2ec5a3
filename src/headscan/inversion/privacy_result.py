"""What a privacy report holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

import pandas as pd

from headscan.run import Result

__all__ = ["GradientToken", "LeakedGradient", "PrivacyResult", "ReleaseRow"]


@dataclass(frozen=True, kw_only=True)
class ReleaseRow:
    """What an attack recovers from one site under one kind of damage.

    Attributes:
        site: where the release comes from.
        damage: what was done to it: "none", "noise 0.1", "states of 8 bits", "weights of 8 bits".
        noise: the share of Gaussian noise, 0 where there is none.
        tokens: how many were attacked.
        method: of the attack.
        token_accuracy: the share of tokens recovered.
        tolerance: the residual that the attack took as equal.
        evaluations_per_token: candidates tried; passes_per_token: token positions run (a backward pass counts as two);
            seconds_per_token: of processor time.
    """

    site: str
    damage: str
    noise: float
    tokens: int
    method: str
    token_accuracy: float
    tolerance: float | None = None
    evaluations_per_token: float | None = None
    passes_per_token: float | None = None
    seconds_per_token: float | None = None


@dataclass(frozen=True, kw_only=True)
class GradientToken:
    """A token that lies in a gradient's span.

    Attributes:
        position: None where the model adds no positions before its first attention.
        token, string: which; distance: of its input vector from the span, relative.
        in_batch: whether it was at that position of the batch; elsewhere: whether it was anywhere in it.
    """

    position: int | None
    token: int
    string: str
    distance: float
    in_batch: bool
    elsewhere: bool


@dataclass(frozen=True, kw_only=True)
class LeakedGradient:
    """What the gradient of one training step shows of its batch.

    Attributes:
        tokens: those in the span, by position.
        batch, batch_strings: the texts, for comparison.
        recall: the share of the batch's tokens that were found (the last of each text has no gradient and is left out).
        precision: the share of those found that were there; precision_anywhere: the same regardless of the position.
        rank: of the gradient; width: of the inputs. At rank = width everything lies in the span.
        with_positions: whether positions are told apart.
        nearest_other: least distance of a token that was not taken.
        tolerance: distance that counts as inside.
        certified: what is proved, and what is a guess, in words.
    """

    tokens: list[GradientToken]
    batch: list[list[int]]
    batch_strings: list[list[str]]
    recall: float
    precision: float | None
    precision_anywhere: float | None
    rank: int
    width: int
    with_positions: bool
    nearest_other: float | None
    tolerance: float
    certified: str

    def __repr__(self) -> str:
        return f"LeakedGradient({len(self.tokens)} tokens, recall {self.recall:.0%}, rank {self.rank} of {self.width})"


@dataclass(frozen=True, repr=False, kw_only=True)
class PrivacyResult(Result):
    """How much of a text is in what leaked.

    Attributes:
        release: what leaked, by its name.
        rows: one a site, kind of damage and attack.
        gradient: what a leaked gradient shows, token by token; None for other releases.
    """

    kind: ClassVar[str] = "privacy"

    release: str
    rows: list[ReleaseRow]
    gradient: LeakedGradient | None = None

    def frame(self) -> pd.DataFrame:
        """A pandas table of the rows."""
        return pd.DataFrame([asdict(row) for row in self.rows])
