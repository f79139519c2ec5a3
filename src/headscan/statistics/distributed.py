"""Accumulators of several processes of one `torch.distributed` group: who is who, and the merge."""

from typing import TypeVar

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from headscan.statistics.accumulator import Accumulator

A = TypeVar("A", bound=Accumulator)


def process_count() -> int:
    """Return the number of processes of the running `torch.distributed` group; 1 outside of one."""
    return dist.get_world_size() if _in_group() else 1


def process_rank() -> int:
    """Return this process's rank in the running `torch.distributed` group; 0 outside of one."""
    return dist.get_rank() if _in_group() else 0


def _in_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def same_everywhere(text: str) -> str:
    """Return process 0's text on all processes, each of which waits for the others.

    Outside of a process group it is the text itself.
    """
    texts: list[object] = [text]
    if process_count() > 1:
        dist.broadcast_object_list(texts, 0, device=_device())
        dist.barrier()
    return str(texts[0])


def agreed(number: int) -> int:
    """Return process 0's number on all processes; outside of a process group the number itself."""
    if process_count() == 1:
        return number
    message = torch.tensor([number], device=_device())
    dist.broadcast(message, 0)
    return int(message)


def merged(accumulator: A) -> A:
    """Return the merge of every process's accumulator, complete on process 0.

    The other processes hold a part of it. At step s, process r + s sends to process r: log2(n)
    steps, and no process holds more than two states at a time.
    """
    rank = process_rank()
    count = process_count()
    step = 1
    while step < count:
        if rank % (2 * step) == step:
            _send(accumulator, rank - step)
            break
        if rank % (2 * step) == 0 and rank + step < count:
            received = accumulator.restored(_receive(rank + step))
            accumulator.merge(received)
        step *= 2
    return accumulator


def _device() -> torch.device:
    """Return the device that the group's messages must lie on."""
    if dist.get_backend() in ("gloo", "mpi"):
        return torch.device("cpu")
    return torch.device(torch.accelerator.current_accelerator() or "cpu")


def _send(accumulator: Accumulator, rank: int) -> None:
    state = {name: tensor.contiguous().cpu() for name, tensor in accumulator.state().items()}
    data = bytearray(save(state))
    payload = torch.frombuffer(data, dtype=torch.uint8).to(_device())
    dist.send(torch.tensor([len(payload)], device=_device()), rank)
    dist.send(payload, rank)


def _receive(rank: int) -> dict[str, Tensor]:
    length = torch.zeros(1, dtype=torch.int64, device=_device())
    dist.recv(length, rank)
    payload = torch.zeros(int(length), dtype=torch.uint8, device=_device())
    dist.recv(payload, rank)
    return load(payload.cpu().numpy().tobytes())
