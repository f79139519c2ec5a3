"""Helpers of the benchmarks of losses: Zipfian targets, a fair clock, peak memory of one call in
its own process.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from headscan.training import ce_loss, cwt_loss

POSITIONS_PER_TARGET = 1 / 0.15  # a masked model predicts 15 % of its positions

VARIANTS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "CWT unique": lambda hidden, table, targets: cwt_loss(hidden, table, targets, form="unique"),
    "CWT unique, sparse gradient": lambda hidden, table, targets: cwt_loss(
        hidden, table, targets, sparse=True
    ),
    "CWT chunked": lambda hidden, table, targets: cwt_loss(hidden, table, targets, form="chunked"),
    "CWT fused": lambda hidden, table, targets: cwt_loss(hidden, table, targets, form="fused"),
    "CWT dense": lambda hidden, table, targets: cwt_loss(hidden, table, targets, form="dense"),
    "CE gathered, logits kept": lambda hidden, table, targets: ce_loss(
        hidden, table, targets, form="full"
    ),
    "CE gathered, chunked": lambda hidden, table, targets: ce_loss(
        hidden, table, targets, form="chunked"
    ),
    "CE gathered, fused": lambda hidden, table, targets: ce_loss(
        hidden, table, targets, form="fused"
    ),
}


def problem(
    rows: int, vocabulary: int, width: int, device: str = "cpu", dtype=torch.float32, seed: int = 0
):
    """hidden [K, d], table [V, d], targets [K] drawn by Zipf and Mandelbrot's law (s = 1.05, shift
    2.7).
    """
    generator = torch.Generator().manual_seed(seed)
    law = 1 / (torch.arange(1, vocabulary + 1).double() + 2.7) ** 1.05
    targets = torch.multinomial(law, rows, replacement=True, generator=generator)
    hidden = torch.randn(rows, width, generator=generator)
    table = 0.02 * torch.randn(vocabulary, width, generator=generator)
    return (
        hidden.to(device, dtype).requires_grad_(),
        table.to(device, dtype).requires_grad_(),
        targets.to(device),
    )


def full_positions(
    hidden: torch.Tensor, table: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Return the loss as most masked models run it: all positions are projected, and the unmasked
    ones are ignored.
    """
    positions = round(len(targets) * POSITIONS_PER_TARGET)
    labels = torch.full((positions,), -100, device=targets.device)
    labels[: len(targets)] = targets
    everything = hidden.repeat(positions // len(targets) + 1, 1)[:positions]
    return projected_everywhere(everything, table, labels)


def projected_everywhere(
    hidden: torch.Tensor, table: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Cross-entropy the unthrifty way: every position [..., d] is projected, and those labelled
    -100 are then ignored.
    """
    return torch.nn.functional.cross_entropy((hidden @ table.T).flatten(0, -2), labels.flatten())


def step(variant: Callable, hidden, table, targets) -> float:
    """Seconds of loss, forward and backward, with the dense [V, d] gradient of the table
    made anew.
    """
    hidden.grad = table.grad = None
    if hidden.is_cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    variant(hidden, table, targets).backward()
    if hidden.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def medians(
    names: list[str],
    rows: int,
    vocabulary: int,
    width: int,
    repeats: int,
    device="cpu",
    dtype=torch.float32,
):
    """Median seconds of each variant; the variants take turns, so that another load on the machine
    hits all alike.
    """
    arguments = problem(rows, vocabulary, width, device, dtype)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats + 1):
        # Another order each turn: what runs after a large loss finds cold caches and pays for
        # returned memory.
        for name in random.Random(turn).sample(names, len(names)):
            seconds = step(variant_of(name), *arguments)
            if turn:  # the first turn warms caches and allocators
                times[name].append(seconds)
    return {name: statistics.median(repetitions) for name, repetitions in times.items()}


def variant_of(name: str) -> Callable:
    """The loss of that name."""
    return full_positions if name == "CE on all positions" else VARIANTS[name]


def with_lookup(variant: Callable) -> Callable:
    """Return the same loss in the smallest model there is: its hidden states begin as rows of the
    same table.

    Every language model looks its tokens up, and the table's gradient from there is dense; a loss
    that brings a second dense one needs both at once until autograd has added them up.
    """

    def loss(hidden: torch.Tensor, table: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return variant(
            hidden + torch.nn.functional.embedding(targets.flip(0), table), table, targets
        )

    return loss


def peak_mib(name: str, rows: int, vocabulary: int, width: int, lookup: bool = False) -> float:
    """Peak resident memory (MiB) that loss, forward and backward, add to inputs and parameters; its
    own process.

    lookup: see `with_lookup`.
    """
    if torch.cuda.is_available():
        arguments = problem(rows, vocabulary, width, "cuda", torch.bfloat16)
        torch.cuda.reset_peak_memory_stats()
        bytes_before = torch.cuda.memory_allocated()
        step(with_lookup(variant_of(name)) if lookup else variant_of(name), *arguments)
        return (torch.cuda.max_memory_allocated() - bytes_before) / 2**20
    command = [
        sys.executable,
        str(Path(__file__)),
        name,
        str(rows),
        str(vocabulary),
        str(width),
        str(int(lookup)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    return json.loads(done.stdout)


def _measure_here(name: str, rows: int, vocabulary: int, width: int, lookup: int) -> float:
    variant = with_lookup(variant_of(name)) if lookup else variant_of(name)
    # A small loss first, so that libraries and thread pools are loaded before the count starts.
    step(variant, *problem(8, 64, width))
    arguments = problem(rows, vocabulary, width)
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is resident now
    memory_before = _status("VmRSS")
    step(variant, *arguments)
    return (_status("VmHWM") - memory_before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


def machine() -> str:
    """One line on where the figures come from."""
    where = torch.cuda.get_device_name() + ", bf16" if torch.cuda.is_available() else "CPU, float32"
    return (
        f"torch {torch.__version__}, {where}, {torch.get_num_threads()} thread(s), load "
        f"{os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(_measure_here(sys.argv[1], *map(int, sys.argv[2:6]))))
