"""The cost of exact inversion grows slowly with vocabulary, width, depth and length.

Random Llamas around V = 4,096, d = 256, 4 blocks, 8 tokens, one property changed at a time. Exact
search: 4 prompts together, candidates and milliseconds a token (processor time, one thread); the
table, built once a model and slice, apart. Beside it the same search in random order (the first 4
tokens of one prompt) and brute force, every token of the vocabulary tried at the last position of
one prompt. The milliseconds are drawn into docs/images (or the file given).
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from _inversion import random_model

from headscan.inversion import Search, exact
from headscan.inversion.table import table_of
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import Prefix

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "exact-inversion-growth.svg"
BASE = {"vocabulary": 4096, "width": 256, "depth": 4, "length": 8}
SWEEPS = {
    "vocabulary": (512, 2048, 4096, 8192, 32768),
    "width": (64, 128, 256, 512),
    "depth": (1, 2, 4, 8, 16),
    "length": (2, 8, 32, 128),
}
LINES = (
    ("brute force", "#8a8f98"),
    ("random order", "#c2762b"),
    ("exact, with the table", "#2f7fb8"),
)


@torch.no_grad()
def measure(size: dict[str, int]) -> tuple[list[float], str]:
    """Milliseconds a token of brute force, random order and the exact search, and the row's other
    cells.
    """
    lens = random_model("llama", size["vocabulary"], size["width"], size["depth"])
    lens.model.eval()
    ids = torch.randint(
        0, size["vocabulary"], (4, size["length"]), generator=torch.Generator().manual_seed(1)
    )
    cut = Slice(sites=(f"block.{size['depth'] - 1}",)).on(lens)
    target = cut.run(ids)
    start = time.process_time()
    table_of(cut)
    built = time.process_time() - start
    exact(cut, [target[0, :1]])  # warm
    start = time.process_time()
    inversions = exact(cut, list(target))
    spent = 1000 * (time.process_time() - start) / ids.numel()
    tried = [n for inversion in inversions for n in inversion.evaluations]
    right = float(
        (torch.tensor([inversion.tokens for inversion in inversions]) == ids).float().mean()
    )
    few = target[0, :4]
    start = time.process_time()
    random = exact(cut, [few], Search(order="random", neighbours=0))[0]
    in_random_order = 1000 * (time.process_time() - start) / len(few)
    prefix = Prefix(cut, ids[:1, :-1])
    start = time.process_time()
    for tokens in torch.arange(size["vocabulary"]).split(512):
        prefix.evaluate(torch.zeros_like(tokens), tokens)
    brute = 1000 * (time.process_time() - start)
    mean_random = sum(random.evaluations) / len(few)
    cells = (
        f"{right:.3f} | {sum(tried) / len(tried):.0f} | {max(tried)} | {spent:.1f} | {built:.2f} "
        f"s | {mean_random:.0f} | {in_random_order:.0f} | {brute:.0f}"
    )
    return [brute, in_random_order, spent], cells


def picture(results: dict[str, list[tuple[int, list[float]]]]) -> str:
    """Four panels side by side, both axes logarithmic; readable on light and dark ground."""
    values = [value for points in results.values() for _, three in points for value in three]
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    wide = 186
    tall = 190
    left = 72
    top = 40

    def up(value: float) -> float:
        return top + tall * (1 - (math.log10(value) - low) / (high - low))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + 4 * (wide + 24)} '
        f'{top + tall + 62}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#7d8590">',
        "<title>Milliseconds a token against vocabulary, width, depth and length</title>",
    ]
    for power in range(low, high + 1):
        label = f"{10**power:g} ms"
        parts.append(
            f'<text x="{left - 6}" y="{up(10**power) + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for number, (name, points) in enumerate(results.items()):
        x0 = left + number * (wide + 24)
        first = math.log2(points[0][0])
        last = math.log2(points[-1][0])
        positions = [
            x0 + 14 + (wide - 28) * (math.log2(value) - first) / (last - first)
            for value, _ in points
        ]
        parts.append(
            f'<rect x="{x0}" y="{top}" width="{wide}" height="{tall}" fill="none" '
            'stroke="#7d8590" opacity=".4"/>'
        )
        for power in range(low + 1, high):
            parts.append(
                f'<path d="M{x0},{up(10**power):.1f}h{wide}" stroke="#7d8590" opacity=".2"/>'
            )
        for position, (value, _) in zip(positions, points, strict=True):
            text = f"{value // 1024}k" if value >= 1024 else f"{value}"
            parts.append(
                f'<text x="{position:.1f}" y="{top + tall + 16}" text-anchor="middle">{text}</text>'
            )
        parts.append(
            f'<text x="{x0 + wide / 2}" y="{top + tall + 34}" text-anchor="middle">{name}</text>'
        )
        for line, (_, colour) in enumerate(LINES):
            path = "L".join(
                f"{x:.1f},{up(three[line]):.1f}"
                for x, (_, three) in zip(positions, points, strict=True)
            )
            parts.append(
                f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.5" '
                'stroke-linejoin="round"/>'
            )
            parts += [
                f'<circle cx="{x:.1f}" cy="{up(three[line]):.1f}" r="3.2" fill="{colour}"/>'
                for x, (_, three) in zip(positions, points, strict=True)
            ]
    for line, (name, colour) in enumerate(LINES):
        x = left + 150 * line
        parts.append(
            f'<path d="M{x},18h22" stroke="{colour}" stroke-width="2.5"/><text x="{x + 28}" '
            f'y="22">{name}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    torch.set_num_threads(1)
    print(
        "| changed | V | d | blocks | length | accuracy | candidates a token | most | ms a token "
        "| table | random order: candidates | ms a token | brute force: ms a token |"
    )
    print("|" + "---|" * 13)
    results: dict[str, list[tuple[int, list[float]]]] = {}
    base = None
    for name, values in SWEEPS.items():
        for value in values:
            size = BASE | {name: value}
            if size == BASE and base is not None:
                times, cells = base
            else:
                times, cells = measure(size)
                shape = " | ".join(str(size[field]) for field in BASE)
                print(f"| {'nothing' if size == BASE else name} | {shape} | {cells} |", flush=True)
            base = (times, cells) if size == BASE else base
            results.setdefault(name, []).append((value, times))
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    path.write_text(picture(results), encoding="utf-8")
    print(
        "\n![Milliseconds a token against vocabulary, width, depth and "
        "length](docs/images/exact-inversion-growth.svg)"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as os.environ[
        "HEADSCAN_CACHE"
    ]:  # the table is built, not read
        main()
