"""Hold a saved-to-memory scan against brute force on a real model and text: all pairs, all rows at
once, float64.

    python scripts/verify_scan.py MODEL TEXT [--tokens 40000] [--context 128]

The brute force is `tests/reference/geometry.py` on hidden states straight from transformers (those
of the first and the last site that transformers itself returns unchanged: the embedding, every
block but the last, the final norm). Prints the largest relative difference of every field over all
sites; singular values relative to the largest. Time grows with the square of the tokens: the suite
does the same with 1,536 tokens.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import headscan
from headscan.text import Windows
from tests.reference import geometry as reference


def main() -> None:
    """Scan, compute by brute force, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=40_000)
    parser.add_argument("--context", type=int, default=128)
    options = parser.parse_args()
    lens = headscan.Lens.load(options.model)
    measures = ",".join(reference.SCALARS)
    result = headscan.scan(
        lens, options.text, context=options.context, max_tokens=options.tokens, measures=measures
    )
    windows = Windows(
        options.text, lens.require_tokenizer(), options.context, max_tokens=options.tokens
    )
    rows = torch.from_numpy(np.stack([window.ids for window in windows]))
    body = lens.model.base_model
    with torch.no_grad():
        states = [
            torch.cat(layer)
            for layer in zip(
                *(
                    body(input_ids=part, output_hidden_states=True).hidden_states
                    for part in rows.split(16)
                ),
                strict=True,
            )
        ]
    has_norm = "final_norm" in lens.sites
    sites = ["embedding"] + [f"block.{i}" for i in range(len(states) - 1)]
    if has_norm:
        sites[-1] = "final_norm"
    worst: dict[str, float] = {}
    for site, layer in zip(sites, states, strict=True):
        entry = result.site(site)
        for suffix, part in (("", layer), ("_without_first", layer[:, 1:])):
            x = part.reshape(-1, part.shape[-1]).double().numpy()
            for name, slow in reference.SCALARS.items():
                difference = abs(entry[name + suffix] / slow(x) - 1)
                worst[name + suffix] = max(worst.get(name + suffix, 0.0), difference)
            values = reference.singular_values(x)
            difference = float(
                np.abs(np.array(entry["singular_values" + suffix]) - values).max() / values[0]
            )
            worst["singular_values" + suffix] = max(
                worst.get("singular_values" + suffix, 0.0), difference
            )
        print(f"{site}: {x.shape[0]:,} rows of {x.shape[1]} compared", file=sys.stderr)
    for name, difference in worst.items():
        print(f"{name:40} {difference:.1e}")


if __name__ == "__main__":
    main()
