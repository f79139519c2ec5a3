"""What may be given of a prompt in place of its text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import Registry

__all__ = ["GIVEN", "Embedding", "EmbeddingSlice", "Given", "NextToken", "NextTokenSlice", "States"]


@dataclass(frozen=True)
class Given(ABC):
    """Something that is known of a prompt.

    Attributes:
        sliced: whether the user says which slice of the model it comes from.
        ordered: whether it tells positions apart, so that it can be inverted from left to right.
    """

    sliced: ClassVar[bool] = False
    ordered: ClassVar[bool] = False

    @abstractmethod
    def on(self, lens: Lens, wanted: Slice) -> SlicedModel:
        """What runs prompts to that which is given."""


GIVEN: Registry[type[Given]] = Registry("given", None)
"""All things that may be given, by name."""


@GIVEN.register("states")
class States(Given):
    """The output of a slice."""

    sliced: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    def on(self, lens: Lens, wanted: Slice) -> SlicedModel:
        """The slice on the model."""
        return wanted.on(lens)


class NextTokenSlice(SlicedModel):
    """The log-probabilities of the token after the prompt, [B, 1, V]: all that an interface that gives them shows."""

    def __init__(self, lens: Lens) -> None:
        super().__init__(Slice(sites=("head",), tokens="-1"), lens)

    def part(self, states: Tensor) -> Tensor:
        """Log-softmax of the last position's logits."""
        return F.log_softmax(super().part(states).float(), dim=-1)


@GIVEN.register("next-token")
class NextToken(Given):
    """The log-probabilities of the token after the prompt."""

    def on(self, lens: Lens, wanted: Slice) -> SlicedModel:
        """The whole model, up to its head."""
        return NextTokenSlice(lens)


class EmbeddingSlice(SlicedModel):
    """The mean over positions of the last block's output, of unit length, [B, 1, w]."""

    def __init__(self, lens: Lens) -> None:
        super().__init__(Slice(sites=(lens.match("block.*")[-1],), pool="mean"), lens)

    def part(self, states: Tensor) -> Tensor:
        """The pooled vector."""
        return F.normalize(super().part(states).float(), dim=-1)


@GIVEN.register("embedding")
class Embedding(Given):
    """The mean of the last block's states over the prompt, of unit length."""

    def on(self, lens: Lens, wanted: Slice) -> SlicedModel:
        """The whole model, pooled."""
        return EmbeddingSlice(lens)
