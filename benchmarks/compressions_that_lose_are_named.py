"""Count how often `remedy --compress` finds a planted loss, and how often it calls noise a loss.

    python benchmarks/compressions_that_lose_are_named.py [--tries 20]

Planted: vectors about a far mean, for which bits without centring keep nothing and bits with
centring nearly all. Found is a try that names plain+binary as losing, does not name centre+binary,
and recommends a choice that is centred. Noise: queries that have nothing to do with their partners,
so that nothing can be lost; quiet is a try in which no compression is named.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import headscan

ROWS = 1200
WIDTH = 32
BUDGET = 16


def judged(seed: int, *, planted: bool) -> headscan.remedies.result.RemedyResult:
    draw = np.random.default_rng(seed)
    topics = draw.standard_normal((ROWS, WIDTH))
    mean = 30 * draw.standard_normal(WIDTH)
    documents = topics + 0.3 * draw.standard_normal((ROWS, WIDTH)) + mean
    queries = topics + mean if planted else draw.standard_normal((ROWS, WIDTH)) + mean
    return headscan.remedy(
        documents,
        partners=queries,
        held_out=ROWS // 2,
        remedies="centre",
        compress=BUDGET,
        seed=seed,
    )


def losing(result: headscan.remedies.result.RemedyResult) -> set[str]:
    """Return the compressions whose gain is significantly below 0."""
    names = set()
    for row in result.compressed:
        interval = row.interval("recall_at_1_gain")
        if interval is not None and interval[1] < 0:
            names.add(row.text("compression"))
    return names


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=20)
    tries = parser.parse_args().tries
    torch.set_num_threads(1)
    found = 0
    quiet = 0
    for seed in range(tries):
        result = judged(seed, planted=True)
        names = losing(result)
        named = "plain+binary" in names and "centre+binary" not in names
        found += named and not result.recommended.startswith("plain")
        quiet += not losing(judged(1000 + seed, planted=False))
    print(f"planted loss found: {found} of {tries}; noise called noise: {quiet} of {tries}")


if __name__ == "__main__":
    main()
