"""The base class of accumulators: sums that merge, and are stored and read back bit for bit."""

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor


class Accumulator:
    """A commutative monoid over data: ``merge`` is its addition, a fresh instance its zero.

    ``type(a).restore(a.state())`` equals ``a`` bit for bit. A state consists of tensors only, so
    safetensors can store it and processes can send it. A subclass writes `merge`, `state` and
    `restore` for its own fields; the state of an accumulator inside another one is stored under the
    field's name (`prefixed`).
    """

    def merge(self, other: Self) -> None:
        """Add all the data of `other` to this accumulator; `other` is left as it was."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that this accumulator consists of, by name."""
        raise NotImplementedError

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """Return the accumulator with this state, on the device of its tensors."""
        raise NotImplementedError

    def restored(self, state: dict[str, Tensor]) -> Self:
        """Return an accumulator constructed like this one, with another state."""
        return type(self).restore(state)


def prefixed(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return `state` with its names under a prefix: `unit` becomes `prefix/unit`."""
    return {f"{prefix}/{name}": tensor for name, tensor in state.items()}


def unprefixed(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the part of `state` under a prefix, with the prefix taken off."""
    start = prefix + "/"
    return {
        name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)
    }


def device_of(state: Mapping[str, Tensor]) -> torch.device:
    """Return the device of a state: an accelerator where any of its tensors is on one."""
    for tensor in state.values():
        if tensor.device.type != "cpu":
            return tensor.device
    return torch.device("cpu")
