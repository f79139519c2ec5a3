"""What a result is worth: the residual of the tokens when they are run, rivals, Jacobians, and the verdict in words."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.inversion.losses import relative
from headscan.inversion.reconstruction import Compared
from headscan.inversion.tolerance import accepts
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import split_on_exhaustion
from headscan.run import BadInput

__all__ = [
    "ABSENT", "BUDGET", "NOT_UNIQUE", "UNIQUE", "VERDICTS", "Certificate", "JacobianRank", "Residual", "Verdict",
    "exchanges", "jacobian", "unseen", "verdict_of",
]  # fmt: skip

Verdict = Literal["recovered and unique", "recovered, not unique", "information absent", "search exhausted its budget"]
UNIQUE: Verdict = "recovered and unique"
NOT_UNIQUE: Verdict = "recovered, not unique"
ABSENT: Verdict = "information absent"
BUDGET: Verdict = "search exhausted its budget"
VERDICTS = (UNIQUE, NOT_UNIQUE, ABSENT, BUDGET)
"""The best first."""


@dataclass(frozen=True)
class JacobianRank:
    """Rank and extreme singular values of the Jacobian of all outputs by one input vector."""

    rank: int
    smallest_singular_value: float
    largest_singular_value: float


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What the tokens found are worth.

    Attributes:
        type: "exhaustive" (every other prompt was tried or is excluded by one that was) or "sampled" (some were tried);
            "bounded" is kept for what a bound excludes.
        residual: largest relative distance of an output of the tokens, run as a whole, from the one given; None where it
            is no number.
        residuals: that of each position's own output, None where that is not given.
        tolerance: up to which a residual counts as equal.
        margin: the least residual of another token that was tried; margins: of each position.
        equivalent: for each position the other tokens that cannot be told from the one found.
        unseen: for each position, whether no output given depends on it.
        checked: what was tried against the tokens, in words.
        jacobian: of each position, where asked for.
    """

    type: Literal["exhaustive", "bounded", "sampled"]
    residual: float | None
    residuals: list[float | None]
    tolerance: float
    margin: float | None
    margins: list[float | None] | None
    equivalent: list[list[int]]
    unseen: list[bool]
    checked: str
    jacobian: list[JacobianRank] | None = None


def verdict_of(residual: float, tolerance: float, rivals: list[list[int]], hidden: list[bool]) -> Verdict:
    """The verdict on one prompt.

    Args:
        residual: the largest relative residual of an output, of the recovered tokens run as a whole.
        tolerance: up to which it counts as equal.
        rivals: for each position, the tokens that cannot be told from the one recovered.
        hidden: for each position, whether no output given depends on it.

    "information absent" is said when some token moves no output given, so that no method could find it (the others may
    have been recovered: see the verdict of each position). "search exhausted its budget" says nothing of the
    information: the method stopped before it found tokens that fit.

    >>> verdict_of(1e-7, 1e-4, [[], [7]], [False, False])
    'recovered, not unique'
    >>> verdict_of(float("nan"), 1e-4, [[]], [False])
    'search exhausted its budget'
    """
    if not accepts(residual, tolerance):
        return BUDGET
    if any(hidden):
        return ABSENT
    return NOT_UNIQUE if any(rivals) else UNIQUE


class Residual:
    """The root mean square over positions of ||O - O*|| / ||O*|| of whole token rows, counted against a budget."""

    def __init__(self, cut: SlicedModel, target: Tensor, budget: int) -> None:
        self.cut, self.target, self.budget = cut, target[None].float(), budget
        self.count, self.batch = 0, 1024
        self.notes: list[str] = []

    @torch.no_grad()
    def __call__(self, rows: Int[Tensor, "N T"]) -> Float[Tensor, " N"]:
        """[N] residuals of token rows [N, T]."""

        def run(part: slice) -> Tensor:
            return relative(self.cut.run(rows[part]), self.target).pow(2).mean(1).sqrt()

        found, self.batch, note = split_on_exhaustion(run, len(rows), self.batch)
        self.notes += [note] if note else []
        self.count += len(rows)
        return found

    @property
    def left(self) -> int:
        """Candidates that the budget still allows."""
        return self.budget - self.count


