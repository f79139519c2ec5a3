"""What a method found for one prompt, and what it is worth: residuals when the tokens are run,
rivals, the verdict.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import slice_noise
from headscan.model.slicing.specification import split_on_exhaustion
from headscan.run import Progress

Why = Literal["all", "bounded", "sampled"]
"""Why so many tokens were compared and no more: there are no others, a bound proves the others
farther, or a choice.
"""
WHY = get_args(Why)
NAMED = 256  # tokens within the tolerance that are named at a position; more are counted only
INFINITE = float("inf")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the token found at one position was compared with, the other positions being as found."""

    count: int  # tokens whose output is known to be near or far, the one found included
    why: Why
    residual: float  # relative residual of the token found
    runner_up: float = INFINITE  # the least residual of another token
    token: int | None = None  # the token that has it
    within: tuple[
        int, ...
    ] = ()  # the other tokens whose residual is within the tolerance, the nearest first

    @classmethod
    def of(
        cls,
        tokens: Int[Tensor, " N"],
        residuals: Float[Tensor, " N"],
        found: int,
        *,
        tolerance: float,
        choice: int,
        twins: tuple[int, ...] = (),
    ) -> Self:
        """From the tokens tried and their relative residuals (NaN counts as infinite). `found` is
        the token taken, `choice` how many may be returned (all tried is "all"), `twins` have the
        vector of `found`.
        """
        tried = residuals.nan_to_num(nan=INFINITE, posinf=INFINITE).double()
        order = tried.argsort(stable=True)
        names = tokens[order].tolist()
        values = tried[order].tolist()
        least: dict[int, float] = {}
        for name, value in zip(names, values, strict=True):
            least.setdefault(name, value)
        own = least.pop(found, INFINITE)
        others = dict.fromkeys((twin for twin in twins if twin != found), own)
        ranked = sorted((others | least | others).items(), key=lambda pair: pair[1])
        within = tuple(
            name for name, value in ranked[:NAMED] if value <= tolerance and value < INFINITE
        )
        count = len(ranked) + 1
        token, runner_up = ranked[0] if ranked else (None, INFINITE)
        why: Why = "all" if count >= choice else "sampled"
        return cls(
            count=count, why=why, residual=own, runner_up=runner_up, token=token, within=within
        )

    def and_also(self, other: Self) -> Self:
        """Both comparisons of one token together; where they overlap is not known, so that the
        larger one counts.
        """
        near = min(self, other, key=lambda one: one.runner_up)
        first = min(self, other, key=lambda one: WHY.index(one.why))
        return replace(
            first,
            count=max(self.count, other.count),
            residual=min(self.residual, other.residual),
            runner_up=near.runner_up,
            token=near.token,
            within=tuple(dict.fromkeys((*near.within, *self.within, *other.within))),
        )

    def exchanged(self, old: int, new: int) -> Self:
        """The same with one of `within`, `new`, taken in place of the token found, `old`."""
        within = (old, *(token for token in self.within if token != new))
        return replace(
            self, residual=self.runner_up, runner_up=self.residual, token=old, within=within
        )


# of a position at which nothing was compared
UNCOMPARED = Evidence(count=0, why="sampled", residual=INFINITE)


@dataclass(frozen=True)
class Reconstruction:
    """Tokens and what the method knows of them."""

    tokens: list[int]
    evaluations: int  # candidates tried, or gradient steps made
    compared: list[Evidence] | None = (
        None  # what the token of each position was compared with; None: with nothing
    )
    per_token: list[int] | None = None  # `evaluations` of each position
    stopped: bool = False  # the budget ended before tokens were found that fit
    notes: tuple[str, ...] = ()  # what happened on the way, as sentences
    passes: int = 0  # token positions run
    top: list[list[int]] | None = None  # the best five tokens of each position, of descents
    residual: float | None = None  # relative residual of the output, of joint searches


