"""What output j knows of input token i: how far it moves with the token, and whether the token can
be recovered from it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from headscan.model import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.model.slicing.prefix import Prefix, can_continue
from headscan.run import Progress, no_progress

_CPU = 6e12
_GPU = 6e14
"""Multiplications that a default may spend: two to three minutes of two cores or one (measured: 3
to 6e10 a second), so that a machine with other work needs no ten; on a GPU a minute (by its
specification).
"""


@torch.no_grad()
def _outputs(cut: SlicedModel, ids: Int[Tensor, "B T"]) -> list[Float[Tensor, "B T w"]]:
    return list(cut.run(ids).float().split([cut.lens.width(site) for site in cut.sites], dim=-1))


def _relative(
    changed: Float[Tensor, "B s w"], original: Float[Tensor, "1 s w"]
) -> Float[Tensor, "B s"]:
    return torch.div((changed - original).norm(dim=-1), original.norm(dim=-1).clamp_min(1e-30))


def leaks(
    lens: Lens,
    slice_: Slice,
    prompts: Tensor | Sequence[Sequence[int]],
    *,
    trials: int = 4,
    seed: int = 0,
    rows: int = 64,
    progress: Progress = no_progress,
) -> Float64[np.ndarray, "N sites T T"]:
    """How far output j of a site moves in each of the prompts [N, T] when input token i is replaced
    by another.

    Entry (n, s, i, j) is the mean of ||O_j(i changed) - O_j|| / ||O_j|| over `trials` random
    tokens, 0 where output j does not see token i (below 1e-6, the rounding of other batch shapes).
    Forward passes have `rows` rows.

    Cost: N T trials rows of T tokens through the slice.
    """
    prompts = torch.as_tensor(prompts)
    cut = slice_.on(lens)
    count, length = prompts.shape
    generator = torch.Generator().manual_seed(seed)
    positions = torch.arange(length).repeat_interleave(trials)
    matrices = []
    for number, prompt in enumerate(prompts):
        progress("leak", number * length * trials, count * length * trials, "rows")
        changed = prompt.repeat(length * trials, 1)
        shift = torch.randint(1, lens.vocabulary_size, (length * trials,), generator=generator)
        changed[torch.arange(len(changed)), positions] = (
            prompt[positions] + shift
        ) % lens.vocabulary_size
        moved = []
        for chunk in changed.split(max(rows - 1, 1)):
            # The unchanged prompt runs in the same batch, so that both see the same kernels.
            sites = _outputs(cut, torch.cat([prompt[None], chunk]))
            moved.append(torch.stack([_relative(states[1:], states[:1]) for states in sites]).cpu())
        distances = torch.cat(moved, dim=1).double()  # [sites, T trials, T]
        distances = distances.where(distances > 1e-6, 0.0)
        matrices.append(distances.reshape(len(distances), length, trials, length).mean(2).numpy())
    progress("leak", count * length * trials, count * length * trials, "rows")
    return np.stack(matrices)


def computed_tokens(lens: Lens, slice_: Slice, length: int) -> int:
    """Tokens that pass the slice when each place of a prompt is changed once; a cache spares those
    before the place.
    """
    return length * (length + 1) // 2 if can_continue(slice_.on(lens)) else length * length


class Replaced:
    """The outputs of one prompt, and of prompts that differ from it at one place; places are asked
    for in order.

    Where a key-value cache gives the model's own numbers, the tokens before the place are run once,
    and outputs there are known to be unmoved; elsewhere whole rows are run.
    """

    def __init__(self, cut: SlicedModel, prompt: Int[Tensor, " T"]) -> None:
        self._cut = cut
        self._prompt = prompt
        self._original = _outputs(cut, prompt[None])
        self._prefix = Prefix(cut, prompt[None, :0]) if can_continue(cut) else None

    def length(self, position: int) -> int:
        return len(self._prompt) - (position if self._prefix is not None else 0)

    def residuals(self, position: int, tokens: Int[Tensor, " B"]) -> Float[Tensor, "sites B T"]:
        """||O_j(token in this place) - O_j|| / ||O_j|| of each site, token and output j; 0 before
        the place, if cached.
        """
        if self._prefix is None:
            changed = self._prompt.repeat(len(tokens), 1)
            changed[:, position] = tokens
            outputs = _outputs(self._cut, changed)
        else:
            prompt = self._prompt.to(self._cut.lens.device)
            if position > self._prefix.length:
                self._prefix.extend(prompt[None, self._prefix.length : position])
            changed = prompt[position:].repeat(len(tokens), 1)
            changed[:, 0] = tokens.to(prompt.device)
            with torch.no_grad():
                following = self._prefix.following(changed)
            outputs = list(
                following.split([original.shape[-1] for original in self._original], dim=-1)
            )
        first = len(self._prompt) - outputs[0].shape[1]
        pairs = zip(outputs, self._original, strict=True)
        return F.pad(
            torch.stack([_relative(states, original[:, first:]) for states, original in pairs]),
            (first, 0),
        )


@dataclass(frozen=True, repr=False)
class Recovery:
    """What exact search found; entry (s, i, j) of a matrix is about recovering token i from output
    j at site s.
    """

    # least relative distance of another token's output
    margins: Float64[np.ndarray, "N sites T T"] = field(repr=False)
    # Of each site, the largest residual of the *true* token when it is run again among others:
    # rounding.
    noise: Float64[np.ndarray, " sites"]
    candidates: int  # tokens tried in each place
    exhaustive: bool  # whether they are the whole vocabulary

    @property
    def recovered(self) -> Bool[np.ndarray, "N sites T T"]:
        """Whether in a prompt the true token fits output j and no other does, by more than
        rounding.
        """
        floor = np.maximum(10 * self.noise, 1e-5)[None, :, None, None]
        return np.asarray(self.margins > floor)

    @property
    def recoverable(self) -> Float64[np.ndarray, "sites T T"]:
        """The share of prompts in which the true token is recovered."""
        return np.asarray(self.recovered.mean(0))

    @property
    def margin(self) -> Float64[np.ndarray, "sites T T"]:
        """Median over prompts: twice the relative error of output j that the search tolerates."""
        return np.asarray(np.median(self.margins, 0))


def recovery(
    lens: Lens,
    slice_: Slice,
    prompts: Tensor | Sequence[Sequence[int]],
    *,
    most: int | None = None,
    seed: int = 0,
    rows: int = 256,
    progress: Progress = no_progress,
) -> Recovery:
    """Try every token of the vocabulary in each place of prompts [N, T], and look which outputs
    recover the true one.

    For place i, all prompts that differ there only are run; the residual of token v at output j is
    ||O_j(v) - O_j|| / ||O_j||. The true token has residual 0; it is recoverable from output j if
    every other residual is above the rounding error (ten times what the true token itself shows
    in another batch, at least 1e-5). One pass over the vocabulary answers for all outputs and
    sites. Where a
    key-value cache knows what stands before place i, only the rest is run.

    Args:
        most: try so many other tokens instead of the whole vocabulary, half those whose input
            vectors are nearest, half drawn; "recoverable" and "margin" are then upper bounds.
        rows: rows of T tokens of a forward pass; of shorter rows as many as have so many tokens.

    Cost: `headscan.flow.influence.computed_tokens` tokens through the slice for each prompt and
        candidate.
    """
    prompts = torch.as_tensor(prompts)
    size = lens.vocabulary_size
    generator = torch.Generator().manual_seed(seed)
    count = size if most is None else min(most, size)
    margins = []
    noises = []
    done = 0
    total = len(prompts) * count * computed_tokens(lens, slice_, prompts.shape[1])
    for prompt in prompts:
        replaced = Replaced(slice_.on(lens), prompt)
        nearest = []
        noise = []
        for position, true in enumerate(prompt.tolist()):
            candidates = (
                torch.arange(size)
                if count == size
                else near_and_random(lens, true, count, generator)
            )
            # The true token leads the first batch: its residual there is the rounding error.
            candidates = torch.cat([torch.tensor([true]), candidates[candidates != true]])
            least: Tensor | None = None
            for chunk in candidates.split(rows * len(prompt) // replaced.length(position)):
                progress("recovery", done, total, "tokens")
                residuals = replaced.residuals(position, chunk)
                if least is None:
                    noise.append(residuals[:, 0].amax(-1))
                    residuals[:, 0] = torch.inf
                    least = residuals.amin(1)
                least = torch.minimum(least, residuals.amin(1))
                done += len(chunk) * replaced.length(position)
            assert least is not None
            nearest.append(least)
        margins.append(torch.stack(nearest, 1).cpu())  # [sites, T, T]
        noises.append(torch.stack(noise).amax(0).cpu())
    progress("recovery", total, total, "tokens")
    noise_floor = torch.stack(noises).amax(0).double().numpy()
    return Recovery(torch.stack(margins).double().numpy(), noise_floor, count, count == size)


# The cost of running a slice, and which tokens of a large vocabulary are tried for a bounded cost


def multiplications(lens: Lens, sites: Sequence[str]) -> float:
    """Multiplications a token up to the deepest block of the sites: the weights of the matrices
    that it passes.
    """
    modules = (lens.model.get_input_embeddings(), lens.model.get_output_embeddings())
    tables = {
        id(module.weight)
        for module in modules
        if isinstance(module, torch.nn.Embedding | torch.nn.Linear)
    }
    body = sum(
        weight.numel()
        for weight in lens.model.parameters()
        if weight.ndim > 1 and id(weight) not in tables
    )
    blocks = [int(match[1]) for site in sites if (match := re.search(r"block\.(\d+)", site))]
    deepest = max(blocks) + 1 if blocks and len(blocks) == len(sites) else lens.depth
    return float(max(body, 1)) * min(deepest / max(lens.depth, 1), 1.0)


def affordable(lens: Lens, cost: float, share: float = 1.0) -> int:
    """How many pieces of work, each of `cost` multiplications, a default may do with a share of its
    budget.
    """
    return int(share * (_CPU if lens.device.type == "cpu" else _GPU) / max(cost, 1.0))


def untried(drawn: int, confidence: float = 0.95) -> float:
    """The largest share of the tokens not tried that fit, if none of so many drawn ones does, at
    this confidence.

    1 − (1 − confidence)^(1/drawn), exact for draws with replacement (Clopper, Pearson 1934), above
    what it is without.

    >>> round(untried(300), 4)
    0.0099
    """
    return float(1 - (1 - confidence) ** (1 / drawn))


def near_and_random(
    lens: Lens, token: int, count: int, generator: torch.Generator
) -> Int[Tensor, " count"]:
    """`count` other tokens: half those whose input vectors are nearest (the likeliest to be
    confused), half drawn. O(V e).
    """
    table = lens.input_embeddings.detach()
    distances = table.float().square().sum(1) - 2 * (table @ table[token]).float()
    distances[token] = -torch.inf  # the first of all, and left out
    order = distances.argsort().cpu()[1:]
    nearest = order[: count // 2]
    remaining = order[count // 2 :]
    return torch.cat(
        [
            nearest,
            remaining[torch.randperm(len(remaining), generator=generator)[: count - len(nearest)]],
        ]
    )
