"""Leak: how far each output moves when each input token is changed, at every site in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import Progress, no_progress

__all__ = ["leak", "leaks", "outputs"]


def outputs(lens: Lens, slice_: Slice, ids: Int[Tensor, "B T"]) -> list[Float[Tensor, "B T w"]]:
    """The outputs of a slice at each of its sites, apart."""
    cut = slice_.on(lens)
    with torch.no_grad():
        joined = cut.run(ids).float()
    return list(joined.split([cut.lens.width(site) for site in cut.sites], dim=-1))


def leak(
    lens: Lens, slice_: Slice, prompts: Tensor | Sequence[Sequence[int]], *, trials: int = 4, seed: int = 0,
    rows: int = 64, progress: Progress = no_progress,
) -> Float64[np.ndarray, "sites T T"]:  # fmt: skip
    """How far output j of a site moves when input token i is replaced by another.

    Args:
        lens: the model.
        slice_: what of it is run; all its sites are measured, every feature and position kept.
        prompts: token ids [N, T]; the leak is averaged over them.
        trials: random other tokens put in each place.
        seed: of these.
        rows: rows of a forward pass.
        progress: told of the rows that are done.

    Returns:
        entry (s, i, j) is the mean of ||O_j(i changed) - O_j|| / ||O_j||, a relative distance, 0
        where output j does not see token i (below 1e-6, the rounding of other batch shapes).

    Cost: N T trials rows of T tokens through the slice.
    """
    each = leaks(lens, slice_, prompts, trials=trials, seed=seed, rows=rows, progress=progress)
    matrices: Float64[np.ndarray, "sites T T"] = each.mean(0)
    return matrices


def leaks(
    lens: Lens, slice_: Slice, prompts: Tensor | Sequence[Sequence[int]], *, trials: int = 4, seed: int = 0,
    rows: int = 64, progress: Progress = no_progress,
) -> Float64[np.ndarray, "N sites T T"]:  # fmt: skip
    """`leak` of each prompt."""
    prompts = torch.as_tensor(prompts)
    count, length = prompts.shape
    generator = torch.Generator().manual_seed(seed)
    each = []
    for number, prompt in enumerate(prompts):
        progress("leak", number * length * trials, count * length * trials, "rows")
        changed = prompt.repeat(length * trials, 1)
        place = torch.arange(length).repeat_interleave(trials)
        shift = torch.randint(1, lens.vocabulary_size, (length * trials,), generator=generator)
        changed[torch.arange(len(changed)), place] = (prompt[place] + shift) % lens.vocabulary_size
        moved = []
        for chunk in changed.split(max(rows - 1, 1)):
            # The unchanged prompt runs in the same batch, so that both see the same kernels.
            both = outputs(lens, slice_, torch.cat([prompt[None], chunk]))
            moved.append(
                torch.stack([(o[1:] - o[:1]).norm(dim=-1) / o[:1].norm(dim=-1).clamp_min(1e-30) for o in both]).cpu()
            )
        found = torch.cat(moved, dim=1).double()  # [sites, T trials, T]
        found = torch.where(found > 1e-6, found, torch.zeros_like(found))
        each.append(found.reshape(len(found), length, trials, length).mean(2).numpy())
    progress("leak", count * length * trials, count * length * trials, "rows")
    return np.stack(each)
