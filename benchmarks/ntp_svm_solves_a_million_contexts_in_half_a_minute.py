"""Claim: 128 characters with a million contexts to 1e-6 within 30 s; 1,000 words with 69,000 contexts to 1e-3 within 10 minutes.

On the sources of Python's own library: contexts of seven characters, contexts of two words. The gap is certified.

    OMP_NUM_THREADS=1 python benchmarks/ntp_svm_solves_a_million_contexts_in_half_a_minute.py [--case characters words]
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
from stdlib_text import characters, labels, tokens

from headscan.ntp import estimate_cost, svm

CASES = {
    "characters": (lambda: labels(tokens(characters(7_000_000), 128), 7, 128, 1_000_000), 1e-6),
    "words": (lambda: labels(tokens(characters(6_000_000), 1000, words=True), 2, 1000, 69_000), 1e-3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="*", default=list(CASES), choices=CASES)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    for case in options.case:
        make, gap = CASES[case]
        data = make()
        started, cpu = time.perf_counter(), time.process_time()
        found = svm(data, gap=gap)
        print(
            json.dumps(
                {
                    "case": case,
                    "vocabulary": data.vocabulary,
                    "seconds": round(time.perf_counter() - started, 1),
                    "processor_seconds": round(time.process_time() - cpu, 1),
                    **found.summary(),
                    "estimate": estimate_cost(data),
                    "load": round(os.getloadavg()[0], 2),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
