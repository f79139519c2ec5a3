"""Bits lie between their bounds in a thousand cells: sites, positions, priors, noises, all
candidates or the likeliest.

    python benchmarks/bits_lie_between_their_bounds_in_a_thousand_cells.py [MODELS_FOLDER] [TEXT]
    [POSITIONS]

stories260K at 20 positions of a text, three blocks, two priors, eight noises, all 512 candidates
and the likeliest 128; and babyllama-tok105 with all 105² and all 105³ prompts enumerated, rows
drawn. A cell is violated where the truth by Monte Carlo lies outside its bounds by more than four
standard errors. Printed: cells, violations, the gap by noise, the identity U(2σ), seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from _table import needs

from headscan.leaks.bounds import Code, draws_of, leak_bounds, pairwise_bits, pairwise_curve
from headscan.leaks.priors import cut_prior, prior_of
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import Prefix

ASSETS = Path(__file__).resolve().parents[2] / "shared" / "assets"
NOISES = (0.1, 0.2, 0.4, 0.8, 1.6, 2.4, 4.0, 8.0)
BLOCKS = (0, 2, 4)
SIZE = 105
START = 1


class Cell(NamedTuple):
    """One case: what was enumerated, and bits between bounds."""

    of: str
    noise: float
    lower: float
    truth: float
    error: float
    upper: float

    @property
    def violated(self) -> bool:
        """Whether the truth lies outside by more than four standard errors."""
        slack = 4 * self.error + 1e-9
        return not self.lower - slack <= self.truth <= self.upper + slack


def positions(models: Path, text: str, count: int) -> list[Cell]:
    """Every cell of stories260K."""
    lens = Lens.load(str(models / "stories260K"))
    ids = torch.tensor(
        lens.require_tokenizer()(text, add_special_tokens=False)["input_ids"][: 40 * count]
    ).reshape(count, 40)
    cut = Slice(sites=tuple(f"block.{block}" for block in BLOCKS)).on(lens)
    widths = [lens.width(site) for site in cut.sites]
    with torch.no_grad():
        spreads = [
            part.var(0).mean().sqrt() for part in cut.run(ids)[:, 1:].flatten(0, 1).split(widths, 1)
        ]
    found = []
    for number, row in enumerate(ids):
        place = 1 + (7 * number) % 38
        prefix = Prefix(cut, row[None, :place])
        for prior in ("model", "uniform"):
            shares = prior_of(prior, lens, [])(row[None, :place])[0, -1]
            for most in (None, 128):
                tokens, coded = cut_prior(shares, most)
                points = prefix.evaluate(torch.zeros_like(tokens), tokens).split(widths, 1)
                for site, part in enumerate(points):
                    code = coded(part)
                    sigmas = [noise * float(spreads[site]) for noise in NOISES]
                    drawn = draws_of(code, sigmas, draws=128, seed=number)
                    for noise, bound, truth in zip(
                        NOISES, leak_bounds(code, sigmas), drawn, strict=True
                    ):
                        # Of a part of the candidates: m I₁ ≤ I ≤ m I₁ + tail, and the bounds hold m
                        # I₁ between them.
                        bits = code.kept * truth.mean
                        of = (
                            f"stories260K, prior {prior}, {'all' if most is None else most} "
                            "candidates"
                        )
                        found.append(Cell(of, noise, bound.lower, bits, truth.error, bound.upper))
    return found


def prompts(models: Path) -> list[Cell]:
    """All 105² prompts of babyllama-tok105, after one known token, by the last state and by both;
    all 105³ by the last.
    """
    lens = Lens.load(str(models / "babyllama-tok105"))
    every = torch.arange(SIZE)
    found = []
    ids = torch.cat([torch.full((SIZE**2, 1), START), torch.cartesian_prod(every, every)], 1)
    prior = prior_of("model", lens, [])
    after = prior(ids)
    pairs = after[0, 0].repeat_interleave(SIZE) * after[::SIZE, 1].flatten()
    for block in BLOCKS:
        with torch.no_grad():
            states = Slice(sites=(f"block.{block}",)).on(lens).run(ids)[:, 1:]
        for points in (states[:, -1], states.flatten(1)):
            found += _enumerated("105² prompts", points, pairs, 256, NOISES, block)
    prefix = Prefix(Slice(sites=("block.2",)).on(lens), ids)
    rows = torch.arange(len(ids))
    third = torch.cat(
        [
            prefix.evaluate(part.repeat_interleave(SIZE), every.repeat(len(part)))
            for part in rows.split(441)
        ]
    )
    triples = (pairs[:, None] * after[:, 2]).flatten()
    return found + _enumerated("105³ prompts", third, triples, 128, NOISES[2:], 7)


def _enumerated(
    of: str,
    points: torch.Tensor,
    model: torch.Tensor,
    count: int,
    noises: Sequence[float],
    seed: int,
) -> list[Cell]:
    """Cells of prompts that were all run: rows of the bounds are drawn, the posterior of each draw
    is over all prompts.
    """
    found = []
    for name, masses in (("model", model), ("uniform", torch.full_like(model, 1 / len(model)))):
        code = Code(points, masses)
        rms = float(torch.as_tensor(code.variances).mean()) ** 0.5
        sigmas = [noise * rms for noise in noises]
        generator = torch.Generator().manual_seed(seed)
        rows = torch.multinomial(code.prior, count, replacement=True, generator=generator)
        curve = pairwise_curve(code, [scale for s in sigmas for scale in (2 * s, s)], rows=rows)
        drawn = draws_of(code, sigmas, draws=count, seed=1, all_rows=False)
        means = curve.mean(1)
        errors = curve.std(1) / count**0.5
        for k, (noise, one) in enumerate(zip(noises, drawn, strict=True)):
            error = float(
                (one.bits.var() / count + errors[2 * k] ** 2 + errors[2 * k + 1] ** 2) ** 0.5
            )
            low = float(means[2 * k])
            high = float(means[2 * k + 1])
            found.append(
                Cell(f"{of}, prior {name}", noise, low, float(one.bits.mean()), error, high)
            )
    return found


def main() -> None:
    """All cells, and what they show."""
    models = Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS / "models"
    if not models.is_dir():
        needs(f"stories260K and babyllama-tok105 in {models}")
    text = (
        Path(sys.argv[2])
        if len(sys.argv) > 2
        else ASSETS / "text" / "tinystories" / "tinystories_2MiB.txt"
    )
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    begun = time.process_time()
    cells = positions(models, text.read_text("utf-8")[:40_000], count) + prompts(models)
    wrong = sum(cell.violated for cell in cells)
    if wrong:
        sys.exit(
            f"{wrong} of {len(cells):,} cells lie outside their bounds by more than 4 standard "
            "errors"
        )
    print(
        f"{len(cells):,} cells, none outside their bounds by more than 4 standard errors. Upper "
        "- lower, in the mean:\n"
    )
    print(
        "| of | cells | "
        + " | ".join(f"noise {noise:g}" for noise in NOISES)
        + " |\n|---"
        + "|---" * (1 + len(NOISES))
        + "|"
    )
    for of in dict.fromkeys(cell.of for cell in cells):
        gaps = [
            [cell.upper - cell.lower for cell in cells if (cell.of, cell.noise) == (of, noise)]
            for noise in NOISES
        ]
        means = [f"{sum(some) / len(some):.4f}" if some else "" for some in gaps]
        print(f"| {of} | {sum(map(len, gaps))} | " + " | ".join(means) + " |")
    code = Code(
        torch.randn(300, 8, generator=torch.Generator().manual_seed(0)), torch.full((300,), 1 / 300)
    )
    apart = (code.points[:, None].double() - code.points.double()).square().sum(-1)
    worst = 0.0
    for sigma in (
        0.1,
        0.5,
        2.0,
        9.0,
    ):  # the lower bound by its own divergence, against the curve at twice the noise
        below = -(torch.exp(-apart / (8 * sigma**2)).mean(1).log2()).mean()
        worst = max(worst, abs(float(below) - pairwise_bits(code, [2 * sigma])[0]))
    print(
        f"\nU(2σ) against the bound by Bhattacharyya divergences: at most {worst:.1e} bits apart."
    )
    print(f"{time.process_time() - begun:.0f} s of one processor.")


if __name__ == "__main__":
    main()
