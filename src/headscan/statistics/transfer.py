"""Copies between the CPU and an accelerator that neither of the two waits for."""

from collections.abc import Callable

import torch
from torch import Tensor


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; the CPU does not wait for the copy of its own tensor."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def fetched(tensor: Tensor, dtype: torch.dtype | None = None) -> Callable[[], Tensor]:
    """Start the copy of a tensor to the CPU, and return a function that gives it.

    The function waits until the copy has arrived, and converts it to `dtype`.
    """
    if tensor.device.type == "cpu":
        return lambda: tensor.to(dtype or tensor.dtype)
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    event = torch.Event(tensor.device)
    copy.copy_(tensor, non_blocking=True)
    event.record()

    def arrived() -> Tensor:
        event.synchronize()
        return copy.to(dtype or copy.dtype)

    return arrived