def relative(
    outputs: Float[Tensor, "*batch w"], targets: Float[Tensor, "*batch w"]
) -> Float[Tensor, "*batch"]:
    """||O - O*|| / ||O*|| of each position, [B, T']; infinite where it is no number, so that NaN is
    near nothing.

    >>> relative(torch.tensor([[[1.0, 2.0], [1.0, 1.0]]]), torch.tensor([[[1.0, 1.0], [1.0, float("nan")]]]))
    tensor([[0.7071,    inf]])
    """
    targets = targets.float()
    # Scaled by a power of two, which is exact, so that squares neither overflow nor vanish.
    _, exponent = targets.abs().amax(-1, keepdim=True).nan_to_num(posinf=1.0).frexp()
    scale = torch.ldexp(torch.ones_like(targets[..., :1]), -exponent.clamp(-126, 126))
    difference = ((outputs.float() - targets) * scale).norm(dim=-1)
    residuals: Tensor = difference / (targets * scale).norm(dim=-1).clamp_min(1e-30)
    return residuals.nan_to_num(nan=INFINITE, posinf=INFINITE, neginf=-INFINITE)


# ---- When an output counts as equal to the target: within a multiple of what is measured at that slice.

FACTOR = 8
"""The tolerance over the noise measured. The largest of a thousand residuals was 4 times it
(stories260K, block 2).
"""


def accepts(residual: float, tolerance: float) -> bool:
    """Whether a residual counts as equal: a number, and within the tolerance. Every method asks
    this and nothing else.
    """
    return math.isfinite(residual) and residual <= tolerance


def accepted(cut: SlicedModel) -> float:
    """The relative residual that counts as found where no other is asked for: `FACTOR` times the
    noise.
    """
    return FACTOR * noise_floor(cut)


def noise_floor(cut: SlicedModel) -> float:
    """The relative residual that rounding causes at this slice, as `slice_noise` measures it; at
    least the unit roundoff.
    """
    own = cut.lens.input_embeddings.dtype
    dtypes = (own if own.is_floating_point else torch.float16, torch.float32)
    return max(slice_noise(cut), *(torch.finfo(dtype).eps / 2 for dtype in dtypes))


# ---- What the tokens are worth.

