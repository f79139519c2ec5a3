"""The same statistics from many processes: states travel as safetensors bytes and are merged along a binary tree."""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from headscan.statistics.accumulator import Accumulator

__all__ = ["merged", "process_count", "process_rank", "same_everywhere"]

A = TypeVar("A", bound=Accumulator)


def process_count() -> int:
    """Number of processes of the running `torch.distributed` group; 1 outside of one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_rank() -> int:
    """Number of this process in the running `torch.distributed` group; 0 outside of one."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def same_everywhere(word: str) -> str:
    """Process 0's word, on all; each waits for the others. Outside of a process group the word itself."""
    words: list[object] = [word]
    if process_count() > 1:
        dist.broadcast_object_list(words, 0, device=_device())
        dist.barrier()
    return str(words[0])


def merged(mine: A) -> A:
    """The merge of every process's accumulator, complete on process 0 (others hold a part of it).

    At step s, process r + s sends to process r: log2(n) steps, and each process sends its state once, so no process
    holds more than two states at a time. Without a process group the accumulator itself comes back.
    """
    rank, count = process_rank(), process_count()
    step = 1
    while step < count:
        if rank % (2 * step) == step:
            _send(mine, rank - step)
            break
        if rank % (2 * step) == 0 and rank + step < count:
            mine.merge(_receive(type(mine), rank + step))
        step *= 2
    return mine


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def _send(accumulator: Accumulator, to: int) -> None:
    data = save({name: tensor.contiguous().cpu() for name, tensor in accumulator.state().items()})
    payload = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(_device())
    dist.send(torch.tensor([len(payload)], device=_device()), to)
    dist.send(payload, to)


def _receive(kind: type[A], source: int) -> A:
    length = torch.zeros(1, dtype=torch.int64, device=_device())
    dist.recv(length, source)
    payload = torch.zeros(int(length), dtype=torch.uint8, device=_device())
    dist.recv(payload, source)
    state: dict[str, Tensor] = load(payload.cpu().numpy().tobytes())
    return kind.restore(state)
