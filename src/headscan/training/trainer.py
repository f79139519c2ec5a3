"""transformers' Trainer for a Learner: pooled negatives, more columns in the log, checkpoints that
load anywhere.
"""

import logging
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import RandomSampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, has_length, rotate_checkpoints

from headscan.model.source import quiet
from headscan.run import BadInput, Progress, Run
from headscan.run.parts import Parts
from headscan.statistics.distributed import agreed
from headscan.training.checkpoints import (
    EXTRA,
    STATE,
    WEIGHTS,
    Notes,
    is_write_failure,
    last_checkpoint,
    seal,
)
from headscan.training.learner import Learner
from headscan.training.losses import IGNORE, gather_ids
from headscan.training.optimisers import Optimiser, optimiser_of

log = logging.getLogger(__name__)

SUMS = ("loss", "targets", "floor", "accuracy", "penalty")
"""Numbers that are added up between two lines of the log."""

LOG_COLUMNS = {"accuracy": "in_batch_accuracy", "penalty": "penalty"}
"""Columns of the log that are a sum over the targets."""


class LossIsNotFinite(BadInput):
    """Training was stopped because its loss became NaN or infinite."""


class HeadlessTrainer(Trainer):
    """A `transformers.Trainer` whose model is a `Learner`; DDP, FSDP, mixed precision and resuming
    are the Trainer's own.

    pool: where negatives come from. "batch": this micro-batch on this process (as published).
    "accumulation": all micro-batches of the step. "devices": all processes. "all": both, so that
    the loss of a step depends on its windows and not on how they were cut up. Targets are known
    before the forward pass, so no second pass is needed. Checkpoints hold the model alone
    (`AutoModel.from_pretrained` loads them), the objective's own parameters in
    objective.safetensors, and what the `run` rests on: text, tokenizer, weights at the start,
    settings; they are taken up where all of that is the same. A NaN loss stops training before it
    reaches the weights; a full disk loses nothing older.
    """

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: Learner,
        arguments: TrainingArguments,
        *,
        pool: str = "batch",
        optimiser: Optimiser | str = "adamw",
        run: Run | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, arguments, **options)
        self.pool = pool
        self._optimiser = optimiser_of(optimiser)
        self._run = run or Run.quiet()
        self._sums: dict[str, float] = {}

    def _learner(self, model: nn.Module | None = None) -> Learner:
        learner: Learner = self.accelerator.unwrap_model(self.model if model is None else model)
        return learner

    def _get_train_sampler(self, train_dataset: Any = None) -> RandomSampler | None:
        """Return a sampler of every window at most once an epoch, in whole steps only; the few
        windows that are left out are drawn anew each epoch.

        A short step at the end of an epoch would compare with fewer negatives: its contrastive loss
        falls (by log of the share that is missing) without the model being any better.
        """
        data = self.train_dataset if train_dataset is None else train_dataset
        if not has_length(data):
            return None
        windows_a_step = (
            self.args.train_batch_size
            * self.args.gradient_accumulation_steps
            * self.args.world_size
        )
        in_whole_steps = len(data) // windows_a_step * windows_a_step
        return RandomSampler(data, num_samples=in_whole_steps or len(data))

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        own_rate = self._learner(model).objective.own_rate
        if self.optimizer is None and (self._optimiser.name != "adamw" or own_rate is not None):
            self.optimizer = self._optimiser.make(
                self._learner(model),
                rate=self.args.learning_rate,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                epsilon=self.args.adam_epsilon,
                decay=self.args.weight_decay,
            )
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        return optimizer

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], None]:
        """Return the micro-batches of one step, each with its share of the loss and the pool of
        target ids that it is compared with.
        """
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        learner = self._learner()
        targets = [_targets(batch["labels"], learner.masked) for batch in batches]
        total = sum(len(target_ids) for target_ids in targets)
        world = self.args.world_size
        if world > 1:
            # Each process weighs by its targets: DDP's mean of the gradients is then the mean over
            # all targets.
            all_targets = torch.tensor([total], device=device)
            torch.distributed.all_reduce(all_targets)
            total = int(all_targets)
        for batch in batches:
            batch["share"] = torch.tensor(world / max(total, 1))
        if learner.objective.contrastive and self.pool != "batch":
            pools = self._pools(targets, device)
            for batch, pool in zip(batches, pools, strict=True):
                batch["pool"] = pool
        return batches, None

    def _pools(self, targets: list[Tensor], device: torch.device) -> list[Tensor]:
        """Return the pool of each micro-batch."""
        if self.pool == "devices":
            return [gather_ids(target_ids.to(device)) for target_ids in targets]
        pool = torch.cat(targets).to(device)
        if self.pool != "accumulation":
            pool = gather_ids(pool)
        return [pool] * len(targets)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        outputs = model(**inputs)
        loss = outputs["loss"]
        if model.training:
            value = float(loss.detach())
            if not math.isfinite(value):
                raise LossIsNotFinite(
                    f"The loss is {value} at step {self.state.global_step + 1}: training stopped "
                    "before the weights took it up. Lower the learning rate (now "
                    f"{self._rate()}); the last checkpoint is intact."
                )
            self._add_to_sums(value, inputs, outputs)
        return (loss, outputs) if return_outputs else loss

    def _add_to_sums(self, loss: float, inputs: dict[str, Any], outputs: dict[str, Tensor]) -> None:
        """Add a micro-batch to the sums of the log line under way, each number per target."""
        targets = float(outputs["targets"])
        share = float(inputs["share"]) if "share" in inputs else 1 / max(targets, 1)
        sums = {
            name: targets * float(outputs[name])
            for name in ("floor", "accuracy", "penalty")
            if name in outputs
        }
        # The loss per target of this process, as a mean over this micro-batch would have it, the
        # regulariser apart.
        all_sums = {"loss": loss / share - sums.get("penalty", 0.0), "targets": targets} | sums
        for name, value in all_sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def _rate(self) -> str:
        return f"{self.optimizer.param_groups[0]['lr']:.2g}" if self.optimizer else "unset"

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            sums = self._over_processes(self._sums)
            self._sums = {}
            targets = sums.get("targets")
            if targets:
                logs["loss"] = sums["loss"] / targets
                logs["floor_corrected_loss"] = (sums["loss"] - sums.get("floor", 0.0)) / targets
                for name, column in LOG_COLUMNS.items():
                    if name in sums:
                        logs[column] = sums[name] / targets
        super().log(logs, start_time)

    def _over_processes(self, sums: dict[str, float]) -> dict[str, float]:
        """Return the sums of all processes: the curve is then that of the one large batch."""
        if self.args.world_size == 1:
            return sums
        on_apple = self.args.device.type == "mps"  # has no float64
        dtype = torch.float32 if on_apple else torch.float64
        totals = torch.tensor([sums.get(name, 0.0) for name in SUMS], dtype=torch.float64)
        totals = totals.to(self.args.device, dtype)
        torch.distributed.all_reduce(totals)
        names = {*sums, "loss", "targets"}
        return {
            name: float(total) for name, total in zip(SUMS, totals, strict=True) if name in names
        }

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None
    ) -> None:
        if not self.args.should_save:
            return
        folder = Path(output_dir or str(self.args.output_dir))
        learner = self._learner()
        model_state = None
        if state_dict is not None:
            # FSDP has gathered the weights, under the names that the Learner has for them.
            model_state = {
                name.removeprefix("model."): tensor
                for name, tensor in state_dict.items()
                if name.startswith("model.")
            }
        folder.mkdir(parents=True, exist_ok=True)
        with quiet():
            learner.model.save_pretrained(folder, state_dict=model_state)
        if learner.extra is not None:
            tensors = learner.extra.state_dict()
            contiguous = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
            save_file(contiguous, folder / EXTRA)
        if self.processing_class is not None:
            self.processing_class.save_pretrained(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        folder = Path(resume_from_checkpoint)
        notes = Notes.read(folder)
        self._run.compare(notes.identity)
        # The stored sums are those of all processes.
        self._sums = notes.sums if self.is_world_process_zero() else {}
        if self.is_fsdp_enabled:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        if not (folder / WEIGHTS).exists():
            raise BadInput(f"{folder} holds no {WEIGHTS}, so training cannot go on from it.")
        learner = self._learner(model or self.model)
        options: dict[str, Any] = {}
        if getattr(learner.model, "pooler", self) is None:
            # A BERT without its pooler would be given a new one, and then not fit.
            options["add_pooling_layer"] = False
        stored = type(learner.model).from_pretrained(folder, dtype=torch.float32, **options)
        learner.model.load_state_dict(stored.state_dict())
        learner.model.tie_weights()
        if learner.extra is not None:
            learner.extra.load_state_dict(load_file(folder / EXTRA))

    def take_up(self, checkpoint: Path) -> bool:
        """Load the checkpoint of a run that is over, where the Trainer would take one more step;
        return False where steps are left.
        """
        state = TrainerState.load_from_json(str(checkpoint / STATE))
        if state.global_step < self.args.max_steps or self.is_fsdp_enabled:
            return False
        self._load_from_checkpoint(str(checkpoint))
        if self.args.should_save:
            # A kill may have come before older checkpoints had gone.
            rotate_checkpoints(str(checkpoint.parent), self.args.save_total_limit)
        self.state = state
        state.is_world_process_zero = self.is_world_process_zero()
        state.is_local_process_zero = self.is_local_process_zero()
        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        return True

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save; a full disk costs this checkpoint, no older one, and not the run."""
        output_dir = Path(self._get_output_dir(trial=trial))
        folder = output_dir / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        sums = self._over_processes(self._sums)
        limit = self.args.save_total_limit
        try:
            if self.args.should_save:
                Notes(self._run.identity, sums).write(folder)
            # Older checkpoints go when this one has its checksums, not before.
            self.args.save_total_limit = None
            super()._save_checkpoint(model, trial)
            if self.args.should_save:
                seal(folder)
                rotate_checkpoints(str(folder.parent), limit, self.state.best_model_checkpoint)
        except Exception as error:
            if not is_write_failure(error):
                raise
            shutil.rmtree(folder, ignore_errors=True)
            whole = last_checkpoint(folder.parent)
            advice = "there is no earlier one: free some disk space"
            if whole is not None:
                advice = f"the last whole one is {whole}"
            log.warning(
                "Checkpoint %s could not be written (%s). Training goes on; %s.",
                folder.name,
                error,
                advice,
            )
        finally:
            self.args.save_total_limit = limit


def _targets(labels: Tensor, masked: bool) -> Tensor:
    if not masked:
        labels = labels[:, 1:]
    return labels[labels != IGNORE]


class StoreInTime(TrainerCallback):
    """A callback that stores a checkpoint from the 10th second on, between those of `save_steps`,
    where storing stays at 2 % of the time.

    The cost of a checkpoint is estimated as that of the last one, and of the first one by its
    `size` in bytes. The first process decides for all.
    """

    def __init__(self, size: float) -> None:
        self.cost = size / Parts.RATE
        self.spent = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.training_start = time.monotonic()
        self.save_start = self.training_start
        self.next = self.training_start + Parts.FIRST

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        now = time.monotonic()
        affordable = self.spent + self.cost <= Parts.SHARE * (now - self.training_start)
        due = now >= self.next and affordable
        self.save_start = now
        control.should_save |= bool(agreed(int(due)))

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        now = time.monotonic()
        self.cost = now - self.save_start
        self.next = now + Parts.FIRST
        self.spent += self.cost


class ProgressCallback(TrainerCallback):
    """A callback that reports after every step how many tokens were read, and the last loss."""

    def __init__(self, progress: Progress, tokens_per_step: int) -> None:
        self.progress = progress
        self.tokens_per_step = tokens_per_step
        self.loss = ""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        if logs and "loss" in logs:
            self.loss = f" · loss {logs['loss']:.3f}"

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.is_world_process_zero:
            self.progress(
                f"training{self.loss}",
                state.global_step * self.tokens_per_step,
                state.max_steps * self.tokens_per_step,
                "tokens",
            )