def exchanges(
    residual_of: Residual, tokens: Int[Tensor, " T"], places: list[int], lists: list[Tensor], residual: float, *,
    tolerance: float, most: int = 50_000,
) -> list[Compared]:  # fmt: skip
    """What single exchanges of a token of `tokens` give.

    Args:
        residual_of: runs candidates.
        places: positions to try; lists: for each position the tokens it may have, the likeliest first.
        residual: that of `tokens`.
        tolerance: up to which a residual counts as equal.
        most: try the whole of the lists if that is at most so many runs, else the first 256 of each.

    Returns:
        For each position what its token was compared with. Where more than one position is free this is "sampled",
        whatever was tried: prompts that differ in two tokens were not.
    """
    whole = sum(len(lists[place]) for place in places) <= most
    found = [Compared(count=1, why="sampled", residual=residual)] * len(tokens)
    for place in places:
        token, choice = int(tokens[place]), len(lists[place]) if whole and len(places) == 1 else sys.maxsize
        others = lists[place] if whole else lists[place][:256]
        others = others[others != token]
        rows = tokens.repeat(len(others), 1)
        rows[:, place] = others
        values = residual_of(rows) if len(others) else others.float()
        found[place] = Compared.of(
            torch.cat([tokens[place : place + 1], others]), torch.cat([values.new_full((1,), residual), values]), token,
            tolerance=tolerance, choice=choice, twins=tuple(residual_of.cut.equal_rows.get(token, ())),
        )  # fmt: skip
    return found


@torch.no_grad()
def unseen(cut: SlicedModel, tokens: Int[Tensor, " T"], trials: int = 6, seed: int = 0) -> list[bool]:
    """For each position of `tokens` [T], whether none of `trials` random other tokens there moves an output given."""
    length, vocabulary = len(tokens), cut.vocabulary_size
    generator = torch.Generator().manual_seed(seed)
    rows = tokens.repeat(length * trials, 1)
    place = torch.arange(length).repeat_interleave(trials)
    step = torch.randint(1, max(2, vocabulary), (len(rows),), generator=generator).to(rows.device)
    index = torch.arange(len(rows))
    rows[index, place] = (rows[index, place] + step) % vocabulary
    moved = []
    for chunk in rows.split(255):
        both = cut.run(torch.cat([tokens[None], chunk])).float()
        moved.append(relative(both[1:], both[:1]).amax(1))
    return (torch.cat(moved).reshape(length, trials).amax(1) <= 1e-6).tolist()


def jacobian(cut: SlicedModel, tokens: Int[Tensor, " T"], *, rows: int = 1024) -> list[JacobianRank]:
    """How well the outputs determine each input vector locally: rank and smallest singular value of the Jacobian.

    For position j the matrix d O / d e_j [T' w', e], all outputs given, at `tokens` [T]. Full rank e with a smallest
    singular value far from zero means that a small change of the vector is seen; a lower rank means directions in
    which the vector can move unseen (tokens, being discrete, may still be told apart).

    Returns:
        One `JacobianRank` a position; the rank is counted above max(shape) x the float32 epsilon x the largest.

    Cost: T' w' rows of T tokens forward and backward; refuse what takes more than 2^24 numbers a position.
    """
    embeds = cut.embed(tokens)[None]
    with torch.no_grad():
        seen, width = cut.run(inputs_embeds=embeds).shape[1:]
    if seen * width * embeds.shape[-1] > 2**24:
        raise BadInput("The Jacobian of so many outputs is too large; ask for fewer positions or features.")
    total, parts = seen * width, []
    for begin in range(0, total, rows):
        wanted = torch.arange(begin, min(begin + rows, total), device=embeds.device)
        copies = embeds.expand(len(wanted), -1, -1).clone().requires_grad_()
        with torch.enable_grad():
            outputs = cut.run(inputs_embeds=copies, grad=True).float().flatten(1)
            chosen = outputs.gather(1, wanted[:, None]).sum()
        (gradient,) = torch.autograd.grad(chosen, copies)
        parts.append(gradient.detach().float())
    whole = torch.cat(parts)
    found = []
    for place in range(whole.shape[1]):
        values = torch.linalg.svdvals(whole[:, place])
        limit = max(whole.shape[0], whole.shape[2]) * torch.finfo(torch.float32).eps * float(values[0])
        rank = int((values > limit).sum()) if float(values[0]) > 0 else 0
        found.append(JacobianRank(rank, float(values[-1]), float(values[0])))
    return found
