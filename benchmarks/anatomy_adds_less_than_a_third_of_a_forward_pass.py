"""The anatomy of the cone adds less than a third of a bare forward pass to a scan.

all-MiniLM-L6-v2 (6 blocks, d = 384, a norm after every sum) over 32,768 tokens of random ids in
windows of 128, one thread. Forward pass, scan and scan with `--measures anatomy` run batch by batch
in alternation in one process; processor time, so that others on the machine do not count. What
comes after the pass (spectra, intervals, shares) is given apart: it does not grow with the text.
The aim for both together is 1.35 forward passes.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

import torch
from scan_costs_little_more_than_the_forward_pass import CONTEXT, bare, batches, model_folder

from headscan.model import Lens
from headscan.scanner.accumulate import Accumulation, accumulate
from headscan.scanner.probe_runner import PassOptions, ProbeRunner
from headscan.scanner.selection import choose
from headscan.scanner.site_cells import site_cells
from headscan.states import ModelSource
from headscan.text.source import Reading


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--model", help="another model's folder, such as that of all-mpnet-base-v2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lens = Lens.load(options.model or model_folder())
    work = batches(options.tokens)
    reading = Reading(max_tokens=options.tokens)
    source = ModelSource(lens, "", reading, context=CONTEXT)
    source.batches = lambda **_: iter(work)  # type: ignore[method-assign]
    sweeps = {}
    runners = {}
    for way, option in (("scan", None), ("anatomy", "anatomy")):
        measures, probes = choose(option)
        runners[way] = ProbeRunner(
            probes, source, lens.default_sites, PassOptions(), announce=lambda _: None
        )
        widths = {site: lens.width(site) for site in lens.default_sites}
        sweeps[way] = Accumulation(
            widths, lens.vocabulary_size, extras=runners[way].accumulators, intervals=True
        )
    watch = {way: (runner.watch(sweeps[way]), runner.passing()) for way, runner in runners.items()}
    times: dict[str, float] = defaultdict(float)
    bare(lens, work[:1])
    for number, batch in enumerate(work):
        ways = ["bare", "scan", "anatomy"]
        for way in ways[number % 3 :] + ways[: number % 3]:
            start = time.process_time()
            if way == "bare":
                bare(lens, [batch])
            else:
                accumulate(source, [batch], sweeps[way], watch=watch[way][0], passing=watch[way][1])
            times[way] += time.process_time() - start
    start = time.process_time()
    accumulated = sweeps["anatomy"]
    clouds = {
        site: site_cells(site, accumulated.sites[site], measures)[1] for site in lens.default_sites
    }
    times["measures"] = time.process_time() - start
    runners["anatomy"].rows(accumulated, clouds, {"model": "model"})
    print(
        "| tokens | bare forward | scan's pass | with anatomy | after: measures | after: shares | "
        "passes | added | limit |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    print(
        f"| {options.tokens:,} | {times['bare']:.1f} s | {times['scan'] / times['bare']:.2f} | "
        f"{times['anatomy']:.1f} s | {times['measures']:.1f} s | "
        f"{runners['anatomy'].seconds['anatomy']:.1f} s | {times['anatomy'] / times['bare']:.2f} "
        f"| **{(times['anatomy'] - times['scan']) / times['bare']:.2f}** | 0.33 |"
    )


if __name__ == "__main__":
    main()
