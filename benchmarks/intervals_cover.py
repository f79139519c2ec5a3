"""How often a scan's 95 % intervals cover: disjoint pieces of a real text, the truth being the value of all of it.

Widths above the model's own are random features tanh(Wx) of its states, which have its documents' dependence. A text is
taken as it runs, and with its documents shuffled. `--windows` are the lengths of the pieces. For each piece a site's
statistics see what a scan shows them; the truth of a spectral measure includes its own bias (the pieces are short).
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import torch

from headscan.geometry import MEASURES
from headscan.geometry.linearisation import Linearisation
from headscan.geometry.summary import site_cells
from headscan.model import Lens
from headscan.statistics import SiteStatistics

CONTEXT = 128
NAMES = ("average_cosine", "mean_norm", "top_direction_share", "effective_rank", "isoscore")


def token_rows(lens: Lens, text: Path, windows: int, *, shuffled: bool) -> torch.Tensor:
    """Windows of ids [n, context]: documents end with <|endoftext|>, or three newlines."""
    read = text.read_text()
    documents = read.split("<|endoftext|>" if "<|endoftext|>" in read else "\n\n\n")
    if shuffled:
        random.Random(0).shuffle(documents)
    ids: list[int] = []
    for document in documents:
        ids += [*lens.tokenizer.encode(document.strip(), add_special_tokens=False), lens.tokenizer.eos_token_id or 0]
        if len(ids) >= windows * CONTEXT:
            break
    rows = min(windows, len(ids) // CONTEXT)
    return torch.tensor(ids[: rows * CONTEXT]).view(rows, CONTEXT)


def states(lens: Lens, ids: torch.Tensor, site: str, width: int) -> torch.Tensor:
    """The states of a site [n, context, width], widened by random features where asked."""
    found = [lens.run(ids[k : k + 32], sites=site)[site].float() for k in range(0, len(ids), 32)]
    whole = torch.cat(found)
    if width <= whole.shape[2]:
        return whole
    generator = torch.Generator().manual_seed(0)
    weights = (
        torch.randn(whole.shape[2], width, generator=generator) / whole.square().mean().sqrt() / whole.shape[2] ** 0.5
    )
    return torch.tanh(whole @ weights + 0.3 * torch.randn(width, generator=generator))


def coverage(x: torch.Tensor, size: int) -> tuple[int, dict[str, tuple[float, ...]]]:
    """Of pieces of `size` windows: how many, and by measure how often, relative half width, mean error, mean bias told."""
    measures = [MEASURES[name] for name in NAMES]
    whole = SiteStatistics(x.shape[2])
    for k in range(0, len(x), 64):
        whole.update(x[k : k + 64], list(range(k, min(k + 64, len(x)))))
    truth, _ = site_cells("all", whole, measures)
    hits: dict[str, list[tuple[float, ...]]] = {name: [] for name in NAMES}
    for start in range(0, len(x) - size + 1, size):
        piece = SiteStatistics(x.shape[2], derive=Linearisation(measures))
        for k in range(0, size, 16):
            piece.update(x[start + k : start + min(k + 16, size)], list(range(k, min(k + 16, size))))
        cells, _ = site_cells("piece", piece, measures)
        for name in NAMES:
            low, high = cells[f"{name}_interval"]  # type: ignore[misc]
            aim = float(truth[name])  # type: ignore[arg-type]
            told = (high - low) / 2, cells[name] - aim, cells.get(f"{name}_bias", 0.0)  # type: ignore[operator]
            hits[name].append((float(low <= aim <= high), *(float(part) / abs(aim) for part in told)))  # type: ignore[arg-type]
    return len(hits[NAMES[0]]), {name: tuple(np.mean(found, axis=0)) for name, found in hits.items()}  # type: ignore[misc]


def main() -> None:
    """Print a line for each order, site, width and length of the pieces."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--sites", default="block.0,block.4")
    parser.add_argument("--width", type=int, default=0, help="Random features of so many dimensions.")
    parser.add_argument("--windows", default="16,32,64,160")
    parser.add_argument("--total", type=int, default=3200, help="Windows of the text.")
    parser.add_argument("--order", choices=["shuffled", "running", "both"], default="both")
    given = parser.parse_args()
    lens = Lens.load(given.model)
    for order in ("shuffled", "running"):
        if given.order not in (order, "both"):
            continue
        ids = token_rows(lens, given.text, given.total, shuffled=order == "shuffled")
        for site in given.sites.split(","):
            x = states(lens, ids, site, given.width)
            for size in map(int, given.windows.split(",")):
                pieces, found = coverage(x, size)
                told = "  ".join(f"{name} {hit:.2f} (±{half:.1%})" for name, (hit, half, *_) in found.items())
                told += "  bias " + ", ".join(f"{n} {found[n][2]:+.1%} (told {found[n][3]:+.1%})" for n in NAMES[3:])
                print(f"{order} {site} d={x.shape[2]} {size} windows x {pieces}: {told}", flush=True)


if __name__ == "__main__":
    main()
