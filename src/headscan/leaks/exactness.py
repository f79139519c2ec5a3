"""Releases without noise: exact inversion, and what its certificate says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.inversion.assess import assess
from headscan.inversion.certificate import VERDICTS
from headscan.inversion.fitting import fit_together
from headscan.inversion.left_to_right import refuse_unordered
from headscan.inversion.losses import relative
from headscan.inversion.method import Problem
from headscan.inversion.methods.exact import Exact
from headscan.inversion.tolerance import FACTOR, accepted, noise_floor
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.mapped import Mapped
from headscan.run import Progress
from headscan.text.prompts import Prompt

__all__ = ["ExactAttack", "blurred", "exact_attack", "prepare"]

FINE = 2e-3
"""The relative residual up to which the search itself takes a release for equal: what one code of a coarse format turns over
is more than that, and a neighbour might pass for it; then all candidates are run and the nearest is taken."""


@dataclass(frozen=True, kw_only=True)
class ExactAttack:
    """What exact inversion recovers of a release.

    Attributes:
        right: share of tokens recovered, of each window.
        verdict, certificate: the worst of the windows; seconds, evaluations: a token.
    """

    right: list[float]
    verdict: str
    certificate: str
    evaluations: float
    seconds: float


@torch.no_grad()
def blurred(cut: SlicedModel, ids: Int[Tensor, "B T"], seed: int = 0) -> float:
    """The relative residual that rounding in the model's own arithmetic may cause at a slice, after its map.

    A map that rounds makes of a difference in the last bit one of a whole step, where a number lies at the border. Tried on
    these tokens: 16 disturbances of the noise that is measured under the map.
    """
    if not isinstance(cut, Mapped):
        return noise_floor(cut)
    states = cut.under.states(ids.to(cut.lens.device)).float()
    size = noise_floor(cut.under) / states.shape[-1] ** 0.5 * states.norm(dim=-1, keepdim=True)
    generator, clean, worst = torch.Generator().manual_seed(seed), cut.apply(states), 0.0
    for _ in range(16):
        moved = states + size * torch.randn(states.shape, generator=generator).to(states)
        worst = max(worst, float(relative(cut.apply(moved), clean).max()))
    return max(worst, noise_floor(cut))


def prepare(whole: SlicedModel, parts: Sequence[SlicedModel], progress: Progress | None = None) -> None:
    """Fit what orders the candidates of several slices in one pass, where that is a readout (long vocabularies)."""
    if len(parts) > 1 and all(Exact().ranked_by(cut) == "readout" for cut in parts):
        fit_together(whole, parts, progress=progress)


def exact_attack(
    cut: SlicedModel, windows: Int[Tensor, "B T"], *, budget: int | None = None, seed: int = 0,
    progress: Progress | None = None,
) -> ExactAttack:  # fmt: skip
    """Invert a release of each window from left to right; candidates pass the same map as the release did.

    Args:
        cut: a causal slice.
        windows: the true tokens, of which the release is computed; the search is given nothing else of them.
        budget: candidates at one position; None: the vocabulary.

    Raises:
        BadInput: the slice is not causal.
    """
    refuse_unordered(cut)
    with torch.no_grad():
        targets = list(cut.run(windows).float())
    lengths = [windows.shape[1]] * len(windows)
    tolerance = FACTOR * blurred(cut, windows, seed)
    start = time.process_time()
    problem = Problem(
        cut=cut, targets=targets, lengths=lengths, known=[{} for _ in lengths], seed=seed, progress=progress,
        tolerance=None if not isinstance(cut, Mapped) else max(accepted(cut), min(tolerance, FINE)),
    )  # fmt: skip
    # With few candidates wrong prefixes are not taken back: each would cost as much again.
    found = Exact(budget=budget, backtracks=Exact.backtracks if budget is None else 0).solve(problem)
    seconds = time.process_time() - start
    judged = Problem(
        cut=cut, targets=targets, lengths=lengths, known=problem.known, seed=seed,
        tolerance=None if not isinstance(cut, Mapped) else max(accepted(cut), tolerance),
    )  # fmt: skip
    entries = [
        assess(judged, number, Prompt.of_ids(cut.lens.tokenizer, row.tolist()), one)
        for number, (row, one) in enumerate(zip(windows, found, strict=True))
    ]
    worst = max(entries, key=lambda one: VERDICTS.index(one.verdict))
    return ExactAttack(
        right=[one.token_accuracy or 0.0 for one in entries], verdict=worst.verdict, certificate=worst.certificate.type,
        evaluations=sum(one.evaluations for one in found) / windows.numel(), seconds=seconds / windows.numel(),
    )  # fmt: skip
