"""The result of a method for one prompt: tokens, evidence, residuals, verdict, certificate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import slice_noise

Why = Literal["all", "bounded", "sampled"]
"""The reason why no further tokens were compared: there are none; a bound proves them farther; only
some were chosen.
"""
WHY = get_args(Why)
NAMED = 256  # tokens within the tolerance that are named at a position; further ones are counted
INFINITE = float("inf")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The comparison of the token found at one position with others, the other positions fixed.

    Attributes:
        count: tokens whose output is known to be near or far, the one found included.
        why: why no further tokens were compared.
        residual: relative residual of the token found.
        runner_up: the least residual of another token.
        token: the token that has it.
        within: the other tokens whose residual is within the tolerance, the nearest first.
    """

    count: int
    why: Why
    residual: float
    runner_up: float = INFINITE
    token: int | None = None
    within: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        tokens: Int[Tensor, " N"],
        residuals: Float[Tensor, " N"],
        taken: int,
        *,
        tolerance: float,
        choice: int,
        twins: tuple[int, ...] = (),
    ) -> Self:
        """Return the evidence of tokens that were run, from their relative residuals.

        Args:
            tokens: the tokens; repeats are allowed.
            residuals: the residual of each; NaN counts as infinite.
            taken: the token that was taken as the answer.
            tolerance: the residual up to which an output counts as equal.
            choice: the number of tokens that may be returned; all of them tried is "all".
            twins: tokens with the same vector as `taken`.
        """
        finite = residuals.nan_to_num(nan=INFINITE, posinf=INFINITE).double()
        order = finite.argsort(stable=True)
        least: dict[int, float] = {}
        ordered = zip(tokens[order].tolist(), finite[order].tolist(), strict=True)
        for token, value in ordered:
            least.setdefault(token, value)

        residual = least.pop(taken, INFINITE)
        rivals = {twin: residual for twin in twins if twin != taken}
        for token, value in least.items():
            rivals.setdefault(token, value)
        ranked = sorted(rivals.items(), key=lambda pair: pair[1])
        within = [
            token for token, value in ranked[:NAMED] if value <= tolerance and value < INFINITE
        ]

        count = len(ranked) + 1
        nearest, runner_up = ranked[0] if ranked else (None, INFINITE)
        return cls(
            count=count,
            why="all" if count >= choice else "sampled",
            residual=residual,
            runner_up=runner_up,
            token=nearest,
            within=tuple(within),
        )

    def merged(self, second: Self) -> Self:
        """Return both comparisons of one token as one.

        It is not known where they overlap, so that the larger count is taken.
        """
        nearer = min(self, second, key=lambda evidence: evidence.runner_up)
        stronger = min(self, second, key=lambda evidence: WHY.index(evidence.why))
        within = dict.fromkeys((*nearer.within, *self.within, *second.within))
        return replace(
            stronger,
            count=max(self.count, second.count),
            residual=min(self.residual, second.residual),
            runner_up=nearer.runner_up,
            token=nearer.token,
            within=tuple(within),
        )

    def exchanged(self, old: int, new: int) -> Self:
        """Return the evidence if `new`, one of `within`, is taken in place of the token `old`."""
        within = (old, *(token for token in self.within if token != new))
        return replace(
            self, residual=self.runner_up, runner_up=self.residual, token=old, within=within
        )


UNCOMPARED = Evidence(count=0, why="sampled", residual=INFINITE)
"""The evidence of a position at which nothing was compared."""


@dataclass(frozen=True)
class Reconstruction:
    """Tokens that a method found, and what it knows of them.

    Attributes:
        tokens: the tokens.
        evaluations: candidates tried, or gradient steps made.
        compared: the evidence of each position; None where nothing was compared.
        per_token: `evaluations` of each position.
        stopped: whether the budget ended before tokens were found that fit.
        passes: token positions run.
        top: the best five tokens of each position, of descents.
        residual: relative residual of the output, of joint searches.
    """

    tokens: list[int]
    evaluations: int
    compared: list[Evidence] | None = None
    per_token: list[int] | None = None
    stopped: bool = False
    passes: int = 0
    top: list[list[int]] | None = None
    residual: float | None = None


