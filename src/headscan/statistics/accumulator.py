"""What every accumulator can do: be merged, and be written down as a flat dictionary of tensors and read back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

from torch import Tensor

__all__ = ["Accumulator", "prefixed", "unprefixed"]


class Accumulator(ABC):
    """A commutative monoid over data: ``merge`` is its addition, a fresh instance its zero.

    ``state()`` holds everything, as tensors only, so that it can be stored by safetensors (no pickle), sent between
    processes, and restored: ``type(a).restore(a.state())`` equals ``a`` bit for bit.
    """

    kinds: ClassVar[dict[str, type[Accumulator]]] = {}
    """Every class of accumulators by its name, plug-ins' too: what a stored state is restored by."""

    def __init_subclass__(cls) -> None:
        Accumulator.kinds[cls.__name__] = cls

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add to this accumulator all that `other` has seen; `other` is left as it was."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything this accumulator holds, as named tensors."""

    @classmethod
    @abstractmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The accumulator that `state()` described."""


def prefixed(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names of `state` moved under a prefix.

    >>> import torch
    >>> list(prefixed("rest", {"unit": torch.zeros(1)}))
    ['rest/unit']
    """
    return {f"{prefix}/{name}": tensor for name, tensor in state.items()}


def unprefixed(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of `state` under a prefix, with the prefix taken off."""
    start = prefix + "/"
    return {name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)}
