"""The NTP-SVM takes a million contexts of 128 characters to 1e-6 in 30 s, 69,000 of 1,000 words to
1e-3 in 10 minutes

On the sources of Python's own library: contexts of seven characters, contexts of two words. The gap
is certified.

    OMP_NUM_THREADS=1 python benchmarks/ntp_svm_solves_a_million_contexts_in_half_a_minute.py
    [--case characters words]
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from _stdlib_text import characters, labels, tokens
from _table import show

from headscan.ntp import svm

CASES = {
    "characters": (lambda: labels(tokens(characters(7_000_000), 128), 7, 128, 1_000_000), 1e-6),
    "words": (
        lambda: labels(tokens(characters(6_000_000), 1000, words=True), 2, 1000, 69_000),
        1e-3,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=CASES)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    records = []
    for case in options.case:
        make, gap = CASES[case]
        data = make()
        started = time.perf_counter()
        cpu = time.process_time()
        solution = svm(data, gap=gap)
        records.append(
            {
                "case": case,
                "V": data.vocabulary,
                "contexts": data.contexts,
                "supports": solution.distinct.contexts,
                "s": time.perf_counter() - started,
                "CPU s": time.process_time() - cpu,
                "certified gap": solution.gap,
                "iterations": solution.iterations,
                "rank": solution.rank,
                "load": os.getloadavg()[0],
            }
        )
    show(records)


if __name__ == "__main__":
    main()
