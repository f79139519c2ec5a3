"""What a scan of a real model costs beside its forward pass.

Qwen2.5-Coder-1.5B (28 blocks, d = 1,536, float32, mapped from its files) and all-mpnet-base-v2 (12
blocks, d = 768), in windows of 128 tokens of wikitext-2, mpnet's of 384, every default site and
measure. Three ways over the same windows, each in a process of its own, in turns:

- *bare*: the forward pass, without the head, nothing kept;
- *scan*: `headscan scan` with its intervals, sinks, page and stored state;
- *obvious*: all hidden states kept, then one Gram matrix in float64, its eigenvalues and the mean
  cosine for each site.

Loading is not in the times: nor is hashing the weights' files, which every way would need to say
which model it was.

    python benchmarks/what_a_scan_of_a_real_model_costs_beside_its_forward_pass.py [--tokens 4096]
    [--rounds 3] [--models M]

A run that was stopped goes on where it was: every finished line stands in `--lines`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

REAL = Path(os.environ.get("HEADSCAN_REAL", "~/.cache/headscan/real")).expanduser()
TEXTS = Path(
    os.environ.get(
        "HEADSCAN_TEXTS", Path(__file__).resolve().parents[2] / "shared" / "assets" / "text"
    )
)
TEXT = str(TEXTS / "wikitext-2" / "test.txt")
NAMES = {"qwen": "Qwen2.5-Coder-1.5B", "all-mpnet-base-v2": "all-mpnet-base-v2"}
CONTEXT = 128
LIMITS = {4096: 1.25, 20_000: 1.15}


def status(name: str) -> float:
    """A line of /proc/self/status in GB."""
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) / 1e6


def watched(work: Callable[[], object]) -> dict[str, float]:
    """Seconds, those of all threads, GB of the largest private memory meanwhile, and GB written to
    the disk.
    """
    most = [status("RssAnon")]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], status("RssAnon"))

    thread = threading.Thread(target=watch)
    thread.start()
    start = time.perf_counter()
    cpu = time.process_time()
    work()
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu
    done.set()
    thread.join()
    written = int(Path("/proc/self/io").read_text().split("wchar:")[1].split()[0]) / 1e9
    return {"seconds": seconds, "cpu": cpu, "private": most[0], "written": written}


def way(name: str, model: str, text: str, tokens: int) -> dict[str, float]:
    """One way in this process."""
    import headscan
    from headscan.states import ModelSource
    from headscan.text.source import Reading

    lens = headscan.Lens.load(str(REAL / model))
    lens.provenance()
    weights = sum(p.numel() * p.element_size() for p in lens.model.parameters()) / 1e9
    memory_before = status("RssAnon")
    sites = list(lens.default_sites)
    # The scan's own windows: those of a sentence encoder are as long as it was trained with,
    # whatever the default.
    work = list(ModelSource(lens, text, Reading(max_tokens=tokens), context=CONTEXT).batches())
    states_by_site: dict[str, list[torch.Tensor]] = {site: [] for site in sites}

    def bare() -> None:
        for batch in work:
            lens.run(torch.from_numpy(batch.ids), sites=sites[-1:], each=lambda *_: None)

    def scan() -> None:
        with tempfile.TemporaryDirectory() as folder:
            headscan.scan(lens, text, max_tokens=tokens, context=CONTEXT, out=folder)

    def obvious() -> None:
        for batch in work:
            lens.run(
                torch.from_numpy(batch.ids),
                sites=sites,
                each=lambda site, x: states_by_site[site].append(x.clone()),
            )
        for states in states_by_site.values():
            x = torch.cat(states).flatten(0, 1).double()
            covariance = x.T @ x / len(x)
            shares = torch.linalg.eigvalsh(covariance).clamp(min=1e-300)
            shares = shares / shares.sum()
            unit = (x / x.norm(dim=1, keepdim=True)).sum(0)
            (unit @ unit - len(x)) / (len(x) * (len(x) - 1))
            (
                torch.exp(-(shares * shares.log()).sum()),
                covariance.trace() ** 2 / covariance.square().sum(),
            )

    measurements = watched({"bare": bare, "scan": scan, "obvious": obvious}[name])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return measurements | {
        "peak": peak,
        "weights": weights,
        "loaded": memory_before,
        "positions": sum(b.ids.size for b in work),
    }


def lines(file: Path) -> dict[str, dict[str, float]]:
    """Return what has been measured already."""
    if not file.exists():
        return {}
    return {row["key"]: row for row in map(json.loads, file.read_text().splitlines())}


def measured(
    file: Path, model: str, name: str, round_: int, options: argparse.Namespace
) -> dict[str, float]:
    """One way in a process of its own, or what stands in the file of it."""
    key = f"{model} {name} {options.tokens} {options.threads} {round_}"
    known = lines(file)
    if key not in known:
        command = [
            sys.executable,
            __file__,
            "--way",
            name,
            "--models",
            model,
            "--tokens",
            str(options.tokens),
        ]
        command += ["--threads", str(options.threads), "--text", options.text]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        known[key] = {"key": key} | json.loads(done.stdout.splitlines()[-1])
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as out:
            out.write(json.dumps(known[key]) + "\n")
        print(f"{key}: {known[key]}", file=sys.stderr, flush=True)
    return known[key]


def table(model: str, runs: dict[str, list[dict[str, float]]], tokens: int) -> None:
    """The lines of one model."""
    print(
        f"\n{NAMES.get(model, model)}, {runs['bare'][0]['positions']:,.0f} tokens, "
        f"{len(runs['bare'])} rounds:\n"
    )
    print(
        "| way | seconds (median; all) | of the forward pass | peak memory | beside the model | "
        "private | written |"
    )
    print("|---|---|---|---|---|---|---|")
    bare = median(run["seconds"] for run in runs["bare"])
    for name, method_runs in runs.items():
        if not method_runs:
            continue
        medians = {
            key: median(run[key] for run in method_runs)
            for key in ("seconds", "peak", "private", "written")
        }
        seconds = medians["seconds"]
        peak = medians["peak"]
        all_seconds = ", ".join(f"{run['seconds']:.1f}" for run in method_runs)
        print(
            f"| {name} | {seconds:.1f} s ({all_seconds}) | {seconds / bare:.2f} | {peak:.2f} GB | "
            f"{peak - method_runs[0]['weights']:.2f} GB | {medians['private']:.2f} GB | "
            f"{medians['written']:.2f} GB |"
        )
    rounds = zip(runs["scan"], runs["bare"], strict=False)
    paired = [scan["seconds"] / bare["seconds"] for scan, bare in rounds]
    limit = LIMITS.get(tokens)
    print(
        f"\nScan over bare, round by round: {', '.join(f'{ratio:.3f}' for ratio in paired)}; "
        f"median {median(paired):.3f}"
        + (f" (limit {limit})" if limit else "")
        + f". Memory beside the model (weights {runs['scan'][0]['weights']:.2f} GB; limit 1.5 "
        f"GB): {max(run['peak'] for run in runs['scan']) - runs['scan'][0]['weights']:.2f} GB, "
        "with the libraries' own."
    )


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=["bare", "scan", "obvious"])
    parser.add_argument("--models", default="qwen,all-mpnet-base-v2")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=Path, default=Path("headscan-results/real-scan.jsonl"))
    options = parser.parse_args()
    if options.way:
        torch.set_num_threads(options.threads)
        print(json.dumps(way(options.way, options.models, options.text, options.tokens)))
        return
    for model in options.models.split(","):
        if not (REAL / model).exists():
            print(f"\n{model}: NOT measured, there is no {REAL / model} (see CONTRIBUTING.md).")
            continue
        runs: dict[str, list[dict[str, float]]] = {"bare": [], "scan": [], "obvious": []}
        for round_ in range(options.rounds):
            order = ["bare", "scan"] if round_ % 2 == 0 else ["scan", "bare"]
            # The obvious way once: its time is not what is claimed, and its memory does not vary.
            for name in order + (["obvious"] if round_ == 0 else []):
                runs[name].append(measured(options.lines, model, name, round_, options))
        table(model, runs, options.tokens)
    print(f"\nMeasured with {options.threads} threads; memory in GB of 10⁹ bytes.")


if __name__ == "__main__":
    main()
