"""Non-self recovery: can token i be told from output j alone, with every other token known?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from headscan.flow.cost import near_and_random
from headscan.flow.replaced import Replaced, computed_tokens
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import Progress, no_progress

__all__ = ["Recovery", "recovery"]


@dataclass(frozen=True, repr=False)
class Recovery:
    """What exact search found, matrices with entry (s, i, j) about token i in output j.

    Attributes:
        margins: of each prompt the least relative distance of another token's output.
        noise: of each site, the largest residual of the *true* token when it is run again among others: the rounding that a
            margin must exceed.
        candidates: tokens tried in each place.
        exhaustive: whether they are the whole vocabulary.
    """

    margins: Float64[np.ndarray, "N sites T T"] = field(repr=False)
    noise: Float64[np.ndarray, " sites"]
    candidates: int
    exhaustive: bool

    @property
    def told(self) -> Bool[np.ndarray, "N sites T T"]:
        """Whether in a prompt the true token fits output j and no other does."""
        floor = np.maximum(10 * self.noise, 1e-5)[None, :, None, None]
        told: Bool[np.ndarray, "N sites T T"] = self.margins > floor
        return told

    @property
    def recoverable(self) -> Float64[np.ndarray, "sites T T"]:
        """The share of prompts in which the true token is told."""
        shares: Float64[np.ndarray, "sites T T"] = self.told.mean(0)
        return shares

    @property
    def margin(self) -> Float64[np.ndarray, "sites T T"]:
        """Median over prompts: how much relative error of output j the search would bear, twice over."""
        median: Float64[np.ndarray, "sites T T"] = np.median(self.margins, 0)
        return median

    def __repr__(self) -> str:
        _, sites, length, _ = self.margins.shape
        return f"Recovery({sites} sites, {length} tokens, {self.candidates} candidates)"


def recovery(
    lens: Lens, slice_: Slice, prompts: Tensor | Sequence[Sequence[int]], *, most: int | None = None, seed: int = 0,
    rows: int = 256, progress: Progress = no_progress,
) -> Recovery:  # fmt: skip
    """Try every token of the vocabulary in each place, and look which outputs tell it from the true one.

    For place i, all prompts that differ there only are run; the residual of token v at output j is
    ||O_j(v) - O_j|| / ||O_j||. The true token has residual 0; the token is recoverable from output j if every other
    residual is above the rounding error (ten times what the true token itself shows in another batch, at least 1e-5).
    One pass over the vocabulary answers for all outputs and sites. Where a key-value cache knows what stands before place i,
    only the rest is run.

    Args:
        lens: the model.
        slice_: what of it is run.
        prompts: token ids [N, T].
        most: try so many other tokens instead of the whole vocabulary, half those whose input vectors are nearest, half
            drawn; "recoverable" and "margin" are then upper bounds.
        seed: of those drawn.
        rows: rows of T tokens of a forward pass; of shorter rows as many as have so many tokens.
        progress: told of the tokens that are done.

    Cost: `headscan.flow.replaced.computed_tokens` tokens through the slice for each prompt and candidate.
    """
    prompts = torch.as_tensor(prompts)
    generator = torch.Generator().manual_seed(seed)
    size = lens.vocabulary_size
    count = size if most is None else min(most, size)
    margins, noises = [], []
    done, total = 0, len(prompts) * count * computed_tokens(lens, slice_, prompts.shape[1])
    for prompt in prompts:
        replaced = Replaced(lens, slice_, prompt)
        nearest, noise = [], []
        for place in range(len(prompt)):
            true = int(prompt[place])
            others = torch.arange(size) if count == size else near_and_random(lens, true, count, generator)
            # The true token leads the first batch: what it shows there is the rounding error.
            others = torch.cat([torch.tensor([true]), others[others != true]])
            least: Tensor | None = None
            for chunk in others.split(rows * len(prompt) // replaced.length(place)):
                progress("recovery", done, total, "tokens")
                found = replaced.residuals(place, chunk)
                if least is None:
                    noise.append(found[:, 0].amax(-1))
                    found[:, 0] = torch.inf
                    least = found.amin(1)
                else:
                    least = torch.minimum(least, found.amin(1))
                done += len(chunk) * replaced.length(place)
            assert least is not None
            nearest.append(least)
        margins.append(torch.stack(nearest, 1).cpu())  # [sites, T, T]
        noises.append(torch.stack(noise).amax(0).cpu())
    progress("recovery", total, total, "tokens")
    noise_of = torch.stack(noises).amax(0).double().numpy()
    return Recovery(torch.stack(margins).double().numpy(), noise_of, count, count == size)
