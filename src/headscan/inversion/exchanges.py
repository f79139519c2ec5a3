"""Whole prompts run against a target: counted residuals, exchanges of single tokens, positions that
no output shows.
"""

import sys
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.inversion.reconstruction import Evidence, noise_floor, relative
from headscan.model.slicing import SlicedModel
from headscan.run import Progress

FEW = 256  # tokens that are tried at a position where all of them would take too many runs
TRIAL_ROWS = 255  # rows of one pass that looks for positions without influence


@dataclass(eq=False)
class PromptResiduals:
    """Residuals of whole prompts: the root mean square over positions of ||O - O*|| / ||O*||.

    Attributes:
        budget: prompts that may be run; `count` were.
        planned: prompts that will be run as far as is known, for the progress; `reported` were.
        batch: prompts of one pass.
    """

    cut: SlicedModel
    target: Float[Tensor, "kept w"]
    budget: int
    progress: Progress | None = None
    count: int = 0
    planned: int = 0
    batch: int = 256
    reported: int = 0

    @torch.no_grad()
    def __call__(self, rows: Int[Tensor, "N T"]) -> Float[Tensor, " N"]:
        """Return the residual of each row of tokens."""

        target = self.target[None].float()

        def run(part: slice) -> Tensor:
            residuals = relative(self.cut.run(rows[part]), target)
            self.report(len(residuals), "candidates")
            return residuals.pow(2).mean(1).sqrt()

        residuals = self.cut.in_batches(run, len(rows), self.batch)
        self.count += len(rows)
        return residuals

    def report(self, prompts: int, stage: str) -> None:
        """Add so many prompts to the progress."""
        self.reported += prompts
        if self.progress:
            total = max(self.reported, self.planned)
            self.progress(f"joint search · {stage}", self.reported, total, "texts")

    @property
    def left(self) -> int:
        return self.budget - self.count


def compared_each(choice: int, positions: int, most: int = 50_000) -> int:
    """Return how many of `choice` tokens `exchanges` tries at each of so many positions.

    These are all if that takes at most `most` runs, else 256.
    """
    return choice if choice * positions <= most else min(choice, FEW)


def exchanges(
    residuals_of: PromptResiduals,
    tokens: Int[Tensor, " T"],
    positions: list[int],
    lists: list[Tensor],
    residual: float,
    *,
    tolerance: float,
) -> list[Evidence]:
    """Return the evidence of exchanging one token at a time, a position of `tokens` an entry.

    At each of `positions` the first `compared_each` tokens of its list are tried. Where several
    positions are free the evidence is "sampled": prompts that differ in two tokens were not tried.
    """
    evidence = [Evidence(count=1, why="sampled", residual=residual)] * len(tokens)
    for position in positions:
        token = int(tokens[position])
        candidates = lists[position][: compared_each(len(lists[position]), len(positions))]
        candidates = candidates[candidates != token]
        rows = tokens.repeat(len(candidates), 1)
        rows[:, position] = candidates
        values = residuals_of(rows) if len(candidates) else candidates.float()
        evidence[position] = Evidence.of(
            torch.cat([tokens[position : position + 1], candidates]),
            torch.cat([values.new_full((1,), residual), values]),
            token,
            tolerance=tolerance,
            choice=len(lists[position]) if len(positions) == 1 else sys.maxsize,
            twins=tuple(residuals_of.cut.equal_rows.get(token, ())),
        )
    return evidence


@torch.no_grad()
def unseen(
    cut: SlicedModel, tokens: Int[Tensor, " T"], trials: int = 6, seed: int = 0
) -> list[bool]:
    """Return for each position of `tokens` whether no output given depends on it.

    That is decided by `trials` random other tokens there: none moves an output by more than noise.
    """
    length = len(tokens)
    generator = torch.Generator().manual_seed(seed)
    rows = tokens.repeat(length * trials, 1)
    steps = torch.randint(1, max(2, cut.vocabulary_size), (len(rows),), generator=generator)
    index = torch.arange(len(rows)), torch.arange(length).repeat_interleave(trials)
    rows[index] = (rows[index] + steps.to(rows.device)) % cut.vocabulary_size

    movements = []
    for part in rows.split(TRIAL_ROWS):
        outputs = cut.run(torch.cat([tokens[None], part])).float()
        movements.append(relative(outputs[1:], outputs[:1]).amax(1))
    largest = torch.cat(movements).reshape(length, trials).amax(1)
    return (largest <= noise_floor(cut)).tolist()
