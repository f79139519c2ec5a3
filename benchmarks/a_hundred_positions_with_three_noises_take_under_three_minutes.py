"""A hundred positions with three noises take under three minutes on one core; 50,000 tokens are
bounded by their likeliest.

    python benchmarks/a_hundred_positions_with_three_noises_take_under_three_minutes.py
    [positions|vocabulary]

positions: stories260K, all five blocks, five windows of 20 counted tokens, the model's prior, all
512 candidates, as `headscan privacy` does it unasked. vocabulary: a GPT-2 of V = 50,257 with random
weights whose prior is that of a language (Zipf's, by the prior "text"), by 256, 1,024 and 4,096
candidates: the bounds with what the others may add. Seconds are of the processor.
"""

from __future__ import annotations

import sys
import time

import torch
from _inversion import ASSETS, random_model, story

import headscan
from headscan.leaks.bounds import leak_bounds
from headscan.leaks.priors import cut_prior
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import Prefix

NOISES = (0.4, 0.8, 1.6)


def positions() -> None:
    """The verb as it is."""
    begun = time.process_time()
    model = str(ASSETS / "models" / "stories260K")
    result = headscan.privacy(model, [story()], noise=NOISES, start="none")
    spent = time.process_time() - begun
    print(f"{result.rows[0].tokens} positions, {len(result.rows)} rows: **{spent:.0f} s** (180)\n")
    print(
        "| site | noise | prior | at least | truth | at most | attack | ceiling | nats lost |\n|"
        + 9 * "---|"
    )
    for row in result.rows:
        print(
            f"| {row.site} | {row.noise} | {row.prior_bits:.3f} | {row.bits_lower:.3f} | "
            f"{row.bits_truth:.3f} | {row.bits_upper:.3f} | {row.attack_accuracy:.1%} | "
            f"{row.attack_accuracy_upper:.1%} | {row.loss_added:.2f} |"
        )


@torch.no_grad()
def vocabulary() -> None:
    """Truncated candidates of a long vocabulary."""
    lens = random_model("gpt2", 50257, 128, 2, 4)
    cut = Slice(sites=("block.1",)).on(lens)
    ids = torch.randint(0, 50257, (1, 12), generator=torch.Generator().manual_seed(0))
    shares = 1 / torch.arange(1, 50258, dtype=torch.float64)
    shares = (shares / shares.sum())[
        torch.randperm(50257, generator=torch.Generator().manual_seed(1))
    ]
    rms = float(cut.run(ids)[0].var(0).mean().sqrt())
    prefix = Prefix(cut, ids)
    print("\nV = 50,257, Zipf's prior, one position after 12 tokens; bits\n")
    print(
        "| candidates | kept | noise | at least | at most | of | paid for the others | s |\n|"
        + 8 * "---|"
    )
    for most in (256, 1024, 4096):
        begun = time.process_time()
        tokens, coded = cut_prior(shares, most)
        code = coded(prefix.evaluate(torch.zeros_like(tokens), tokens))
        bounds = leak_bounds(code, [noise * rms for noise in NOISES])
        spent = time.process_time() - begun
        for noise, bits_bound in zip(NOISES, bounds, strict=True):
            print(
                f"| {most} | {code.kept:.3f} | {noise} | {bits_bound.lower:.2f} | "
                f"{bits_bound.upper:.2f} | {code.entropy:.2f} | {code.tail:.2f} | {spent:.1f} |"
            )


if __name__ == "__main__":
    for name in sys.argv[1:] or ("positions", "vocabulary"):
        {"positions": positions, "vocabulary": vocabulary}[name]()
