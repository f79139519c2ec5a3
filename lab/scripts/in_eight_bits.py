"""Claims of the ledger on a model and on the same model with its matrices in 8 bits, as the article runs its Llamas.

Each row of a block's matrices is rounded to 255 even levels up to its largest number (LLM.int8()'s weights; embeddings, norms and
head stay as they are, and so do the inputs). A line a claim: what the model says, and what the rounded one says.

    python lab/scripts/in_eight_bits.py MODEL FOLDER CLAIM [CLAIM ...]      FOLDER is where the rounded model is saved
"""

from __future__ import annotations

import argparse

import torch
from headscan_lab.ledger.record import ClaimTrial, tried
from headscan_lab.ledger.run import all_claims
from transformers import AutoModelForCausalLM, AutoTokenizer


def rounded(source: str, folder: str) -> None:
    """Save the model of a folder with its blocks' matrices rounded."""
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with torch.no_grad():
        for layer in model.base_model.layers:
            for weight in (one for one in layer.parameters() if one.ndim == 2):
                step = weight.abs().amax(1, keepdim=True).clamp_min(1e-30) / 127
                weight.copy_((weight / step).round() * step)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def said(one: ClaimTrial) -> str:
    ends = "" if one.interval is None else f" [{one.interval[0]:.3f}, {one.interval[1]:.3f}]"
    return f"{one.tendency or 'not tried'}" + ("" if one.effect is None else f", {one.effect:.3f}{ends}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("claims", type=int, nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounded(options.model, options.folder)
    print("| claim | statement | as it is | in 8 bits |\n|---|---|---|---|")
    pairs = []
    for number in options.claims:
        claim = all_claims()[number]
        before, after = (tried(claim, place, 0) for place in (options.model, options.folder))
        if before and after:
            pairs.append((before[0].tendency, after[0].tendency))
            print(f"| {number} | {claim.statement} | {said(before[0])} | {said(after[0])} |", flush=True)
    print(f"\n{sum(one == other for one, other in pairs)} of {len(pairs)} verdicts are the same.")


if __name__ == "__main__":
    main()
