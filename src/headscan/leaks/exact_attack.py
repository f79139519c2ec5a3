"""The attack on a release without noise: exact inversion, with its certificate."""

import time
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.inversion.assess import assess
from headscan.inversion.left_to_right import refuse_unordered
from headscan.inversion.methods import Exact, Problem
from headscan.inversion.reconstruction import FACTOR, VERDICTS, accepted, noise_floor, relative
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.mapped import Mapped
from headscan.run import Progress
from headscan.text.prompts import Prompt

# The relative residual up to which the search takes a release for equal at once. One code of a
# coarse format turns over more than that, and a neighbour might pass for the token; then the tokens
# predicted nearest are run, too, and it must stand alone.
FINE = 2e-3
DISTURBANCES = 16


@dataclass(frozen=True, kw_only=True)
class ExactAttack:
    """The share of a release that exact inversion recovers.

    Attributes:
        right: share of tokens recovered, of each window.
        verdict: the worst of the windows; certificate: its type.
        evaluations: a token.
        seconds: processor time a token.
    """

    right: list[float]
    verdict: str
    certificate: str
    evaluations: float
    seconds: float


@torch.no_grad()
def rounding_residual(cut: SlicedModel, ids: Int[Tensor, "B T"], seed: int = 0) -> float:
    """Return the relative residual that rounding in the model's arithmetic may cause at a slice.

    After a map that rounds, a difference in the last bit becomes one of a whole step where a number
    lies at the border. That is tried on these tokens: 16 disturbances as large as the noise that is
    measured under the map.
    """
    if not isinstance(cut, Mapped):
        return noise_floor(cut)
    states = cut.under.states(ids.to(cut.lens.device)).float()
    noise = noise_floor(cut.under) / states.shape[-1] ** 0.5
    size = noise * states.norm(dim=-1, keepdim=True)
    generator = torch.Generator().manual_seed(seed)
    clean = cut.apply(states)
    largest = 0.0
    for _ in range(DISTURBANCES):
        disturbed = states + size * torch.randn(states.shape, generator=generator).to(states)
        largest = max(largest, float(relative(cut.apply(disturbed), clean).max()))
    return max(largest, noise_floor(cut))


def exact_attack(
    cut: SlicedModel,
    windows: Int[Tensor, "B T"],
    *,
    budget: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ExactAttack:
    """Invert a release of each window from left to right; return what was recovered.

    Candidates pass the same map as the release did. The search gets nothing of the true tokens but
    their release. `budget` is the number of candidates at one position; None: the vocabulary.

    Raises:
        BadInput: the slice is not causal.
    """
    refuse_unordered(cut)
    with torch.no_grad():
        targets = list(cut.run(windows).float())
    tolerance = None
    certain = None
    residual = rounding_residual(cut, windows, seed)
    if isinstance(cut, Mapped):
        tolerance = max(accepted(cut), FACTOR * residual)
        certain = max(accepted(cut), FINE)

    start = time.process_time()
    problem = Problem(
        cut=cut,
        targets=targets,
        lengths=[windows.shape[1]] * len(windows),
        known=[{} for _ in windows],
        seed=seed,
        progress=progress,
        tolerance=tolerance,
        certain=certain,
    )
    # With few candidates wrong prefixes are not taken back: each would cost as much again.
    method = Exact() if budget is None else Exact(budget=budget, backtracks=0)
    reconstructions = method.solve(problem)
    seconds = time.process_time() - start

    silent = replace(problem, progress=None)
    entries = []
    for number, row in enumerate(windows):
        prompt = Prompt.of_ids(cut.lens.tokenizer, row.tolist())
        entries.append(assess(silent, number, prompt, reconstructions[number]))
    worst = max(entries, key=lambda entry: VERDICTS.index(entry.verdict))
    evaluations = sum(reconstruction.evaluations for reconstruction in reconstructions)
    return ExactAttack(
        right=[entry.token_accuracy or 0.0 for entry in entries],
        verdict=worst.verdict,
        certificate=worst.certificate.type,
        evaluations=evaluations / windows.numel(),
        seconds=seconds / windows.numel(),
    )
