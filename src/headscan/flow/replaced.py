"""A prompt in which one token is another: how far its outputs are from those of the prompt itself."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.flow.leak import outputs
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import Prefix, can_continue

__all__ = ["Replaced", "computed_tokens"]


def computed_tokens(lens: Lens, slice_: Slice, length: int) -> int:
    """Tokens that pass the slice when each place of a prompt is changed once.

    `length`² of whole rows; `length` (`length` + 1) / 2 where a cache knows what stands before the place.
    """
    return length * (length + 1) // 2 if can_continue(slice_.on(lens)) else length * length


class Replaced:
    """The outputs of one prompt, and of prompts that differ from it at one place; places are asked for in order.

    Where a key-value cache gives the model's own numbers, what stands before the place is run once, and outputs there are
    known to be unmoved; elsewhere whole rows are run.
    """

    def __init__(self, lens: Lens, slice_: Slice, prompt: Int[Tensor, " T"]) -> None:
        self._lens, self._slice, self._prompt = lens, slice_, prompt
        self._cut = slice_.on(lens)
        self._widths = [self._cut.lens.width(site) for site in self._cut.sites]
        self._prefix = Prefix(self._cut, prompt[None, :0]) if can_continue(self._cut) else None
        self._original = outputs(lens, slice_, prompt[None])

    def __repr__(self) -> str:
        return f"Replaced({len(self._prompt)} tokens, {'behind a cache' if self._prefix else 'whole rows'})"

    def length(self, place: int) -> int:
        """Tokens that are run for each other token in a place."""
        return len(self._prompt) - (place if self._prefix is not None else 0)

    def residuals(self, place: int, tokens: Int[Tensor, " B"]) -> Float[Tensor, "sites B T"]:
        """||O_j(token in this place) - O_j|| / ||O_j|| of each site, token and output j; 0 before the place, if cached."""
        found = self._outputs(place, tokens)
        first = len(self._prompt) - found[0].shape[1]
        apart = torch.stack([_residual(f, o[:, first:]) for f, o in zip(found, self._original, strict=True)])
        return torch.nn.functional.pad(apart, (first, 0))

    def _outputs(self, place: int, tokens: Int[Tensor, " B"]) -> list[Float[Tensor, "B s w"]]:
        if self._prefix is None:
            changed = self._prompt.repeat(len(tokens), 1)
            changed[:, place] = tokens
            return outputs(self._lens, self._slice, changed)
        there = self._prompt.to(self._lens.device)
        if place > self._prefix.length:
            self._prefix.extend(there[None, self._prefix.length : place])
        changed = there[place:].repeat(len(tokens), 1)
        changed[:, 0] = tokens.to(there.device)
        with torch.no_grad():
            joined = self._prefix.following(changed)
        return list(joined.split(self._widths, dim=-1))


def _residual(found: Float[Tensor, "B s w"], original: Float[Tensor, "1 s w"]) -> Float[Tensor, "B s"]:
    apart: Tensor = (found - original).norm(dim=-1) / original.norm(dim=-1).clamp_min(1e-30)
    return apart
