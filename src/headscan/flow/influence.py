"""Influence between tokens: the movement of outputs with inputs, and recovery of inputs from
outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from headscan.flow.cost import computed_tokens
from headscan.model import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.model.slicing.prefix import Prefix, can_continue
from headscan.run import Progress, no_progress

UNMOVED = 1e-6
"""Relative movement that counts as none: the rounding of other batch shapes."""

ROUNDING_FACTOR = 10
"""The residual of another token must be so many times the rounding of the true one."""

LEAST_ROUNDING = 1e-5
"""Residuals up to this one count as rounding in any case."""


@torch.no_grad()
def _outputs(cut: SlicedModel, ids: Int[Tensor, "B T"]) -> list[Float[Tensor, "B T w"]]:
    """Return the outputs of each site."""
    widths = [cut.lens.width(site) for site in cut.sites]
    return list(cut.run(ids).float().split(widths, dim=-1))


def _relative(
    changed: Float[Tensor, "B s w"], original: Float[Tensor, "1 s w"]
) -> Float[Tensor, "B s"]:
    """Return ||changed - original|| / ||original|| of each output."""
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
    """Return the movement of each output when a token of a prompt is replaced by another.

    Entry (n, s, i, j) is the mean of ||O_j(i changed) - O_j|| / ||O_j|| over `trials` random
    tokens, for prompt n and site s. It is 0 where output j does not see token i (below 1e-6, the
    rounding of other batch shapes).

    Args:
        prompts: token ids [N, T].
        rows: rows of a forward pass.

    Cost: N T trials rows of T tokens through the slice.
    """
    prompts = torch.as_tensor(prompts)
    cut = slice_.on(lens)
    count, length = prompts.shape
    generator = torch.Generator().manual_seed(seed)
    changes = length * trials
    matrices = []
    for number, prompt in enumerate(prompts):
        progress("leak", number * changes, count * changes, "rows")
        changed = _each_replaced(prompt, trials, lens.vocabulary_size, generator)
        moved = []
        for chunk in changed.split(max(rows - 1, 1)):
            # The unchanged prompt runs in the same batch, so that both see the same kernels.
            outputs = _outputs(cut, torch.cat([prompt[None], chunk]))
            by_site = [_relative(states[1:], states[:1]) for states in outputs]
            moved.append(torch.stack(by_site).cpu())
        distances = torch.cat(moved, dim=1).double()  # [sites, T trials, T]
        distances = distances.where(distances > UNMOVED, 0.0)
        matrices.append(distances.reshape(len(distances), length, trials, length).mean(2).numpy())
    progress("leak", count * changes, count * changes, "rows")
    return np.stack(matrices)


def _each_replaced(
    prompt: Int[Tensor, " T"], trials: int, vocabulary: int, generator: torch.Generator
) -> Int[Tensor, "n T"]:
    """Return the prompt with each of its tokens replaced `trials` times by a random other one."""
    positions = torch.arange(len(prompt)).repeat_interleave(trials)
    shift = torch.randint(1, vocabulary, (len(positions),), generator=generator)
    changed = prompt.repeat(len(positions), 1)
    changed[torch.arange(len(positions)), positions] = (prompt[positions] + shift) % vocabulary
    return changed


class ReplacedToken:
    """The outputs of one prompt, and of prompts that differ from it at one position.

    Positions are asked for in ascending order. Where a key-value cache gives the model's own
    numbers, the tokens before the position are run once, and their outputs do not move; elsewhere
    whole rows are run.
    """

    def __init__(self, cut: SlicedModel, prompt: Int[Tensor, " T"]) -> None:
        self._cut = cut
        self._prompt = prompt
        self._original = _outputs(cut, prompt[None])
        self._prefix = Prefix(cut, prompt[None, :0]) if can_continue(cut) else None

    def length(self, position: int) -> int:
        """Return the tokens of a row that are run when this position is changed."""
        if self._prefix is None:
            return len(self._prompt)
        return len(self._prompt) - position

    def residuals(self, position: int, tokens: Int[Tensor, " B"]) -> Float[Tensor, "sites B T"]:
        """Return ||O_j(token at this position) - O_j|| / ||O_j|| of each site, token and output.

        Outputs before the position have 0 where the prefix is cached.
        """
        outputs = self._changed_outputs(position, tokens)
        first = len(self._prompt) - outputs[0].shape[1]
        by_site = []
        for states, original in zip(outputs, self._original, strict=True):
            by_site.append(_relative(states, original[:, first:]))
        return F.pad(torch.stack(by_site), (first, 0))

    def _changed_outputs(
        self, position: int, tokens: Int[Tensor, " B"]
    ) -> list[Float[Tensor, "B s w"]]:
        """Return the outputs of each site that are run, with these tokens at the position."""
        if self._prefix is None:
            changed = self._prompt.repeat(len(tokens), 1)
            changed[:, position] = tokens
            return _outputs(self._cut, changed)

        prompt = self._prompt.to(self._cut.lens.device)
        if position > self._prefix.length:
            self._prefix.extend(prompt[None, self._prefix.length : position])
        changed = prompt[position:].repeat(len(tokens), 1)
        changed[:, 0] = tokens.to(prompt.device)
        with torch.no_grad():
            following = self._prefix.following(changed)
        return list(following.split([states.shape[-1] for states in self._original], dim=-1))


@dataclass(frozen=True, repr=False)
class Recovery:
    """The outcome of exact search for token i in output j at site s, entry (s, i, j) of a matrix.

    Attributes:
        margins: of each prompt, the least relative distance of another token's output.
        noise: of each site, the largest residual of the *true* token when it is run again among
            others: the rounding.
        candidates: tokens tried at each position.
        exhaustive: True if they are the whole vocabulary.
    """

    margins: Float64[np.ndarray, "N sites T T"] = field(repr=False)
    noise: Float64[np.ndarray, " sites"]
    candidates: int
    exhaustive: bool

    @property
    def recovered(self) -> Bool[np.ndarray, "N sites T T"]:
        """True where the true token fits output j and no other does, by more than rounding."""
        floor = np.maximum(ROUNDING_FACTOR * self.noise, LEAST_ROUNDING)
        return np.asarray(self.margins > floor[None, :, None, None])

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
    """Return which outputs give the token at each position of the prompts away.

    For position i, all prompts that differ there only are run; the residual of token v at output j
    is ||O_j(v) - O_j|| / ||O_j||. The true token has residual 0; it is recoverable from output j if
    every other residual is above the rounding error (ten times what the true token itself shows in
    another batch, at least 1e-5). One pass over the vocabulary answers for all outputs and sites.
    Where a key-value cache knows what stands before position i, only the rest is run.

    Args:
        prompts: token ids [N, T].
        most: try so many other tokens instead of the whole vocabulary, half those whose input
            vectors are nearest, half drawn; "recoverable" and "margin" are then upper bounds.
        rows: rows of T tokens of a forward pass; of shorter rows as many as have so many tokens.

    Cost: `headscan.flow.cost.computed_tokens` tokens through the slice for each prompt and
        candidate.
    """
    prompts = torch.as_tensor(prompts)
    size = lens.vocabulary_size
    generator = torch.Generator().manual_seed(seed)
    count = size if most is None else min(most, size)
    total = len(prompts) * count * computed_tokens(lens, slice_, prompts.shape[1])
    margins = []
    noises = []
    done = 0
    for prompt in prompts:
        replaced = ReplacedToken(slice_.on(lens), prompt)
        nearest = []
        noise = []
        for position, true_token in enumerate(prompt.tolist()):
            others = torch.arange(size)
            if count < size:
                others = near_and_random(lens, true_token, count, generator)
            # The true token leads the first batch: its residual there is the rounding error.
            candidates = torch.cat([torch.tensor([true_token]), others[others != true_token]])
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


def near_and_random(
    lens: Lens, token: int, count: int, generator: torch.Generator
) -> Int[Tensor, " count"]:
    """Return `count` other tokens: half those whose input vectors are nearest, half drawn.

    The nearest are the likeliest to be confused with the token. Cost O(V e).
    """
    table = lens.input_embeddings.detach()
    distances = table.float().square().sum(1) - 2 * (table @ table[token]).float()
    distances[token] = -torch.inf  # the first of all, and left out
    order = distances.argsort().cpu()[1:]
    nearest = order[: count // 2]
    others = order[count // 2 :]
    drawn = torch.randperm(len(others), generator=generator)[: count - len(nearest)]
    return torch.cat([nearest, others[drawn]])
