"""What a run hangs into the Trainer besides the geometry: a clock that stops it, and its progress."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headscan.run import Progress

__all__ = ["ProgressCallback", "TimeLimit"]


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
