"""Non-self recovery: can token i be told from output j alone, with every other token known?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from headscan.flow.cost import near_and_random
from headscan.flow.leak import outputs
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import Progress, no_progress

__all__ = ["Recovery", "recovery"]


@dataclass(frozen=True, repr=False)
class Recovery:
    """What exact search found, matrices with entry (s, i, j) about token i in output j.

    Attributes:
        recoverable: the share of prompts in which the true token fits output j and no other does.
        margin: the least relative distance of another token's output, median over prompts: how much relative error
            of output j the search would bear, twice over.
        noise: of each site, the largest residual of the *true* token when it is run again in another batch: the rounding
            that a margin must exceed.
        candidates: tokens tried in each place.
        exhaustive: whether they are the whole vocabulary.
    """

    recoverable: Float64[np.ndarray, "sites T T"]
    margin: Float64[np.ndarray, "sites T T"]
    noise: Float64[np.ndarray, " sites"]
    candidates: int
    exhaustive: bool

    def __repr__(self) -> str:
        sites, length, _ = self.recoverable.shape
        return f"Recovery({sites} sites, {length} tokens, {self.candidates} candidates)"


def recovery(
    lens: Lens, slice_: Slice, prompts: Tensor | Sequence[Sequence[int]], *, most: int | None = None, seed: int = 0,
    rows: int = 256, progress: Progress = no_progress,
) -> Recovery:  # fmt: skip
    """Try every token of the vocabulary in each place, and look which outputs tell it from the true one.

    For place i, all prompts that differ there only are run; the residual of token v at output j is
    ||O_j(v) - O_j|| / ||O_j||. The true token has residual 0; the token is recoverable from output j if every other
    residual is above the rounding error (ten times what the true token itself shows in another batch, at least 1e-5).
    One pass over the vocabulary answers for all outputs and sites.

    Args:
        lens: the model.
        slice_: what of it is run.
        prompts: token ids [N, T].
        most: try so many other tokens instead of the whole vocabulary, half those whose input vectors are nearest, half
            drawn; "recoverable" and "margin" are then upper bounds.
        seed: of those drawn.
        rows: rows of a forward pass.
        progress: told of the rows that are done.

    Cost: N T V rows of T tokens through the slice.
    """
    prompts = torch.as_tensor(prompts)
    generator = torch.Generator().manual_seed(seed)
    size = lens.vocabulary_size
    count = size if most is None else min(most, size)
    margins, noises = [], []
    done, total = 0, prompts.numel() * count
    for prompt in prompts:
        original = outputs(lens, slice_, prompt[None])
        again = outputs(lens, slice_, prompt.repeat(min(rows, 8), 1))
        noises.append([float(_residual(a, o).max()) for a, o in zip(again, original, strict=True)])
        nearest = []
        for place in range(len(prompt)):
            true = int(prompt[place])
            others = torch.arange(size) if count == size else near_and_random(lens, true, count, generator)
            others = others[others != true]
            least: Tensor | None = None
            for chunk in others.split(rows):
                progress("recovery", done, total, "rows")
                changed = prompt.repeat(len(chunk), 1)
                changed[:, place] = chunk
                found = outputs(lens, slice_, changed)
                here = torch.stack([_residual(f, o).amin(0) for f, o in zip(found, original, strict=True)])
                least = here if least is None else torch.minimum(least, here)
                done += len(chunk)
            assert least is not None
            nearest.append(least)
        margins.append(torch.stack(nearest, 1).cpu())  # [sites, T, T]
    progress("recovery", total, total, "rows")
    margin = torch.stack(margins).double().numpy()
    noise = np.array(noises).max(0)
    floor = np.maximum(10 * noise, 1e-5)[None, :, None, None]
    return Recovery((margin > floor).mean(0), np.median(margin, 0), noise, count, count == size)


def _residual(found: Float[Tensor, "B T w"], original: Float[Tensor, "1 T w"]) -> Float[Tensor, "B T"]:
    apart: Tensor = (found - original).norm(dim=-1) / original.norm(dim=-1).clamp_min(1e-30)
    return apart
