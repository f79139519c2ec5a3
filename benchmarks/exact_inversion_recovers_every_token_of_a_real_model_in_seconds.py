"""Exact inversion recovers every token of a model of 1.5 billion parameters: seconds a token at
blocks 2, 13 and 27.

Qwen2.5-Coder-1.5B-Instruct in float32 (V = 151,936, 28 blocks), two threads; five prompts of at
most 24 tokens: rare names, medicine, Python, German, a rare sentence. The readout of each site is
fitted first, in one pass of 8,192 tokens (headscan's own stories, random and lone tokens), and
given apart. Every prompt is inverted by itself, with its certificate. One line of
`headscan-results/benchmarks/real_inversion.json` a prompt and site, written as soon as it is
measured: run again, it goes on where it stopped. Without the model nothing is measured. Arguments:
sites (block.2,block.13,block.27), seconds after which no further prompt is begun.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _table import needs, show

from headscan.inversion import Search, exact
from headscan.inversion.readout_fit import readouts_of
from headscan.model import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import write_atomic

MODEL = Path(os.environ.get("HEADSCAN_REAL", Path.home() / ".cache" / "headscan" / "real")) / "qwen"
STORE = (
    Path(__file__).resolve().parents[1] / "headscan-results" / "benchmarks" / "real_inversion.json"
)
SITES = ("block.2", "block.13", "block.27")
LIMITS = {"block.2": 0.4, "block.13": 3.0, "block.27": 6.0}
PROMPTS = {
    "names": "My password is tulip-42 and nobody knows it but Zaphod Beeblebrox from Magrathea, "
    "who never writes it down.",
    "medicine": "Dear Dr. Okonkwo, the biopsy of 14 March shows a grade II astrocytoma in the "
    "left temporal lobe.",
    "Python": "def merge(a, b):\n    return sorted(set(a) | set(b), key=str.lower)  # stable order",
    "German": "Der alte Kapitän strich sein Boot hellgrün und pfiff dazu ein Lied aus Bremerhaven.",
    "sentence": "In 1987 the Ljubljana quartet premiered Szymanowski's second, to an audience of "
    "nineteen and a dog.",
}
LENGTH = 24


def report_progress(stage: str, done: int, total: int | None, unit: str) -> None:
    """Progress, on a line of standard error that is written again and again."""
    print(f"\r{stage} {done}/{total} {unit}   ", end="", file=sys.stderr, flush=True)


def inverted(lens: Lens, site: str, prompt: str) -> dict[str, Any]:
    """One prompt at one site: what was found, how many candidates it took, and how long."""
    cut = Slice(sites=(site,)).on(lens)
    ids = torch.tensor(
        lens.tokenizer(PROMPTS[prompt], add_special_tokens=False)["input_ids"][:LENGTH]
    )
    target = cut.run(ids[None])[0]
    start = time.perf_counter()
    busy = time.process_time()
    inversion = exact(cut, [target], Search(), progress=report_progress)[0]
    seconds = time.perf_counter() - start
    busy = time.process_time() - busy
    return {
        "site": site,
        "prompt": prompt,
        "tokens": len(ids),
        "right": sum(a == b for a, b in zip(inversion.tokens, ids.tolist(), strict=True)),
        "failed": len(inversion.failed),
        "seconds": seconds,
        "processor_seconds": busy,
        "candidates": inversion.evaluations,
        "residual": max(inversion.residuals),
        "runner_up": min(step.evidence.runner_up for step in inversion.steps),
        "load": os.getloadavg()[0],
    }


def stored() -> list[dict[str, Any]]:
    """Return the records of what was measured."""
    return json.loads(STORE.read_text()) if STORE.exists() else []


def keep(record: dict[str, Any]) -> None:
    """Add one line."""
    STORE.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(STORE, json.dumps([*stored(), record], indent=1))


def _warm_up(cut: SlicedModel) -> None:
    """Compute what a search needs once, so that no search is charged for it."""

    def warm() -> None:
        _ = cut.equal_rows
        cut.run([[1, 2]])

    cut.once("warm", warm)


def main() -> None:
    """Measure what is missing, then print the table of all."""
    sites = sys.argv[1].split(",") if len(sys.argv) > 1 else list(SITES)
    until = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 1e9)
    torch.set_num_threads(2)
    have = {(record["site"], record["prompt"]) for record in stored()}
    missing = [(site, prompt) for site in sites for prompt in PROMPTS if (site, prompt) not in have]
    if missing and not MODEL.is_dir():
        needs(f"{MODEL}")
    lens = Lens.load(str(MODEL)) if missing else None
    for site, prompt in missing:
        assert lens is not None
        if time.monotonic() > until:
            break
        cut = Slice(sites=(site,)).on(lens)
        start = time.perf_counter()
        fitted = readouts_of(cut, progress=report_progress).passes
        _warm_up(cut)
        seconds = time.perf_counter() - start
        keep(
            inverted(lens, site, prompt)
            | {"fit_tokens": fitted, "fit_seconds": seconds if fitted else None}
        )
    rows = []
    for site in SITES:
        records = [record for record in stored() if record["site"] == site]
        if records:
            tokens = sum(record["tokens"] for record in records)
            counts = [n for record in records for n in record["candidates"]]
            fits = [record["fit_seconds"] for record in records if record.get("fit_seconds")]
            rows.append(
                {
                    "site": site,
                    "prompts": len(records),
                    "tokens": tokens,
                    "right": sum(record["right"] for record in records),
                    "s_a_token": sum(record["seconds"] for record in records) / tokens,
                    "limit": LIMITS[site],
                    "processor_s_a_token": sum(record["processor_seconds"] for record in records)
                    / tokens,
                    "candidates,_mean": sum(counts) / tokens,
                    "most": max(counts),
                    "worst_residual": max(record["residual"] for record in records),
                    "nearest_other": min(record["runner_up"] for record in records),
                    "fit_s": fits[0] if fits else "kept",
                    "load": max(record["load"] for record in records),
                }
            )
    show(rows)


if __name__ == "__main__":
    main()
