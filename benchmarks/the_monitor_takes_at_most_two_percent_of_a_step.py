"""What the families of the monitor cost a step, at their default clocks and together.

A GPT-2 of width 256 and 4 blocks and a Mixtral of the same width (4 experts, 2 blocks) are trained
on windows of 256 tokens, 8 a step. Each family is read in every step of its own turn; turns with
and without it alternate, and processor seconds of the one thread are compared. A family's cost of a
step is its cost of a reading over its clock. What the monitor does in steps that are on no clock
(the hook of `repeated` looks at every window) is far below what two equal steps differ by, some
hundredths under load: its calls are timed by themselves, without the step. Argument: turns (8).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _table import show
from transformers import GPT2Config, GPT2LMHeadModel, MixtralConfig, MixtralForCausalLM

from headscan.model import Lens
from headscan.training import FAMILIES
from headscan.training.monitor.readings import Readings

SPECIAL: dict[str, Any] = {
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "vocab_size": 2048,
}
MIXTRAL: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 256,
}


def seconds(
    model: Any, optimiser: torch.optim.Optimizer, reader: Readings | None, step: int
) -> float:
    """Processor seconds of one step."""
    rows = torch.randint(2048, (8, 256))
    start = time.process_time()
    if reader is not None:
        reader.begin(step)
    model(input_ids=rows, labels=rows).loss.backward()
    if reader is not None:
        reader.before(step)
    optimiser.step()
    optimiser.zero_grad()
    if reader is not None:
        reader.after(step)
        reader.harvest()
    return time.process_time() - start


def off_the_clock(model: Any, reader: Readings) -> float:
    """Processor seconds that a step on no clock takes beside the model's own."""
    rows = torch.randint(2048, (8, 256))
    took = []
    for _ in range(200):
        start = time.process_time()
        reader.begin(7)
        for hook in reader.scene.lens.model.base_model._forward_pre_hooks.values():
            hook(model, (), {"input_ids": rows})
        reader.before(7)
        reader.after(7)
        reader.harvest()
        took.append(time.process_time() - start)
    return float(np.median(took))


def main() -> None:
    """Measure, and print both tables."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    torch.set_num_threads(1)
    makers: dict[str, Callable[[], torch.nn.Module]] = {
        "GPT-2": lambda: GPT2LMHeadModel(
            GPT2Config(n_embd=256, n_layer=4, n_head=8, n_positions=256, **SPECIAL)
        ),
        "Mixtral": lambda: MixtralForCausalLM(MixtralConfig(**MIXTRAL, **SPECIAL)),
    }
    for title, make in makers.items():
        model = make().train()
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
        lens = Lens(model)
        names = [name for name in FAMILIES.names() if title == "Mixtral" or name != "expert_load"]
        readers: dict[str, Readings | None] = {"none": None} | {
            name: Readings(lens, name) for name in names
        }
        took: dict[str, list[float]] = {name: [] for name in readers}
        for turn in range(turns + 1):
            for name, reader in readers.items():
                spent = seconds(model, optimiser, reader, 1)  # step 1 is on every clock
                took[name] += [spent] if turn else []
        plain = np.array(took["none"])
        rows = []
        total = 0.0
        for name, reader in readers.items():
            if reader is None:
                continue
            clock = reader.families[0].every
            extra = (np.array(took[name]) - plain) / np.median(plain)
            share = float(np.median(extra)) / clock
            total += max(0.0, share)
            of_a_reading = float(np.median(extra))
            rows.append(
                {
                    "model": title,
                    "family": name,
                    "every": clock,
                    "reading_in_steps": of_a_reading,
                    "share_of_a_step": share,
                }
            )
        share = off_the_clock(model, Readings(lens, "*")) / float(np.median(plain))
        total += share
        rows.append(
            {
                "model": title,
                "family": "off the clock",
                "every": 1,
                "reading_in_steps": share,
                "share_of_a_step": share,
            }
        )
        rows.append(
            {
                "model": title,
                "family": "all",
                "every": "",
                "reading_in_steps": "",
                "share_of_a_step": total,
            }
        )
        show(rows)
        print(f"{title}: {total:.2%} of a step of {np.median(plain):.2f} processor seconds\n")


if __name__ == "__main__":
    main()
