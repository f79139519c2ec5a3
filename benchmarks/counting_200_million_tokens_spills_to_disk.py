"""200 million tokens are counted with 4 GiB for grouping, the rest of it spilt to disk; the result
takes more than that

The tokens lie on disk as they would after tokenising; the process's peak of resident memory (which
includes the result, the mapped pages of that file and the libraries) is told beside the limit.

    python benchmarks/counting_200_million_tokens_spills_to_disk.py [--tokens 200000000] [--memory
    4GiB]
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from _table import show

from headscan.text.counts import count_tokens
from headscan.text.source import Counting, parse_bytes
from headscan.text.token_store import TokenStore

ORDER = 3
VOCABULARY = 32_768


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder_name:
        folder = Path(folder_name)
        rng = np.random.default_rng(0)
        with (folder / "tokens.bin").open("wb") as file:
            for _ in range(0, options.tokens, 10_000_000):
                drawn = VOCABULARY ** rng.random(min(10_000_000, options.tokens)) - 1
                np.minimum(drawn.astype(np.uint16), VOCABULARY - 1).tofile(file)
        tokens = np.memmap(folder / "tokens.bin", dtype=np.uint16, mode="r")
        store = TokenStore(tokens, np.zeros(1, dtype=np.int64), VOCABULARY)
        started = time.perf_counter()
        counts = count_tokens(store, Counting(order=ORDER, memory=options.memory), work=folder)
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        size = (
            counts.contexts.nbytes
            + counts.indptr.nbytes
            + counts.indices.nbytes
            + counts.counts.nbytes
        )
        record = {
            "tokens": len(tokens),
            "s": seconds,
            "million tokens/s": len(tokens) / seconds / 1e6,
            "limit GiB": parse_bytes(options.memory) / 2**30,
            "peak GiB": peak / 2**30,
            "result GiB": size / 2**30,
            "load": os.getloadavg()[0],
        }
    show([record])


if __name__ == "__main__":
    main()