Verdict = Literal[
    "recovered and unique",
    "recovered, unique among those tried",
    "ambiguous",
    "information absent",
    "not recovered",
    "no token fits",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""The best first."""
UNIQUE, TRIED, AMBIGUOUS, ABSENT, NOT_RECOVERED, FOREIGN = VERDICTS

Proof = Literal["exhaustive", "bounded", "sampled"]
"""What excludes other tokens: all were run; a bound proves the rest farther; some were run. The
strongest first.
"""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What the tokens found are worth; the type is the weakest of its positions'.

    "exhaustive": every token that may be returned was run at a position, under the prefix
    recovered; "bounded": those not run are proved farther; either says that no other prompt of this
    length gives the outputs within the tolerance. "sampled": some were.
    """

    type: Proof
    types: list[Proof]
    compared: list[int]  # tokens compared at each position, the one found included
    # largest relative distance of an output of the tokens from the one given; None: no number
    residual: float | None
    residuals: list[float | None]  # of each position's own output; None where that is not given
    tolerance: float  # up to which a residual counts as equal
    noise: float  # the residual that rounding causes at this slice, as measured
    margin: float | None  # the least residual of another token that was compared
    margins: list[float | None]  # of each position
    nearest: list[int | None]  # the token that has it
    # for each position the other tokens within the tolerance (the 256 nearest)
    equivalent: list[list[int]]
    # whether no output given depends on a position, as far as six other tokens there tell
    unseen: list[bool]
    checked: str  # what was compared with the tokens, in words


def verdict_of(
    residual: float,
    tolerance: float,
    rivals: list[list[int]],
    hidden: list[bool],
    types: Sequence[Proof] = (),
) -> Verdict:
    """The verdict on one prompt, or one position, of tokens whose largest residual is `residual`.

    `rivals` are the other tokens of each position within the tolerance, `hidden` says whether no
    output given depends on it, `types` how it was compared. "not recovered" says nothing of the
    information: no tokens were found that give the outputs.

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
    """The root mean square over positions of ||O - O*|| / ||O*|| of whole token rows, counted
    against a budget.
    """

    def __init__(
        self, cut: SlicedModel, target: Tensor, budget: int, progress: Progress | None = None
    ) -> None:
        self.cut = cut
        self.target = target[None].float()
        self.budget = budget
        self.progress = progress
        self.count = 0
        self.batch = 256
        self.texts = self.planned = (
            0  # texts that were run, and those that will be as far as is known
        )
        self.notes: list[str] = []

    @torch.no_grad()
    def __call__(self, rows: Int[Tensor, "N T"]) -> Float[Tensor, " N"]:
        def run(part: slice) -> Tensor:
            values = relative(self.cut.run(rows[part]), self.target).pow(2).mean(1).sqrt()
            self.tell(len(values), "candidates")
            return values

        found, self.batch, note = split_on_exhaustion(run, len(rows), self.batch)
        self.notes += [note] if note else []
        self.count += len(rows)
        return found

    def tell(self, texts: int, what: str) -> None:
        """Report so many texts more."""
        self.texts += texts
        if self.progress:
            self.progress(
                f"joint search · {what}", self.texts, max(self.texts, self.planned), "texts"
            )

    @property
    def left(self) -> int:
        return self.budget - self.count


def compared_each(choice: int, places: int, most: int = 50_000) -> int:
    """How many of `choice` tokens `exchanges` tries at each of so many places: all if that is at
    most `most` runs, else 256.
    """
    return choice if choice * places <= most else min(choice, 256)


def exchanges(
    residual_of: Residual,
    tokens: Int[Tensor, " T"],
    places: list[int],
    lists: list[Tensor],
    residual: float,
    *,
    tolerance: float,
) -> list[Evidence]:
    """What single exchanges of a token give at `places`, of the first `compared_each` of the listed
    tokens. Where more than one position is free the evidence is "sampled": prompts that differ in
    two tokens were not tried.
    """
    found = [Evidence(count=1, why="sampled", residual=residual)] * len(tokens)
    for place in places:
        token = int(tokens[place])
        choice = len(lists[place]) if len(places) == 1 else sys.maxsize
        others = lists[place][: compared_each(len(lists[place]), len(places))]
        others = others[others != token]
        rows = tokens.repeat(len(others), 1)
        rows[:, place] = others
        values = residual_of(rows) if len(others) else others.float()
        found[place] = Evidence.of(
            torch.cat([tokens[place : place + 1], others]),
            torch.cat([values.new_full((1,), residual), values]),
            token,
            tolerance=tolerance,
            choice=choice,
            twins=tuple(residual_of.cut.equal_rows.get(token, ())),
        )
    return found


@torch.no_grad()
def unseen(
    cut: SlicedModel, tokens: Int[Tensor, " T"], trials: int = 6, seed: int = 0
) -> list[bool]:
    """For each position of `tokens` [T], whether `trials` random others there move no output given
    by more than noise.
    """
    length = len(tokens)
    vocabulary = cut.vocabulary_size
    generator = torch.Generator().manual_seed(seed)
    rows = tokens.repeat(length * trials, 1)
    step = torch.randint(1, max(2, vocabulary), (len(rows),), generator=generator).to(rows.device)
    index = torch.arange(len(rows)), torch.arange(length).repeat_interleave(trials)
    rows[index] = (rows[index] + step) % vocabulary
    moved = []
    for chunk in rows.split(255):
        both = cut.run(torch.cat([tokens[None], chunk])).float()
        moved.append(relative(both[1:], both[:1]).amax(1))
    return (torch.cat(moved).reshape(length, trials).amax(1) <= noise_floor(cut)).tolist()
