"""What comparing all layers of two models costs beside their two forward passes: the goal is 1.6
times these.

    python benchmarks/what_comparing_all_layers_costs_beside_the_passes.py [--tokens 65536] [--cases
    '7 x 7']

Seven sites by seven: gpt-vanilla and gpt-headless (d = 128, 5 blocks), as they ship. Twelve by
twelve: two GPT-2s of 12 blocks, d = 256, random weights. Processor time of one thread: the two
models run on the text alone, then `headscan compare` on it, all measures, intervals and 99
permutations; of what it takes beyond the passes a part does not grow with the text, which is given
by a second run on a quarter of it.
"""

from __future__ import annotations

import argparse
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import headscan
from headscan.model import Lens
from headscan.model.tokenizer import load_tokenizer
from headscan.text import Windows, batches

CONTEXT = 128


def alone(lenses: list[Lens], text: str, tokens: int, sites: str) -> float:
    """Seconds of the forward passes, tokenising included."""
    start = time.process_time()
    for lens in lenses:
        windows = Windows(text, lens.require_tokenizer(), CONTEXT, max_tokens=tokens)
        for batch in batches(windows, 2048 // CONTEXT):
            lens.run(torch.from_numpy(batch.ids), sites=sites, each=lambda _site, _states: None)
    return time.process_time() - start


def compared(lenses: list[Lens], text: str, tokens: int, sites: str) -> float:
    start = time.process_time()
    headscan.compare(lenses, text, context=CONTEXT, max_tokens=tokens, sites=sites)
    return time.process_time() - start


def twelve() -> list[Lens]:
    tokenizer = load_tokenizer("gpt-vanilla")
    config = GPT2Config(vocab_size=4096, n_positions=CONTEXT, n_embd=256, n_layer=12, n_head=4)
    lenses = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        lenses.append(Lens(GPT2LMHeadModel(config).eval(), tokenizer, name=f"gpt2 {seed}"))
    return lenses


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", required=True, help="a text of enough tokens")
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument(
        "--cases", default="7 x 7,12 x 12", help="which of the two, comma-separated"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = {
        "7 x 7": (
            [Lens.load(name) for name in ("gpt-vanilla", "gpt-headless")],
            "embedding,block.?,final_norm",
        ),
        "12 x 12": (twelve(), "block.?,block.1?"),
    }
    print("| sites | tokens | two passes, s | compare, s | ratio | of it whatever the length, s |")
    print("|---|---|---|---|---|---|")
    for name, (lenses, sites) in (
        (name, case) for name, case in cases.items() if name in options.cases
    ):
        few = options.tokens // 4
        alone(lenses, options.text, 2048, sites)
        small = [
            alone(lenses, options.text, few, sites),
            compared(lenses, options.text, few, sites),
        ]
        large = [
            alone(lenses, options.text, options.tokens, sites),
            compared(lenses, options.text, options.tokens, sites),
        ]
        beyond = [small[1] - small[0], large[1] - large[0]]
        fixed = beyond[0] - (beyond[1] - beyond[0]) / 3
        print(
            f"| {name} | {options.tokens:,} | {large[0]:.1f} | {large[1]:.1f} | "
            f"{large[1] / large[0]:.2f} | {fixed:.1f} |"
        )


if __name__ == "__main__":
    main()
