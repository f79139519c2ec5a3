"""The tail exponents of `headscan weights` are WeightWatcher's alpha to 1e-3 on the same matrices,
in less time.

The first matrices of a folder of safetensors (24 of all-mpnet-base-v2 unless FOLDER and NUMBER are
given) with 50 singular values at least, one thread. *headscan*: energies and the fit without its
100 samples. *WeightWatcher* (0.7.7, not among headscan's requirements): `analyze` of the same
matrices as linear layers, its defaults. Both in one run; seconds of the processor. Interval, fit
and controls come on top in headscan, and are timed beside.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn

from headscan.statistics.spectra import power_law
from headscan.weights import open_weights
from headscan.weights.run import measured

REAL = Path(os.environ.get("HEADSCAN_REAL", "~/.cache/headscan/real")).expanduser()


def main(folder: str, number: int) -> None:
    torch.set_num_threads(1)
    opened = open_weights(folder)
    matrices = [
        matrix
        for matrix in opened.matrices
        if min(matrix.shape) >= 50 and max(matrix.shape) <= 15_000
    ][:number]
    begun = time.process_time()
    mine = {matrix.name: power_law(matrix.measure(), draws=0) for matrix in matrices}
    fits = time.process_time() - begun
    begun = time.process_time()
    for matrix in matrices:
        measured(matrix, 0, nullcontext())
    own_seconds = time.process_time() - begun
    import weightwatcher

    logging.disable(logging.CRITICAL)
    layers = nn.ModuleDict()
    for matrix in matrices:
        layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
        layer.weight.data = opened.tensors[matrix.name][1][:].float()
        layers[matrix.name.replace(".", "/")] = layer
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        begun = time.process_time()
        details = weightwatcher.WeightWatcher(model=layers).analyze()
        their_seconds = time.process_time() - begun
    alphas = {
        str(name).replace("/", "."): alpha
        for name, alpha in zip(details.longname, details.alpha, strict=True)
    }
    apart = {
        name: abs(tail.exponent - alphas[name])
        for name, tail in mine.items()
        if tail is not None and name in alphas
    }
    print(
        "| matrices | largest difference of alpha | headscan, the fits | all numbers | "
        "WeightWatcher |\n|---|---|---|---|---|"
    )
    print(
        f"| {len(apart)} of {len(matrices)} | {max(apart.values()):.1e} | {fits:.1f} s | "
        f"{own_seconds:.1f} s | {their_seconds:.1f} s |"
    )
    print("beyond 1e-3:", [name for name, value in apart.items() if value > 1e-3])


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else str(REAL / "all-mpnet-base-v2"),
        int(sys.argv[2]) if len(sys.argv) > 2 else 24,
    )
