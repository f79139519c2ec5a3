"""Observations: what an attacker may have of a prompt in place of its text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import Registry


class NextTokenSlice(SlicedModel):
    """The log-probabilities of the token after the prompt, [B, 1, V].

    An interface that returns them shows no more.
    """

    def __init__(self, lens: Lens) -> None:
        super().__init__(Slice(sites=("head",), tokens="-1"), lens)

    def states(self, *args: Any, **options: Any) -> Tensor:
        return F.log_softmax(super().states(*args, **options).float(), dim=-1)


class EmbeddingSlice(SlicedModel):
    """The mean over positions of the last block's output, of unit length, [B, 1, w]."""

    def __init__(self, lens: Lens) -> None:
        last_block = lens.match("block.*")[-1]
        super().__init__(Slice(sites=(last_block,), pool="mean"), lens)

    def part(self, states: Tensor) -> Tensor:
        return F.normalize(super().part(states).float(), dim=-1)


@dataclass(frozen=True)
class Observation:
    """Something that is known of a prompt.

    Attributes:
        about: a sentence that says what it is.
        on: makes what runs prompts to it, of a model and the slice that the user names.
        sliced: whether the user says which slice of the model it comes from.
        ordered: whether it tells positions apart, so that it can be inverted from left to right.
    """

    about: str
    on: Callable[[Lens, Slice], SlicedModel]
    sliced: bool = False
    ordered: bool = False


def _sliced(lens: Lens, cut: Slice) -> SlicedModel:
    return cut.on(lens)


def _next_token(lens: Lens, _: Slice) -> SlicedModel:
    return NextTokenSlice(lens)


def _embedding(lens: Lens, _: Slice) -> SlicedModel:
    return EmbeddingSlice(lens)


OBSERVATIONS: Registry[Observation] = Registry("given")
"""All observations by name."""
OBSERVATIONS.add("states", Observation("The output of a slice.", _sliced, True, True))
OBSERVATIONS.add(
    "next-token", Observation("The log-probabilities of the token after it.", _next_token)
)
OBSERVATIONS.add(
    "embedding", Observation("The mean of the last block's states, of unit length.", _embedding)
)
