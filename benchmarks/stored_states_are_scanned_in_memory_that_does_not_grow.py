"""Stored states are scanned in memory that does not grow with them; what that costs beside reading
and one product.

A file .npy of float32 is read batch by batch, and of each batch are timed: its reading, its second
moment alone in float64, and headscan's pass (all sums, sinks, influences for the intervals), its
own reading included. CPU seconds of one thread, so that what else the machine does counts little;
the file is in the page cache, so the disk's speed is not in them. Peak memory is that of a process
of its own beyond what 4,096 vectors take.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from headscan.scanner.accumulate import Accumulation, accumulate
from headscan.states import stored_source


def write(path: Path, rows: int, width: int) -> None:
    """Rows with a common direction, in pieces."""
    generator = np.random.default_rng(0)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, width))
    for first in range(0, rows, 10_000):
        part = file[first : first + 10_000]
        part[:] = generator.standard_normal(part.shape, dtype=np.float32) + 0.5
    file.flush()


def take_turns(path: Path) -> dict[str, float]:
    """CPU seconds of reading, of the product and of headscan's pass, batch by batch."""
    torch.set_num_threads(1)
    source = stored_source(str(path))
    assert source is not None
    accumulated = Accumulation({"vectors": source.width("vectors")}, 0, intervals=True)
    moment = torch.zeros(source.width("vectors"), source.width("vectors"), dtype=torch.float64)
    spent = {"read": 0.0, "product": 0.0, "scan": 0.0}

    def timed(stage: str, start: float) -> None:
        spent[stage] += time.process_time() - start

    for batch in source.batches():
        clock = time.process_time()
        states_of_batch = dict[str, torch.Tensor]()
        source.visit(batch, ("vectors",), states_of_batch.__setitem__)
        timed("read", clock)
        clock = time.process_time()
        rows = states_of_batch["vectors"].flatten(0, 1).double()
        moment += rows.T @ rows
        timed("product", clock)
        clock = time.process_time()
        accumulate(source, [batch], accumulated)
        timed("scan", clock)
    return spent


def peak(path: Path, tokens: int) -> float:
    """MB that a process of its own takes for so many rows beyond what its imports take."""
    code = (
        "import resource, sys, torch, headscan; torch.set_num_threads(1); "
        "headscan.scan(sys.argv[1], max_tokens=4096);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3);"
        "headscan.scan(sys.argv[1], max_tokens=int(sys.argv[2]));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(tokens)],
        capture_output=True,
        text=True,
        check=True,
    )
    small, large = map(float, done.stdout.split())
    return large - small


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=102_400)
    parser.add_argument("--width", type=int, default=768)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "states.npy"
        write(path, options.rows, options.width)
        spent = take_turns(path)
        peaks = {tokens: peak(path, tokens) for tokens in (options.rows // 4, options.rows)}
    bare = spent["read"] + spent["product"]
    print("| what | CPU seconds | vectors a second |")
    print("|---|---|---|")
    for name, seconds in (*spent.items(), ("read and product", bare)):
        print(f"| {name} | {seconds:.2f} | {options.rows / max(seconds, 1e-9):,.0f} |")
    print()
    print(
        f"Read and product in float64 are **{bare / spent['scan']:.0%}** of the scan (goal 80 %). "
        f"Width {options.width}."
    )
    peak_text = ", ".join(
        f"{megabytes:.0f} MB for {tokens:,}" for tokens, megabytes in peaks.items()
    )
    print(
        f"Memory beyond that of 4,096 vectors: {peak_text} (the larger file has "
        f"{options.rows * options.width * 4 / 1e6:,.0f} MB)."
    )


if __name__ == "__main__":
    main()
