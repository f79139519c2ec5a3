"""Copies between the CPU and an accelerator that neither of the two waits for."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; the CPU does not wait for the copy of its own tensor."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def sent_together(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return tensors of the CPU on a device, where all of them go in one copy."""
    if device.type == "cpu":
        return list(tensors)
    # The widest numbers come first, so that all begin at a multiple of their size.
    order = sorted(range(len(tensors)), key=lambda index: -tensors[index].itemsize)
    pieces = [tensors[index].contiguous().flatten().view(torch.uint8) for index in order]
    together = sent(torch.cat(pieces), device)
    arrived: dict[int, Tensor] = {}
    for index, piece in zip(order, together.split([len(piece) for piece in pieces]), strict=True):
        original = tensors[index]
        arrived[index] = piece.view(original.dtype).view(original.shape)
    return [arrived[index] for index in range(len(tensors))]


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
