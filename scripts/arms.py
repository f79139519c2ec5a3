"""Headless against vanilla: the same body, data, order and seed under two objectives, for the
scripts beside this file.

Both are compared at equal tokens (steps) and at equal processor time. Time is that of the process,
measurements left out: another load on the machine slows the clock on the wall, not this one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PrinterCallback, TrainerCallback, TrainingArguments, set_seed

from headscan.model import Lens
from headscan.training.data import PackedText, collate
from headscan.training.learner import Learner
from headscan.training.likelihood import perplexity
from headscan.training.losses import log_unigram
from headscan.training.objective import objective_of
from headscan.training.recipes import Recipe
from headscan.training.recovery import fit_head, recover_head
from headscan.training.run import build
from headscan.training.trainer import HeadlessTrainer
from headscan.training.trajectory import measure_sites

__all__ = ["BIASED", "HEADLESS_ARM", "TIED", "VANILLA", "Arm", "run_arm", "summary"]


@dataclass(frozen=True)
class Arm:
    """One side of the comparison: a name, an objective, whether a head is tied to the input table,
    and whether it has a bias, started at the log of the unigram probabilities (which a head without
    one must draw from the hidden states), and what is added to the loss.
    """

    name: str
    objective: str
    tied: bool | None = None
    bias: bool = False
    regulariser: str | None = None


VANILLA = Arm("vanilla", "ce", tied=False)
TIED = Arm("vanilla, tied head", "ce", tied=True)
BIASED = Arm("vanilla, unigram bias", "ce", tied=False, bias=True)
HEADLESS_ARM = Arm("headless", "cwt")


def run_arm(
    arm: Arm,
    plan: Recipe,
    data: PackedText,
    held_out: np.ndarray,
    tokenizer: Any,
    *,
    seed: int,
    folder: str,
    interval: int,
    seconds: float | None = None,
    finetune: int = 0,
    keep: list[Any] | None = None,
) -> list[dict[str, Any]]:
    """Train one arm; one point every `interval` steps: step, seconds, nats (by way of reading out),
    bits_per_byte, sites.

    seconds: go on past the recipe's steps until so much processor time is used (equal time); the
    learning rate is constant after its warm-up, so that every point is a fair end. finetune: steps
    of head recovery by cross-entropy, at the end. keep: a list that the trained model is appended
    to.
    """
    set_seed(seed)
    counts = data.counts(len(tokenizer))
    aim = objective_of(arm.objective)
    model = build(plan, aim, len(tokenizer), tied=arm.tied)
    if arm.bias:
        head = model.get_output_embeddings()
        head.bias = torch.nn.Parameter(log_unigram(counts, 0.5).to(head.weight.dtype))
    learner = Learner(model, aim, regulariser=arm.regulariser, masked=False, counts=counts)
    watcher = _Watch(model, held_out, tokenizer, counts, interval, plan.steps, seconds)
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=plan.steps if seconds is None else 100 * plan.steps,
        per_device_train_batch_size=plan.batch,
        learning_rate=plan.rate,
        warmup_steps=plan.warmup,
        lr_scheduler_type="constant_with_warmup",
        weight_decay=plan.weight_decay,
        adam_beta1=plan.betas[0],
        adam_beta2=plan.betas[1],
        max_grad_norm=plan.clip,
        seed=seed,
        data_seed=seed,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = HeadlessTrainer(
        learner, arguments, train_dataset=data, data_collator=collate, callbacks=[watcher]
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    if finetune and model.get_output_embeddings() is None:
        recovered = recover_head(model, "finetune", counts=counts)
        fit_head(recovered, data.rows, steps=finetune, batch=plan.batch, rate=1e-3, seed=seed)
        watcher.points[-1]["nats"]["finetuned"] = perplexity(recovered, held_out).nats_per_token
    if keep is not None:
        keep.append(model)
    return watcher.points


class _Watch(TrainerCallback):
    """The clock, which stands still while the model is measured, and the points."""

    def __init__(self, model, held_out, tokenizer, counts, interval, steps, seconds):
        self.model = model
        self.held_out = held_out
        self.words = tokenizer
        self.counts = counts
        self.every = interval
        self.steps = steps
        self.seconds = seconds
        self.points: list[dict[str, Any]] = []
        self.used = 0.0

    def on_train_begin(self, args, state, control, **_):
        self.mark = time.process_time()

    def on_step_end(self, args, state, control, **_):
        now = self.used + time.process_time() - self.mark
        over = self.seconds is not None and now >= self.seconds and state.global_step >= self.steps
        due = state.global_step % self.every == 0 or state.global_step == self.steps
        if due or over:
            self.used = now
            self.points.append(
                {"step": state.global_step, "seconds": round(now, 2), **self._measure()}
            )
            self.mark = time.process_time()
        if over:
            control.should_training_stop = True

    def _measure(self) -> dict[str, Any]:
        with torch.random.fork_rng():
            if self.model.get_output_embeddings() is not None:
                readings = {"head": perplexity(self.model, self.held_out, self.words)}
            else:
                readings = {
                    mode: perplexity(
                        recover_head(self.model, mode, counts=self.counts),
                        self.held_out,
                        self.words,
                    )
                    for mode in ("tied", "bias")
                }
            sites = measure_sites(Lens(self.model, name="twin"), self.held_out[:24])
        return {
            "nats": {name: loss.nats_per_token for name, loss in readings.items()},
            "bits_per_byte": {name: loss.bits_per_byte for name, loss in readings.items()},
            "sites": [dict(site) for site in sites],
        }


def summary(values: Iterable[float]) -> dict[str, Any]:
    """Mean and 95 % interval (Student's t over seeds) of a few values.

    >>> summary([1.0, 2.0, 3.0])["interval"]
    [-0.4841, 4.4841]
    """
    from scipy import stats

    numbers = np.asarray(list(values), dtype=float)
    mean = float(numbers.mean())
    n = len(numbers)
    if n < 2:
        return {"mean": mean, "interval": None, "n": n}
    half = float(stats.t.ppf(0.975, n - 1) * numbers.std(ddof=1) / np.sqrt(n))
    return {"mean": mean, "interval": [round(mean - half, 4), round(mean + half, 4)], "n": n}
