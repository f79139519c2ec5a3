"""IsoScore is more than 10 times faster than version 1 of the IsoScore package, and some 4 times faster than version 2.

5,000 x 768 Gaussian vectors with uneven variances, one thread, float32 and float64. *Version 1.0*: the package as it came
with the paper (a full principal component analysis; its points are columns); its only module is downloaded into a
temporary folder. *Version 2.0.1*: the installed one (a covariance and its singular values). *syrk*: `isoscore_of_rows`,
(PR − 1)/(d − 1) from one symmetric product in float32. *syrk, double*: the same in float64. All in one run, in
alternation, medians of 5.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from IsoScore.IsoScore import IsoScore
from threadpoolctl import threadpool_limits

from headscan.measures import isoscore, isoscore_of_rows
from headscan.statistics.cloud import Cloud


def version_1(folder: str):
    """The package's first version, from its wheel on the package index; nothing is installed."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, "IsoScore==1.0"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    spec = importlib.util.spec_from_file_location("isoscore_1", Path(folder) / "IsoScore" / "IsoScore.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.IsoScore


def main() -> None:
    torch.set_num_threads(1)
    double = np.random.default_rng(0).standard_normal((5000, 768)) * np.linspace(1, 3, 768)
    exact = isoscore(Cloud.of_rows(double))
    assert exact is not None
    with tempfile.TemporaryDirectory() as folder:
        first = version_1(folder)
        print("| dtype | way | seconds | value − exact | × version 1.0 (goal 10) | × version 2.0.1 |")
        print("|---|---|---|---|---|---|")
        for x in (double.astype(np.float32), double):
            ways = {
                "version 1.0": lambda x=x: float(first(x.T)),
                "version 2.0.1": lambda x=x: float(IsoScore(x)),
                "syrk": lambda x=x: isoscore_of_rows(x),
                "syrk, double": lambda x=x: isoscore_of_rows(x, double=True),
            }
            times, values = defaultdict(list), {}
            with threadpool_limits(1):
                for _ in range(6):
                    for name, way in ways.items():
                        start = time.perf_counter()
                        values[name] = way()
                        times[name].append(time.perf_counter() - start)
            median = {name: float(np.median(found[1:])) for name, found in times.items()}
            for name in ways:
                print(
                    f"| {x.dtype} | {name} | {median[name]:.3f} | {values[name] - exact:+.1e} "
                    f"| {median['version 1.0'] / median[name]:.1f} | {median['version 2.0.1'] / median[name]:.1f} |"
                )
    single = torch.from_numpy(double.astype(np.float32))
    clocks = []
    for _ in range(5):
        start = time.perf_counter()
        single.T @ single
        clocks.append(time.perf_counter() - start)
    print(
        f"\nOne full product XᵀX in float32 takes {np.median(clocks):.3f} s here. Version 2 takes one such product and "
        "singular values; any exact way needs half a product, so 10 times faster than version 2 is out of reach at this "
        "shape."
    )


if __name__ == "__main__":
    main()
