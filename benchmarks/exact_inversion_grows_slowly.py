"""The cost of exact inversion grows slowly with vocabulary, width, depth and length.

Random Llamas around V = 4,096, d = 256, 4 blocks, 8 tokens, one property changed at a time; 4 prompts each, all together.
Candidates a token, milliseconds a token (processor time, one thread), and the table, which is the part that grows with
the vocabulary.
"""

from __future__ import annotations

import time

import torch
from _inversion import random_model

from headscan.inversion.exact import exact
from headscan.inversion.table import table_of
from headscan.model.slices import Slice

BASE = {"vocabulary": 4096, "width": 256, "depth": 4, "length": 8}
SWEEPS = {
    "vocabulary": (512, 2048, 8192, 32768),
    "width": (64, 128, 512),
    "depth": (1, 2, 8, 16),
    "length": (2, 32, 128),
}


def main() -> None:
    torch.set_num_threads(1)
    print("| changed | V | d | blocks | length | accuracy | candidates a token | most | ms a token | table | |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, values in [("", (None,)), *SWEEPS.items()]:
        for value in values:
            here = BASE | ({name: value} if name else {})
            lens = random_model("llama", here["vocabulary"], here["width"], here["depth"])
            shape = (4, here["length"])
            ids = torch.randint(0, here["vocabulary"], shape, generator=torch.Generator().manual_seed(1))
            cut = Slice(sites=(f"block.{here['depth'] - 1}",)).on(lens)
            target = cut.run(ids)
            start = time.process_time()
            table_of(cut, keep=False)
            built = time.process_time() - start
            start = time.process_time()
            found = exact(cut, list(target))
            spent = 1000 * (time.process_time() - start) / ids.numel()
            tried = [n for one in found for n in one.evaluations]
            right = float((torch.tensor([one.tokens for one in found]) == ids).float().mean())
            print(
                f"| {name or 'nothing'} | {here['vocabulary']} | {here['width']} | {here['depth']} | {here['length']} "
                f"| {right:.3f} | {sum(tried) / len(tried):.0f} | {max(tried)} | {spent:.1f} | {built:.2f} s "
                f"| {'█' * max(1, round(spent / 2))} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
