"""Devices: whether one of that name is there, which one "auto" means, and how much memory it has."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from headscan.run import BadInput

__all__ = ["check_device", "choose_device", "memory_of"]


def check_device(name: str) -> None:
    """Raise BadInput for a device that is unknown or absent from this machine."""
    kind, _, number = name.partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (number and (kind != "cuda" or not number.isdigit())):
        raise BadInput(f"There is no device '{name}'; choose auto, cpu, cuda, cuda:N or mps.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"The device '{name}' was asked for, but PyTorch finds no CUDA device on this machine.")
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise BadInput(
            f"The device '{name}' was asked for, but there are only {torch.cuda.device_count()} CUDA devices."
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise BadInput("The device 'mps' was asked for, but PyTorch finds no Apple GPU on this machine.")


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" is CUDA where there is any, else Apple's GPU, else the CPU."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def memory_of(device: torch.device) -> int:
    """The bytes of memory that a device has in all; of the CPU, what this process may use of them."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")] if hasattr(os, "sysconf") else [1 << 62]
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            found.append(int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue
    return min(found)
