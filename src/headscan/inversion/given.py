"""What may be given of a prompt in place of its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import Registry

__all__ = ["GIVEN", "EmbeddingSlice", "Given", "NextTokenSlice"]


@dataclass(frozen=True)
class Given:
    """Something that is known of a prompt.

    Attributes:
        about: what it is, in words.
        on: what runs prompts to it, from a model and the slice that the user wants.
        sliced: whether the user says which slice of the model it comes from.
        ordered: whether it tells positions apart, so that it can be inverted from left to right.
    """

    about: str
    on: Callable[[Lens, Slice], SlicedModel]
    sliced: bool = False
    ordered: bool = False


class NextTokenSlice(SlicedModel):
    """The log-probabilities of the token after the prompt, [B, 1, V]: all that an interface that gives them shows."""

    def __init__(self, lens: Lens) -> None:
        super().__init__(Slice(sites=("head",), tokens="-1"), lens)

    def states(self, *args: Any, **options: Any) -> Tensor:
        """Log-softmax of the logits, at every position, so that what judges tokens behind a prefix sees what is given."""
        return F.log_softmax(super().states(*args, **options).float(), dim=-1)


class EmbeddingSlice(SlicedModel):
    """The mean over positions of the last block's output, of unit length, [B, 1, w]."""

    def __init__(self, lens: Lens) -> None:
        super().__init__(Slice(sites=(lens.match("block.*")[-1],), pool="mean"), lens)

    def part(self, states: Tensor) -> Tensor:
        """The pooled vector."""
        return F.normalize(super().part(states).float(), dim=-1)


GIVEN: Registry[Given] = Registry("given", None)
"""All things that may be given, by name."""
GIVEN.add("states", Given("The output of a slice.", lambda lens, wanted: wanted.on(lens), sliced=True, ordered=True))
GIVEN.add("next-token", Given("The log-probabilities of the token after it.", lambda lens, _: NextTokenSlice(lens)))
GIVEN.add(
    "embedding", Given("The mean of the last block's states, of unit length.", lambda lens, _: EmbeddingSlice(lens))
)
