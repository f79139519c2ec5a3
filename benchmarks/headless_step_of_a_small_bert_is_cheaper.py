"""A whole training step of a small BERT is cheaper without a head, the more so the larger the
vocabulary

Forward, loss, backward and AdamW of a BERT-small-like model (4 layers, d = 512), batch x 128
tokens, 15 % masked; time and peak memory over vocabulary and over batch size. The paper reports 2.0
to 5.2 times (V = 20,000 to 200,000, one RTX 8000, batch 64 x 128) against a head that projects
every position: that baseline is here, and the fair one beside it, that projects the masked
positions only. Each cell is its own process, so that peak memory means something; time is processor
time, because other work on the machine must not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _losses import _status, machine, projected_everywhere
from transformers import BertConfig, BertModel
from transformers.utils import logging

from headscan.training import ce_loss, cwt_loss, gather_rows

FORMS = ["headless, unique CWT", "vanilla, gathered", "vanilla, every position"]
CONTEXT = 128


def loss_of(form: str, hidden, table, labels):
    if form == "vanilla, every position":
        return projected_everywhere(hidden, table, labels)
    rows, targets = gather_rows(hidden, labels)
    if form == "vanilla, gathered":
        return ce_loss(rows, table, targets)
    return cwt_loss(rows, table, targets, sparse=True)


def measure(form: str, vocabulary: int, batch: int, repeats: int) -> dict:
    """{"ms", "peak"}: milliseconds a step, and MiB that a step adds to the model, its gradients and
    AdamW's moments.
    """
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    torch.manual_seed(0)
    gpu = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if gpu else ("cpu", torch.float32)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=2048,
    )
    model: Any = BertModel(config, add_pooling_layer=False)
    model.to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    law = 1 / (torch.arange(1, vocabulary + 1).double() + 2.7) ** 1.05
    ids = torch.multinomial(law, batch * CONTEXT, replacement=True).view(batch, CONTEXT).to(device)
    labels = ids.masked_fill(torch.rand(ids.shape, device=device) >= 0.15, -100)

    def step(rows: int) -> float:
        clock = time.perf_counter if gpu else time.process_time
        start = clock()
        optimizer.zero_grad(set_to_none=False)
        hidden = model(ids[:rows]).last_hidden_state
        loss_of(form, hidden, model.get_input_embeddings().weight, labels[:rows]).backward()
        optimizer.step()
        if gpu:
            torch.cuda.synchronize()
        return clock() - start

    step(1)  # makes gradients and moments, which every form has alike
    if gpu:
        torch.cuda.reset_peak_memory_stats()
        memory_before = torch.cuda.memory_allocated() / 2**20
    else:
        Path("/proc/self/clear_refs").write_text("5")
        memory_before = _status("VmRSS") / 1024
    seconds = statistics.median(step(batch) for _ in range(repeats))
    memory_after = torch.cuda.max_memory_allocated() / 2**20 if gpu else _status("VmHWM") / 1024
    return {"ms": 1000 * seconds, "peak": memory_after - memory_before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[20_000, 50_000, 100_000])
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument(
        "--one", nargs=3, metavar=("FORM", "V", "BATCH"), help="measure one cell and print JSON"
    )
    options = parser.parse_args()
    if options.one:
        form, vocabulary, batch = options.one
        print(json.dumps(measure(form, int(vocabulary), int(batch), options.repeats)))
        return
    print(f"{machine()}\n")
    heads = " | ".join(f"{form}: ms, MiB" for form in FORMS)
    print(
        f"| V | batch | {heads} | time: gathered / headless | every / headless | memory: gathered "
        "/ headless | every |"
    )
    print("|" + "---|" * 9)
    cells = [(vocabulary, max(options.batches)) for vocabulary in options.vocabularies]
    cells += [(50_000, batch) for batch in options.batches if (50_000, batch) not in cells]
    for vocabulary, batch in cells:
        measurements = []
        for form in FORMS:
            command = [
                sys.executable,
                __file__,
                "--one",
                form,
                str(vocabulary),
                str(batch),
                "--repeats",
                str(options.repeats),
            ]
            done = subprocess.run(
                command, capture_output=True, text=True, env=os.environ, check=True
            )
            measurements.append(json.loads(done.stdout))
        headless = measurements[0]
        numbers = " | ".join(
            f"{measurement['ms']:.0f}, {measurement['peak']:.0f}" for measurement in measurements
        )
        ratios = [
            f"{measurement[key] / headless[key]:.2f} x"
            for key in ("ms", "peak")
            for measurement in measurements[1:]
        ]
        print(f"| {vocabulary:,} | {batch} | {numbers} | {' | '.join(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
