"""What a result is worth: the residual of the tokens when they are run, rivals, and the verdict in words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.inversion.reconstruction import Evidence, accepts, noise_floor, relative
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.specification import split_on_exhaustion

Verdict = Literal[
    "recovered and unique",
    "recovered, unique among those tried",
    "ambiguous",
    "information absent",
    "not recovered",
    "not this model's",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""The best first."""
UNIQUE, TRIED, AMBIGUOUS, ABSENT, NOT_RECOVERED, FOREIGN = VERDICTS

Proof = Literal["exhaustive", "bounded", "sampled"]
"""What excludes other tokens: all were run; a bound proves the rest farther; some were run. The strongest first."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What the tokens found are worth; the type is the weakest of its positions'.

    "exhaustive": every token that may be returned was run at a position, under the prefix recovered; "bounded": those not run are
    proved farther; either says that no other prompt of this length gives the outputs within the tolerance. "sampled": some were.
    """

    type: Proof
    types: list[Proof]
    compared: list[int]  # tokens compared at each position, the one found included
    residual: float | None  # largest relative distance of an output of the tokens from the one given; None: no number
    residuals: list[float | None]  # of each position's own output; None where that is not given
    tolerance: float  # up to which a residual counts as equal
    noise: float  # the residual that rounding causes at this slice, as measured
    margin: float | None  # the least residual of another token that was compared
    margins: list[float | None]  # of each position
    nearest: list[int | None]  # the token that has it
    equivalent: list[list[int]]  # for each position the other tokens within the tolerance (the 256 nearest)
    unseen: list[bool]  # whether no output given depends on a position, as far as six other tokens there tell
    checked: str  # what was compared with the tokens, in words


def verdict_of(
    residual: float, tolerance: float, rivals: list[list[int]], hidden: list[bool], types: Sequence[Proof] = ()
) -> Verdict:
    """The verdict on one prompt, or one position, of tokens whose largest residual is `residual`.

    `rivals` are the other tokens of each position within the tolerance, `hidden` says whether no output given depends on it,
    `types` how it was compared. "not recovered" says nothing of the information: no tokens were found that give the outputs.

    >>> verdict_of(1e-7, 1e-4, [[], [7]], [False, False], ["exhaustive", "exhaustive"])
    'ambiguous'
    """
    if not accepts(residual, tolerance):
        return NOT_RECOVERED
    if any(hidden):
        return ABSENT
    if any(rivals):
        return AMBIGUOUS
    return TRIED if "sampled" in types else UNIQUE


class Residual:
    """The root mean square over positions of ||O - O*|| / ||O*|| of whole token rows, counted against a budget."""

    def __init__(self, cut: SlicedModel, target: Tensor, budget: int) -> None:
        self.cut, self.target, self.budget = cut, target[None].float(), budget
        self.count, self.batch = 0, 1024
        self.notes: list[str] = []

    @torch.no_grad()
    def __call__(self, rows: Int[Tensor, "N T"]) -> Float[Tensor, " N"]:
        def run(part: slice) -> Tensor:
            return relative(self.cut.run(rows[part]), self.target).pow(2).mean(1).sqrt()

        found, self.batch, note = split_on_exhaustion(run, len(rows), self.batch)
        self.notes += [note] if note else []
        self.count += len(rows)
        return found

    @property
    def left(self) -> int:
        return self.budget - self.count


def exchanges(
    residual_of: Residual, tokens: Int[Tensor, " T"], places: list[int], lists: list[Tensor], residual: float, *,
    tolerance: float, most: int = 50_000,
) -> list[Evidence]:  # fmt: skip
    """What single exchanges of a token give at `places`: of all listed tokens if that is at most `most` runs, else of 256.

    Where more than one position is free the evidence is "sampled": prompts that differ in two tokens were not tried.
    """
    whole = sum(len(lists[place]) for place in places) <= most
    found = [Evidence(count=1, why="sampled", residual=residual)] * len(tokens)
    for place in places:
        token, choice = int(tokens[place]), len(lists[place]) if whole and len(places) == 1 else sys.maxsize
        others = lists[place] if whole else lists[place][:256]
        others = others[others != token]
        rows = tokens.repeat(len(others), 1)
        rows[:, place] = others
        values = residual_of(rows) if len(others) else others.float()
        found[place] = Evidence.of(
            torch.cat([tokens[place : place + 1], others]), torch.cat([values.new_full((1,), residual), values]), token,
            tolerance=tolerance, choice=choice, twins=tuple(residual_of.cut.equal_rows.get(token, ())),
        )  # fmt: skip
    return found


@torch.no_grad()
def unseen(cut: SlicedModel, tokens: Int[Tensor, " T"], trials: int = 6, seed: int = 0) -> list[bool]:
    """For each position of `tokens` [T], whether `trials` random others there move no output given by more than noise."""
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
    return (torch.cat(moved).reshape(length, trials).amax(1) <= noise_floor(cut)).tolist()
