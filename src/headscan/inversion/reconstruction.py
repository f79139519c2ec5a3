"""What a method found for one prompt, before the tokens are run again and judged."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.model.slicing import SlicedModel
from headscan.model.slicing.checks import slice_noise

Why = Literal["all", "bounded", "sampled"]
"""Why so many tokens were compared and no more: there are no others, a bound proves the others farther, or a choice."""

WHY = get_args(Why)

# Tokens within the tolerance that are named at a position; more are counted only.
NAMED = 256
INFINITE = float("inf")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the token found at one position was compared with, the other positions being as found."""

    count: int  # tokens whose output is known to be near or far, the one found included
    why: Why
    residual: float  # relative residual of the token found
    runner_up: float = INFINITE  # the least residual of another token
    token: int | None = None  # the token that has it
    within: tuple[int, ...] = ()  # the other tokens whose residual is within the tolerance, the nearest first

    @classmethod
    def of(
        cls, tokens: Int[Tensor, " N"], residuals: Float[Tensor, " N"], found: int, *, tolerance: float, choice: int,
        twins: tuple[int, ...] = (),
    ) -> Self:  # fmt: skip
        """From the tokens tried and their relative residuals (NaN counts as infinite).

        `found` is the token taken, `choice` how many may be returned (all tried is "all"), `twins` have the vector of `found`.
        """
        tried = residuals.nan_to_num(nan=INFINITE, posinf=INFINITE).double()
        order = tried.argsort(stable=True)
        names, values = tokens[order].tolist(), tried[order].tolist()
        least: dict[int, float] = {}
        for name, value in zip(names, values, strict=True):
            least.setdefault(name, value)
        own = least.get(found, INFINITE)
        others = {twin: own for twin in twins if twin != found}
        for name, value in least.items():
            if name != found:
                others.setdefault(name, value)
        ranked = sorted(others.items(), key=lambda pair: pair[1])
        within = tuple(name for name, value in ranked[:NAMED] if value <= tolerance and value < INFINITE)
        count = len({*names, found, *others})
        token, runner_up = ranked[0] if ranked else (None, INFINITE)
        why: Why = "all" if count >= choice else "sampled"
        return cls(count=count, why=why, residual=own, runner_up=runner_up, token=token, within=within)

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


UNCOMPARED = Evidence(count=0, why="sampled", residual=INFINITE)
"""Of a position at which nothing was compared."""


@dataclass(frozen=True)
class Reconstruction:
    """Tokens and what the method knows of them."""

    tokens: list[int]
    evaluations: int  # candidates tried, or gradient steps made
    compared: list[Evidence] | None = None  # what the token of each position was compared with; None: with nothing
    per_token: list[int] | None = None  # `evaluations` of each position
    stopped: bool = False  # the budget ended before tokens were found that fit
    notes: tuple[str, ...] = ()  # what happened on the way, as sentences
    passes: int = 0  # token positions run
    top: list[list[int]] | None = None  # the best five tokens of each position, of descents
    residual: float | None = None  # relative residual of the output, of joint searches


def relative(outputs: Float[Tensor, "*batch w"], targets: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch"]:
    """||O - O*|| / ||O*|| of each position, [B, T']; infinite where it is no number, so that NaN is near nothing.

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
"""The tolerance over the noise measured. The largest of a thousand residuals was 4 times it (stories260K, block 2)."""


def accepts(residual: float, tolerance: float) -> bool:
    """Whether a residual counts as equal: a number, and within the tolerance. Every method asks this and nothing else."""
    return math.isfinite(residual) and residual <= tolerance


def accepted(cut: SlicedModel) -> float:
    """The relative residual that counts as found where no other is asked for: `FACTOR` times the noise."""
    return FACTOR * noise_floor(cut)


def noise_floor(cut: SlicedModel) -> float:
    """The relative residual that rounding causes at this slice, as `slice_noise` measures it; at least the unit roundoff."""
    own = cut.lens.input_embeddings.dtype
    dtypes = (own if own.is_floating_point else torch.float16, torch.float32)
    return max(slice_noise(cut), *(torch.finfo(dtype).eps / 2 for dtype in dtypes))
