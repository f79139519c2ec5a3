"""
For the engineer on call: debug a training alarm
================================================

A small model trains in a plain ``transformers.Trainer``. A broken shard gets into the data: one
batch again and again. The loss falls faster than ever, so nobody who looks at
the loss is alarmed. The monitor is one line; it names the cause, keeps a checkpoint and stops the
run. Then the shard is repaired and the run goes on from that checkpoint.
"""

# %%
# The run, and what happens to its data
# -------------------------------------
import json
import tempfile
from pathlib import Path

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from headscan.model import ByteTokenizer
from headscan.text import Windows
from headscan.training import Monitor, PackedText, collate

ids = next(iter(Windows("stories", ByteTokenizer(), 64 * 960))).ids.reshape(-1, 64)
held_out = ids[-64:]
folder = Path(tempfile.mkdtemp())


class Shards(torch.utils.data.Dataset):
    """Windows in their order; from window 240 on the same eight, where the shard is broken."""

    def __init__(self, broken: bool) -> None:
        self.broken = broken
        self.rows = PackedText(ids[:896])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.rows[240 + index % 8 if self.broken and index >= 240 else index]


class InOrder(Trainer):
    """A Trainer that reads its windows in their order."""

    def _get_train_sampler(self, train_dataset=None):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def trainer(broken: bool) -> tuple[Trainer, Monitor]:
    """The training script: the monitor is one line."""
    set_seed(0)
    torch.set_num_threads(1)
    special = {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_embd=32, n_layer=2, n_head=2, n_positions=64, **special)
    )
    arguments = TrainingArguments(
        str(folder),
        max_steps=80,
        per_device_train_batch_size=8,
        learning_rate=2e-3,
        warmup_steps=10,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_steps=5,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    new_trainer = InOrder(model, arguments, train_dataset=Shards(broken), data_collator=collate)
    new_trainer.remove_callback(PrinterCallback)
    monitor = Monitor(new_trainer, held_out, every=20, on_alarm={"repeated": "stop"})
    new_trainer.add_callback(monitor)
    return new_trainer, monitor


# %%
# The run with the broken shard
# -----------------------------
broken_run, monitor = trainer(broken=True)
broken_run.train()
print("steps taken:", broken_run.state.global_step)
print(
    "losses:",
    [round(entry["loss"], 2) for entry in broken_run.state.log_history if "loss" in entry],
)
for alarm in monitor.raised:
    print(alarm.code, alarm.name, f"after step {alarm.step}:", alarm.sentence)

# %%
# What the monitor read
# ---------------------
# The numbers of every family lie in monitor.jsonl, and in the Trainer's log (and so in TensorBoard,
# W&B, trackio) under ``headscan/``. Here is what the alarm is based on.
readings = [json.loads(line) for line in (folder / "monitor.jsonl").read_text().splitlines()]
for reading in readings:
    if reading["family"] == "repeated":
        print("step", reading["step"], reading["values"])
shares = next(reading["values"] for reading in readings if reading["family"] == "gradient_share")
print("the gradient's share by block:", {name: round(value, 2) for name, value in shares.items()})

# %%
# The restart
# -----------
# The shard is repaired, and the run goes on from the checkpoint that the alarm kept. The monitor
# reads its own history from the files, and raises no new alarm.
checkpoint = folder / f"checkpoint-{broken_run.state.global_step}"
day, again = trainer(broken=False)
day.train(resume_from_checkpoint=str(checkpoint))
print("steps taken:", day.state.global_step)
print(
    "new alarms:",
    [alarm.name for alarm in again.raised if alarm.step > broken_run.state.global_step],
)
