"""What a run hangs into the Trainer besides the geometry: a clock that stops it, and its progress."""

from __future__ import annotations

import time
from collections.abc import Callable

from transformers import TrainerCallback

__all__ = ["Clock", "Progress"]


class Clock(TrainerCallback):
    """Stop at the end of the first step that ends after `seconds` of training."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def on_train_begin(self, args, state, control, **_):
        """Start the clock."""
        self.end = time.monotonic() + self.seconds

    def on_step_end(self, args, state, control, **_):
        """Stop where the time is over."""
        if time.monotonic() > self.end:
            control.should_training_stop = True


class Progress(TrainerCallback):
    """Tell `progress(name, done, all)` after every step how many tokens were seen; the name ends in the last loss."""

    def __init__(self, progress: Callable[[str, int, int | None], None], tokens_per_step: int):
        self.progress, self.size, self.loss = progress, tokens_per_step, ""

    def on_log(self, args, state, control, logs=None, **_):
        """Take up the loss."""
        if logs and "loss" in logs:
            self.loss = f" · loss {logs['loss']:.3f}"

    def on_step_end(self, args, state, control, **_):
        """Tell it."""
        if state.is_world_process_zero:
            self.progress(f"training{self.loss}", state.global_step * self.size, state.max_steps * self.size)
