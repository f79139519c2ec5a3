"""What a run hangs into the Trainer besides the geometry: a clock that stops it, one that stores, and its progress."""

from __future__ import annotations

import time
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headscan.run import Progress
from headscan.run.parts import Parts

__all__ = ["ProgressCallback", "StoreInTime", "TimeLimit"]


class TimeLimit(TrainerCallback):
    """Stop at the end of the first step that ends after `seconds` of training."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock."""
        self.end = time.monotonic() + self.seconds

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop where the time is over."""
        if time.monotonic() > self.end:
            control.should_training_stop = True


class StoreInTime(TrainerCallback):
    """Store a checkpoint from the 10th second on, between those of --save-every, where storing stays at 2 % of the time.

    What one costs is what the last one took; of the first one it is guessed from its `size` in bytes. The first of several
    processes decides for all.
    """

    def __init__(self, size: float) -> None:
        self.cost, self.spent = size / Parts.RATE, 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the clock."""
        self.begun = self.began = time.monotonic()
        self.next = self.begun + Parts.FIRST

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Ask for a checkpoint where it is time; the Trainer's own wish to store came before."""
        self.began = time.monotonic()
        affordable = self.spent + self.cost <= Parts.SHARE * (self.began - self.begun)
        due = self.began >= self.next and affordable
        if args.world_size > 1:
            agreed = torch.tensor([int(due)], device=args.device)
            torch.distributed.broadcast(agreed, 0)
            due = bool(agreed)
        control.should_save = control.should_save or due

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Take the time that it took."""
        now = time.monotonic()
        self.cost, self.next = now - self.began, now + Parts.FIRST
        self.spent += self.cost


class ProgressCallback(TrainerCallback):
    """Tell `progress` after every step how many tokens were seen; the stage's name ends in the last loss."""

    def __init__(self, progress: Progress, tokens_per_step: int) -> None:
        self.progress, self.size, self.loss = progress, tokens_per_step, ""

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl,
        logs: dict[str, float] | None = None, **_: Any,
    ) -> None:  # fmt: skip
        """Take up the loss."""
        if logs and "loss" in logs:
            self.loss = f" · loss {logs['loss']:.3f}"

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Tell it."""
        if state.is_world_process_zero:
            self.progress(f"training{self.loss}", state.global_step * self.size, state.max_steps * self.size, "tokens")
