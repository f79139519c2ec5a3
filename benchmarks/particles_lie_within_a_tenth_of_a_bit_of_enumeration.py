"""Particles lie within a tenth of a bit of enumeration, and meet within a twentieth on a language model's own texts.

    python benchmarks/particles_lie_within_a_tenth_of_a_bit_of_enumeration.py [MODELS_FOLDER]

babyllama-tok105: 16 texts of two tokens, three blocks, four noises, P = 32: both runs of the filter against log p(y) summed over
all 105² texts. stories260K: 8 texts of 12 tokens drawn from it, P = 32, what lies between the two runs at noises up to 1.6.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import torch

from headscan.leaks.positions import prior_of
from headscan.leaks.sequence import drawn_texts, evidence, sequence_bits, stepper
from headscan.model import Lens
from headscan.model.slicing import Slice

ASSETS = Path(__file__).resolve().parents[2] / "shared" / "assets"
SIZE, START, TEXTS, PARTICLES = 105, 1, 16, 32


@torch.no_grad()
def enumerated(models: Path) -> None:
    """The filter's two runs against the sum over all texts of two tokens, in bits a token."""
    lens, every, start = Lens.load(str(models / "babyllama-tok105")), torch.arange(SIZE), torch.tensor([START])
    prior = prior_of("model", lens, [])
    ids = torch.cat([torch.full((SIZE**2, 1), START), torch.cartesian_prod(every, every)], 1)
    after = prior(ids[::SIZE, :2])
    joint = after[0, 0].log()[:, None] + after[:, 1].log()
    print("105² texts enumerated, bits a token: exact minus conditional run, free run minus exact (standard error)\n")
    print("| block | noise | conditional | free |\n|---|---|---|---|")
    for block in (0, 2, 4):
        cut = Slice(sites=(f"block.{block}",)).on(lens)
        states = cut.run(ids)[:, 1:].double()
        first, second = states[::SIZE, 0], states[:, 1].unflatten(0, (SIZE, SIZE))
        rows, _ = drawn_texts(prior, start, TEXTS, 2, seed=3)
        for noise in (0.4, 0.8, 1.6, 3.2):
            sigma, generator = (
                noise * float(second.flatten(0, 1).var(0).mean().sqrt()),
                torch.Generator().manual_seed(6),
            )
            apart = []
            for text in rows:
                clean = torch.stack([first[text[0]], second[text[0], text[1]]])
                seen = clean + sigma * torch.randn(clean.shape, generator=generator, dtype=torch.float64)
                far = (first - seen[0]).square().sum(-1)[:, None] + (second - seen[1]).square().sum(-1)
                true = float(torch.logsumexp((joint - far / (2 * sigma**2)).flatten(), 0))
                runs = [
                    evidence(stepper(cut, prior), seen, sigma, PARTICLES, start=start, keep=keep, generator=generator)[
                        0
                    ]
                    for keep in (text, None)
                ]
                apart.append([(runs[0] - true) / math.log(2) / 2, (true - runs[1]) / math.log(2) / 2])
            table = torch.tensor(apart)
            words = [f"{m:+.4f} ({e:.4f})" for m, e in zip(table.mean(0), table.std(0) / TEXTS**0.5, strict=True)]
            print(f"| {block} | {noise} | {words[0]} | {words[1]} |", flush=True)


@torch.no_grad()
def own_texts(models: Path) -> None:
    """What lies between the runs on texts of 12 tokens."""
    lens = Lens.load(str(models / "stories260K"))
    cut, prior = Slice(sites=("block.2",)).on(lens), prior_of("model", lens, [])
    rows, _ = drawn_texts(prior, torch.tensor([1]), 64, 12, seed=9)
    rms = float(cut.run(rows)[:, 1:].flatten(0, 1).var(0).mean().sqrt())
    print("\nstories260K, block 2, 8 texts of 12 tokens, bits a token\n")
    print("| noise | prior | own releases | at least | at most | at most - at least |\n|---|---|---|---|---|---|")
    for one in sequence_bits(
        cut, "block.2", prior, torch.tensor([1]), [(noise, noise * rms) for noise in (0.4, 0.8, 1.6)], PARTICLES, seed=1
    ):
        gap = f"{one.bits_upper - one.bits_lower:.4f} ({one.gap_error:.4f})"
        print(
            f"| {one.noise} | {one.prior_bits:.3f} | {one.own_bits:.3f} | {one.bits_lower:.3f} | {one.bits_upper:.3f} | {gap} |"
        )


def main() -> None:
    """Both."""
    models, begun = Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS / "models", time.process_time()
    enumerated(models)
    own_texts(models)
    print(f"\n{time.process_time() - begun:.0f} s of one processor.")


if __name__ == "__main__":
    main()
