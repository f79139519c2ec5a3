"""Masked mixers need less memory than transformers as texts grow

Peak memory (beside the weights) and processor time of one forward and backward pass of a body,
batch 1, mixers against Llama with explicit (eager) and fused (sdpa) attention. The source reports,
on one GPU with d = 1024 and 8 blocks, 3,425 MB for the mixer and 10,126 MB for the transformer at
2,048 tokens, against attention that keeps its matrices.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _losses import _status, machine
from transformers import LlamaConfig, LlamaModel

from headscan.model.mixer import MixerConfig, MixerModel

KINDS = ["mixer", "llama, eager", "llama, sdpa"]


def measure(kind: str, context: int, width: int, blocks: int) -> dict:
    """{"seconds", "peak"} of one forward and backward pass over embeddings."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    common: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": width,
        "num_hidden_layers": blocks,
        "max_position_embeddings": context,
    }
    model: torch.nn.Module
    if kind == "mixer":
        model = MixerModel(MixerConfig(**common))
    else:
        config = LlamaConfig(
            **common, intermediate_size=4 * width, num_attention_heads=8, use_cache=False
        )
        config._attn_implementation = kind.split(", ")[1]
        model = LlamaModel(config)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    model(inputs_embeds=torch.randn(1, 8, width)).last_hidden_state.sum().backward()
    embeds = torch.randn(1, context, width)
    Path("/proc/self/clear_refs").write_text("5")
    memory_before = _status("VmRSS") / 1024
    start = time.process_time()
    model(inputs_embeds=embeds).last_hidden_state.square().mean().backward()
    return {"seconds": time.process_time() - start, "peak": _status("VmHWM") / 1024 - memory_before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument("--one", nargs=2, metavar=("KIND", "CONTEXT"))
    options = parser.parse_args()
    if options.one:
        print(
            json.dumps(measure(options.one[0], int(options.one[1]), options.width, options.blocks))
        )
        return
    print(f"d = {options.width}, {options.blocks} blocks, batch 1; {machine()}\n")
    print(
        f"| tokens | {' | '.join(f'{kind}: MiB, s' for kind in KINDS)} | eager / mixer, memory | "
        "sdpa / mixer, memory |"
    )
    print("|---|---|---|---|---|---|")
    for context in options.contexts:
        measurements = []
        for kind in KINDS:
            command = [
                sys.executable,
                __file__,
                "--width",
                str(options.width),
                "--blocks",
                str(options.blocks),
            ]
            done = subprocess.run(
                [*command, "--one", kind, str(context)],
                capture_output=True,
                text=True,
                check=True,
                env=os.environ,
            )
            measurements.append(json.loads(done.stdout))
        cells = " | ".join(
            f"{measurement['peak']:.0f}, {measurement['seconds']:.2f}"
            for measurement in measurements
        )
        ratios = " | ".join(
            f"{measurement['peak'] / measurements[0]['peak']:.2f} x"
            for measurement in measurements[1:]
        )
        print(f"| {context:,} | {cells} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
