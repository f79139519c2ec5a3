"""What a method found for one prompt, before the tokens are run again and judged."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Reconstruction"]


@dataclass(frozen=True)
class Reconstruction:
    """Tokens and what the method knows of them.

    Attributes:
        tokens: ids [T].
        evaluations: candidates tried, or gradient steps made.
        rivals: for each position the other tokens that cannot be told from the one found; None where none was tried.
        margins: for each position the relative residual of the best other token that was tried.
        per_token: `evaluations` of each position.
        checked: what was tried against the tokens, in words.
        stopped: the budget ended before tokens were found that fit.
        exhaustive: every prompt that could be was tried, or is excluded by one that was.
        notes: what happened on the way, as sentences.
        passes: token positions run.
        top: the best five tokens of each position, of descents.
        residual: relative residual of the output, of joint searches.

    >>> Reconstruction([5, 7], evaluations=12)
    Reconstruction([5, 7], 12 evaluations)
    """

    tokens: list[int]
    evaluations: int
    rivals: list[list[int]] | None = None
    margins: list[float] | None = None
    per_token: list[int] | None = None
    checked: str = ""
    stopped: bool = False
    exhaustive: bool = False
    notes: tuple[str, ...] = ()
    passes: int = 0
    top: list[list[int]] | None = None
    residual: float | None = None

    def __repr__(self) -> str:
        return f"Reconstruction({self.tokens}, {self.evaluations} evaluations)"
