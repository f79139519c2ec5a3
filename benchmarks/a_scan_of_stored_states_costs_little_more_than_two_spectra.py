"""A scan of stored states costs little more than two spectra a site.

Three sites of Gaussian vectors whose deviations fall from 1 to 0.05, float32 in .safetensors:

- *obvious*: a Gram matrix in float64, the eigenvalues of the second moment and of the covariance,
  and the average cosine from the sum of unit vectors;
- *scan*: `headscan.scan`, with all core measures, their intervals, sinks, the picture and the
  numbers at shorter lengths;
- *windows*: the same of vectors in windows of 128, where every number comes without first positions
  as well, so that each site has two second moments.

Processor seconds of one thread, the least of some rounds in turn. Argument: rounds (3).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from _table import show
from safetensors.torch import load_file, save_file

import headscan

SIZES = ((4096, 1024, 1.7), (4096, 2048, 1.4), (8192, 4096, 1.2))
"""Vectors, width, and the ratio that was asked for."""
SITES = 3
WINDOW = 128


def write(folder: Path, count: int, width: int) -> tuple[Path, Path]:
    """Write the vectors of all sites, flat and in windows."""
    generator = torch.Generator().manual_seed(1)
    deviations = torch.linspace(1, 0.05, width)
    sites = {}
    for number in range(SITES):
        vectors = torch.randn(count, width, generator=generator) * deviations
        sites[f"site{number}"] = vectors + 0.1 * number
    flat = folder / "flat.safetensors"
    windows = folder / "windows.safetensors"
    save_file(sites, flat)
    save_file({site: x.view(-1, WINDOW, width) for site, x in sites.items()}, windows)
    return flat, windows


def obvious(path: Path) -> None:
    """Two spectra and the average cosine of each site."""
    for vectors in load_file(path).values():
        rows = vectors.double()
        count = len(rows)
        second_moment = (rows.T @ rows).div_(count)
        mean = rows.mean(0)
        torch.linalg.eigvalsh(second_moment)
        torch.linalg.eigvalsh(second_moment - torch.outer(mean, mean))
        unit_sum = (rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)).sum(0)
        float(unit_sum @ unit_sum - count) / (count * (count - 1))


def seconds(work: Callable[[Path], object], path: Path) -> float:
    """Processor seconds of one call."""
    start = time.process_time()
    work(path)
    return time.process_time() - start


def main() -> None:
    """Print a row for each size."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    torch.set_num_threads(1)
    records = []
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), 256, 64)
        headscan.scan(Path(folder) / "flat.safetensors")  # imports are not counted
        for count, width, asked in SIZES:
            flat, windows = write(Path(folder), count, width)
            least = dict.fromkeys(("obvious", "scan", "windows"), float("inf"))
            for _ in range(rounds):
                least["obvious"] = min(least["obvious"], seconds(obvious, flat))
                least["scan"] = min(least["scan"], seconds(headscan.scan, flat))
                least["windows"] = min(least["windows"], seconds(headscan.scan, windows))
            records.append(
                {
                    "vectors": count,
                    "width": width,
                    **{f"{name} (s)": least[name] for name in least},
                    "scan / obvious": least["scan"] / least["obvious"],
                    "asked": asked,
                    "windows / obvious": least["windows"] / least["obvious"],
                }
            )
    show(records)


if __name__ == "__main__":
    main()
