"""A scan with every measure that is not expensive costs at most twice the bare forward pass.

all-MiniLM-L6-v2 (6 blocks, d = 384) over 200,000 tokens in windows of 128, `--measures all`.
Forward pass and scan run batch by batch in alternation in one process, so the load of the machine
falls on both; everything after the pass (spectra, intervals, neighbours, words, collapse,
attention's own pass) is counted in.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

import torch
from scan_costs_little_more_than_the_forward_pass import CONTEXT, bare, batches, model_folder

from headscan.model import Lens
from headscan.scanner.accumulate import Accumulation, accumulate
from headscan.scanner.probe_runner import MEASURED_BYTES, PassOptions, ProbeRunner
from headscan.scanner.selection import choose
from headscan.scanner.site_cells import site_cells
from headscan.states import ModelSource
from headscan.text import synonyms
from headscan.text.source import Reading


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=200_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lens = Lens.load(model_folder())
    measures, probes = choose("all")
    reading = Reading(max_tokens=options.tokens)
    work = batches(options.tokens)
    source = ModelSource(lens, "", reading, context=CONTEXT)
    source.batches = lambda **_: iter(work)  # type: ignore[method-assign]
    pass_options = PassOptions(pairs=(synonyms(),))
    runner = ProbeRunner(probes, source, lens.default_sites, pass_options, announce=lambda _: None)
    accumulated = Accumulation(
        {site: lens.width(site) for site in lens.default_sites},
        lens.vocabulary_size,
        sample=runner.sample,
        sample_bytes=MEASURED_BYTES,
        extras=runner.accumulators,
        intervals=True,
    )
    watch = runner.watch(accumulated)
    passing = runner.passing()
    times: dict[str, float] = defaultdict(float)
    bare(lens, work[:1])
    for number, batch in enumerate(work):
        for way in ("bare", "scan") if number % 2 else ("scan", "bare"):
            start = time.perf_counter()
            if way == "bare":
                bare(lens, [batch])
            else:
                accumulate(source, [batch], accumulated, watch=watch, passing=passing)
            times[way] += time.perf_counter() - start
    start = time.perf_counter()
    clouds = {
        site: site_cells(site, accumulated.sites[site], measures)[1] for site in lens.default_sites
    }
    times["measures"] = time.perf_counter() - start
    runner.rows(accumulated, clouds, {"model": "model"})
    times["after"] = time.perf_counter() - start
    total = times["scan"] + times["after"]
    print("| tokens | bare forward | pass with all probes | after the pass | ratio | limit |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {options.tokens:,} | {times['bare']:.1f} s | {times['scan']:.1f} s | "
        f"{times['after']:.1f} s | **{total / times['bare']:.2f}** | 2 |"
    )
    slow = sorted(runner.seconds, key=lambda name: -runner.seconds[name])[:4]
    print(
        f"\nAfter the pass: {times['measures']:.1f} s for the measures of the clouds with their "
        "intervals; of the probes, "
        + ", ".join(f"{name} {runner.seconds[name]:.1f} s" for name in slow)
        + "."
    )


if __name__ == "__main__":
    main()
