"""What a method found for one prompt, before the tokens are run again and judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["UNCOMPARED", "Evidence", "Reconstruction", "Why"]

Why = Literal["all", "bounded", "sampled"]
"""Why so many tokens were compared and no more: there are no others, a bound proves the others farther, or a choice."""

WHY = ("all", "bounded", "sampled")

# Tokens within the tolerance that are named at a position; more are counted only.
NAMED = 256


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the token found at one position was compared with, the other positions being as found.

    Attributes:
        count: tokens whose output is known to be near or far, the one found included.
        why: "all": every token that may be returned; "bounded": the others are proved farther; "sampled": those tried.
        residual: relative residual of the token found.
        runner_up: the least residual of another token; infinite where none was compared.
        token: the one that has it.
        within: the other tokens whose residual is within the tolerance, the nearest first.
    """

    count: int
    why: Why
    residual: float
    runner_up: float = float("inf")
    token: int | None = None
    within: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, tokens: Int[Tensor, " N"], residuals: Float[Tensor, " N"], found: int, *, tolerance: float, choice: int,
        twins: tuple[int, ...] = (),
    ) -> Self:  # fmt: skip
        """From the tokens tried and their residuals.

        Args:
            tokens: each at most once, or with equal residuals.
            residuals: relative; NaN counts as infinite.
            found: the one that was taken.
            tolerance: up to which a residual counts as equal.
            choice: tokens that may be returned; all of them tried is "all".
            twins: tokens with the same vector as `found`: equal without being tried.

        >>> import torch
        >>> Evidence.of(torch.tensor([4, 1, 3]), torch.tensor([0.5, 0.0, 0.2]), 1, tolerance=0.2, choice=9)
        Evidence(count=3, why='sampled', residual=0.0, runner_up=0.20000000298023224, token=3, within=())
        """
        tried = residuals.nan_to_num(nan=float("inf"), posinf=float("inf")).double()
        order = tried.argsort(stable=True)
        names, values = tokens[order].tolist(), tried[order].tolist()
        own = next((value for name, value in zip(names, values, strict=True) if name == found), float("inf"))
        others = dict[int, float]((twin, own) for twin in twins if twin != found)
        for name, value in zip(names, values, strict=True):
            if name != found:
                others.setdefault(name, value)
        ranked = sorted(others.items(), key=lambda pair: pair[1])
        within = tuple(name for name, value in ranked[:NAMED] if value <= tolerance and value < float("inf"))
        count = len({*names, found, *others})
        near = ranked[0] if ranked else (None, float("inf"))
        return cls(
            count=count, why="all" if count >= choice else "sampled", residual=own, runner_up=near[1], token=near[0],
            within=within,
        )  # fmt: skip

    def and_also(self, other: Self) -> Self:
        """Both comparisons of one token together; where they overlap is not known, so that the larger one counts."""
        near = min(self, other, key=lambda one: one.runner_up)
        first = min(self, other, key=lambda one: WHY.index(one.why))
        return replace(
            first, count=max(self.count, other.count), residual=min(self.residual, other.residual), runner_up=near.runner_up,
            token=near.token, within=tuple(dict.fromkeys((*near.within, *self.within, *other.within))),
        )  # fmt: skip

    def exchanged(self, old: int, new: int) -> Self:
        """The same with one of `within`, `new`, taken in place of the token found, `old`."""
        within = (old, *(token for token in self.within if token != new))
        return replace(self, residual=self.runner_up, runner_up=self.residual, token=old, within=within)


UNCOMPARED = Evidence(count=0, why="sampled", residual=float("inf"))
"""Of a position at which nothing was compared."""


@dataclass(frozen=True)
class Reconstruction:
    """Tokens and what the method knows of them.

    Attributes:
        tokens: ids [T].
        evaluations: candidates tried, or gradient steps made.
        compared: for each position what its token was compared with; None where nothing was.
        per_token: `evaluations` of each position.
        stopped: the budget ended before tokens were found that fit.
        notes: what happened on the way, as sentences.
        passes: token positions run.
        top: the best five tokens of each position, of descents.
        residual: relative residual of the output, of joint searches.

    >>> Reconstruction([5, 7], evaluations=12)
    Reconstruction([5, 7], 12 evaluations)
    """

    tokens: list[int]
    evaluations: int
    compared: list[Evidence] | None = None
    per_token: list[int] | None = None
    stopped: bool = False
    notes: tuple[str, ...] = ()
    passes: int = 0
    top: list[list[int]] | None = None
    residual: float | None = None

    def __repr__(self) -> str:
        return f"Reconstruction({self.tokens}, {self.evaluations} evaluations)"