def relative(
    outputs: Float[Tensor, "*batch w"], targets: Float[Tensor, "*batch w"]
) -> Float[Tensor, "*batch"]:
    """Return ||O - O*|| / ||O*|| of each position, [B, T']; infinite where it is no number.

    >>> outputs = torch.tensor([[[1.0, 2.0], [1.0, 1.0]]])
    >>> relative(outputs, torch.tensor([[[1.0, 1.0], [1.0, float("nan")]]]))
    tensor([[0.7071,    inf]])
    """
    targets = targets.float()
    # Both are scaled by a power of two, which is exact: squares neither overflow nor vanish.
    largest = targets.abs().amax(-1, keepdim=True).nan_to_num(posinf=1.0)
    exponent = -largest.frexp().exponent.clamp(-126, 126)
    scale = torch.ldexp(torch.ones_like(largest), exponent)
    difference = ((outputs.float() - targets) * scale).norm(dim=-1)
    residuals: Tensor = difference / (targets * scale).norm(dim=-1).clamp_min(1e-30)
    return residuals.nan_to_num(nan=INFINITE, posinf=INFINITE, neginf=-INFINITE)


FACTOR = 8
"""The tolerance over the noise measured. The largest of a thousand residuals was 4 times it
(stories260K, block 2).
"""


def accepts(residual: float, tolerance: float) -> bool:
    """Return whether a residual counts as equal: a number within the tolerance.

    Every method decides by this function.
    """
    return math.isfinite(residual) and residual <= tolerance


def accepted(cut: SlicedModel) -> float:
    """Return the default tolerance of a slice: `FACTOR` times its noise."""
    return FACTOR * noise_floor(cut)


def noise_floor(cut: SlicedModel) -> float:
    """Return the relative residual that rounding causes at this slice.

    It is what `slice_noise` measures, and at least the unit roundoff.
    """
    table_dtype = cut.lens.input_embeddings.dtype
    if not table_dtype.is_floating_point:
        table_dtype = torch.float16
    roundoffs = [torch.finfo(dtype).eps / 2 for dtype in (table_dtype, torch.float32)]
    return max(slice_noise(cut), *roundoffs)


Verdict = Literal[
    "recovered and unique",
    "recovered, unique among those tried",
    "ambiguous",
    "information absent",
    "not recovered",
    "no token fits",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""All verdicts, the best first."""
UNIQUE, TRIED, AMBIGUOUS, ABSENT, NOT_RECOVERED, FOREIGN = VERDICTS

Proof = Literal["exhaustive", "bounded", "sampled"]
"""The way in which other tokens are excluded: all were run; a bound proves the others farther; some
were run. The strongest comes first.
"""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The worth of the tokens found; its type is the weakest of its positions' types.

    "exhaustive": every token that may be returned was run at a position, under the prefix
    recovered. "bounded": those not run are proved farther. Either says that no other prompt of this
    length gives the outputs within the tolerance. "sampled": some tokens were run.

    Attributes:
        type, types: of the prompt, and of each position.
        compared: tokens compared at each position, the one found included.
        residual: largest relative distance of an output from the one given; None: no number.
        residuals: of each position's own output; None where that is not given.
        tolerance: the residual up to which an output counts as equal.
        noise: the residual that rounding causes at this slice, as measured.
        margin, margins: the least residual of another token that was compared; of each position.
        nearest: the token that has it.
        equivalent: for each position the other tokens within the tolerance (the 256 nearest).
        unseen: whether no output depends on a position, as far as six other tokens there tell.
        checked: a phrase that says what was compared with the tokens.
    """

    type: Proof
    types: list[Proof]
    compared: list[int]
    residual: float | None
    residuals: list[float | None]
    tolerance: float
    noise: float
    margin: float | None
    margins: list[float | None]
    nearest: list[int | None]
    equivalent: list[list[int]]
    unseen: list[bool]
    checked: str


def verdict_of(
    residual: float,
    tolerance: float,
    rivals: list[list[int]],
    hidden: list[bool],
    types: Sequence[Proof] = (),
) -> Verdict:
    """Return the verdict on one prompt, or one position.

    "not recovered" says nothing of the information: no tokens were found that give the outputs.

    Args:
        residual: the largest residual of the tokens.
        tolerance: the residual up to which an output counts as equal.
        rivals: the other tokens of each position within the tolerance.
        hidden: whether no output given depends on each position.
        types: the proof of each position.

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
