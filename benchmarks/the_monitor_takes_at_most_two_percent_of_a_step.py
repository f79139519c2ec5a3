"""What the families of the monitor cost a step, together, and what a measurement costs.

A GPT-2 of width 256 and 4 blocks and a Mixtral of the same width (4 experts, 2 blocks) are trained
on windows of 256 tokens, 8 a step. Each family is read in every step of its own turn, and its calls
are timed by themselves, in processor seconds of the one thread: two equal steps differ by several
hundredths under load. A family's cost of a step is its cost of a reading over its clock. Steps on
no clock copy their windows for `repeated`. A measurement is of 32 windows, and is compared with a
step of 16,384 tokens. Argument: turns (8).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from _table import show
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, MixtralConfig, MixtralForCausalLM

from headscan.model import Lens
from headscan.training import FAMILIES, Watch
from headscan.training.monitor import attention
from headscan.training.monitor.attention import look_at
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


class TimedReadings(Readings):
    """Readings that time what they do: by themselves, for two equal steps differ by more."""

    spent = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, whose processor seconds are added to those spent."""

        def call(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                self.spent += time.process_time() - start

        return call

    def _see(self, working: Any) -> Any:
        return self.timed(super()._see(working))

    def _attend(self, working: Any) -> Any:
        return self.timed(super()._attend(working))

    def _route(self, block: str, working: Any) -> Any:
        return self.timed(super()._route(block, working))

    def _enter(self, step: int, *, counting: bool) -> Any:
        return self.timed(super()._enter(step, counting=counting))


def step_seconds(
    model: Any, optimiser: torch.optim.Optimizer, rows: Tensor, reader: TimedReadings, step: int
) -> tuple[float, float]:
    """Return the processor seconds of one step without the reader's, and those of the reader."""
    reader.spent = 0.0
    start = time.process_time()
    with mock.patch.object(attention, "look_at", reader.timed(look_at)):
        reader.timed(reader.begin)(step)
        model(input_ids=rows, labels=rows).loss.backward()
        reader.timed(reader.before)(step)
        optimiser.step()
        optimiser.zero_grad()
        reader.timed(reader.after)(step)
        reader.timed(reader.harvest)()
    return time.process_time() - start - reader.spent, reader.spent


def family_rows(title: str, model: Any, turns: int) -> list[dict[str, Any]]:
    """Return the rows of the families' table, and print their sum."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    lens = Lens(model)
    names = [name for name in FAMILIES.names() if title == "Mixtral" or name != "expert_load"]
    readers = {name: TimedReadings(lens, name) for name in names}
    plain: list[float] = []
    spent: dict[str, list[float]] = {name: [] for name in [*names, "off the clock"]}
    for turn in range(turns + 1):
        for name, reader in readers.items():
            rows = torch.randint(2048, (8, 256))
            # step 1 is on every clock
            step, reading = step_seconds(model, optimiser, rows, reader, 1)
            if turn:
                plain.append(step)
                spent[name].append(reading)
        for _ in range(3):
            rows = torch.randint(2048, (8, 256))
            _, reading = step_seconds(model, optimiser, rows, TimedReadings(lens, "*"), 7)
            spent["off the clock"].append(reading)
    table: list[dict[str, Any]] = []
    whole = float(np.median(plain))
    for name, readings in spent.items():
        of_a_reading = float(np.median(readings)) / whole
        clock = 1 if name == "off the clock" else readers[name].families[0].every
        table.append(
            {
                "model": title,
                "family": name,
                "every": clock,
                "reading_in_steps": of_a_reading,
                "share_of_a_step": of_a_reading / clock,
            }
        )
    total = sum(row["share_of_a_step"] for row in table)
    print(f"{title}: {total:.2%} of a step of {whole:.2f} processor seconds\n")
    return table


def measurement_row(title: str, model: Any) -> dict[str, Any]:
    """Return what one measurement of 32 windows costs, in steps of 16,384 tokens."""
    windows = np.random.default_rng(0).integers(0, 2048, (32, 256))
    watch = Watch(model, windows, families="")
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    took = []
    for number in range(3):
        start = time.process_time()
        watch.measure(number)
        took.append(time.process_time() - start)
    start = time.process_time()
    for _ in range(8):
        rows = torch.randint(2048, (8, 256))
        model(input_ids=rows, labels=rows).loss.backward()
    optimiser.step()
    step = time.process_time() - start
    return {
        "model": title,
        "seconds_of_a_measurement": min(took),
        "seconds_of_a_step": step,
        "in_steps": min(took) / step,
    }


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
    rows = []
    measurements = []
    for title, make in makers.items():
        model = make().train()
        rows += family_rows(title, model, turns)
        measurements.append(measurement_row(title, model))
    show(rows)
    print()
    show(measurements)


if __name__ == "__main__":
    main()
