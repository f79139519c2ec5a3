"""transformers' Trainer for a Learner: pooled negatives, monitors in the log, checkpoints that load
anywhere.
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
from headscan.statistics.accumulator import agreed
from headscan.training.checkpoints import (
    EXTRA,
    STATE,
    WEIGHTS,
    Notes,
    is_write_failure,
    last_checkpoint,
    seal,
)
from headscan.training.learner import Learner, Optimiser, optimiser_of
from headscan.training.losses import IGNORE, gather_ids

log = logging.getLogger(__name__)
SUMS = (
    "loss",
    "targets",
    "floor",
    "accuracy",
    "penalty",
)  # what is added up between two lines of the log


class LossIsNotFinite(BadInput):
    """Training was stopped because its loss became NaN or infinite."""


class HeadlessTrainer(Trainer):
    """A `transformers.Trainer` whose model is a `Learner`. What the Trainer does (DDP, FSDP, mixed
    precision, resuming) stays.

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

    def _get_train_sampler(self, train_dataset: Any = None) -> RandomSampler | None:
        """Every window at most once an epoch, and whole steps only: which few are left out is drawn
        anew each epoch.

        A short step at the end of an epoch would compare with fewer negatives: its contrastive loss
        falls (by log of the share that is missing) without the model being any better.
        """
        data = self.train_dataset if train_dataset is None else train_dataset
        if not has_length(data):
            return None
        step = (
            self.args.train_batch_size
            * self.args.gradient_accumulation_steps
            * self.args.world_size
        )
        return RandomSampler(data, num_samples=len(data) // step * step or len(data))

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        learner: Learner = self.accelerator.unwrap_model(self.model if model is None else model)
        if self.optimizer is None and (
            self._optimiser.name != "adamw" or learner.objective.own_rate is not None
        ):
            self.optimizer = self._optimiser.make(
                learner,
                rate=self.args.learning_rate,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                epsilon=self.args.adam_epsilon,
                decay=self.args.weight_decay,
            )
        made: torch.optim.Optimizer = super().create_optimizer(model)
        return made

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], None]:
        """The micro-batches of one step, each with the pool of target ids it is to be compared
        with, and its share.
        """
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        learner: Learner = self.accelerator.unwrap_model(self.model)
        targets = [_targets(batch["labels"], learner.masked) for batch in batches]
        total = sum(len(each) for each in targets)
        world = self.args.world_size
        if (
            batches and world > 1
            # by its targets each process weighs: DDP's mean of the gradients is that over all
            # targets
        ):
            everyone = torch.tensor([total], device=device)
            torch.distributed.all_reduce(everyone)
            total = int(everyone)
        for batch in batches:
            batch["share"] = torch.tensor(world / max(total, 1))
        if learner.objective.contrastive and self.pool != "batch" and batches:
            pools = targets if self.pool == "devices" else [torch.cat(targets)]
            pools = [
                pool.to(device) if self.pool == "accumulation" else gather_ids(pool.to(device))
                for pool in pools
            ]
            for batch, pool in zip(
                batches, pools if self.pool == "devices" else pools * len(batches), strict=True
            ):
                batch["pool"] = pool
        return batches, None

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        answer = model(**inputs)
        loss = answer["loss"]
        if model.training:
            value = float(loss.detach())
            if not math.isfinite(value):
                raise LossIsNotFinite(
                    f"The loss is {value} at step {self.state.global_step + 1}: training stopped "
                    "before the weights "
                    f"took it up. Lower the learning rate (now {self._rate()}); the last "
                    "checkpoint is intact."
                )
            weight = float(answer["targets"])
            share = float(inputs["share"]) if "share" in inputs else 1 / max(weight, 1)
            parts = {name: weight * float(answer[name]) for name in SUMS[2:] if name in answer}
            # Per target, of this process: what the loss would be as a mean over this micro-batch,
            # the regulariser apart.
            parts = {"loss": value / share - parts.get("penalty", 0.0), "targets": weight} | parts
            self._sums |= {name: self._sums.get(name, 0.0) + part for name, part in parts.items()}
        return (loss, answer) if return_outputs else loss

    def _rate(self) -> str:
        return f"{self.optimizer.param_groups[0]['lr']:.2g}" if self.optimizer else "unset"

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        sums: dict[str, float] = {}
        if "loss" in logs:
            sums = self._over_processes(self._sums)
            self._sums = {}
        if weight := sums.get("targets"):
            logs["loss"] = sums["loss"] / weight
            logs["floor_corrected_loss"] = (sums["loss"] - sums.get("floor", 0.0)) / weight
            for name, column in {"accuracy": "in_batch_accuracy", "penalty": "penalty"}.items():
                if name in sums:
                    logs[column] = sums[name] / weight
        super().log(logs, start_time)

    def _over_processes(self, sums: dict[str, float]) -> dict[str, float]:
        """The sums of all processes: the curve is then that of the one large batch."""
        if self.args.world_size == 1:
            return sums
        found = torch.tensor([sums.get(name, 0.0) for name in SUMS], dtype=torch.float64)
        found = found.to(
            self.args.device, torch.float32 if self.args.device.type == "mps" else torch.float64
        )
        torch.distributed.all_reduce(found)
        kept = {*sums, "loss", "targets"}
        return {name: float(value) for name, value in zip(SUMS, found, strict=True) if name in kept}

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None
    ) -> None:
        folder = Path(output_dir or str(self.args.output_dir))
        learner: Learner = self.accelerator.unwrap_model(self.model)
        if not self.args.should_save:
            return
        inner = None
        if state_dict is not None:  # gathered by FSDP, under the names the Learner has for them
            inner = {
                name[len("model.") :]: value
                for name, value in state_dict.items()
                if name.startswith("model.")
            }
        folder.mkdir(parents=True, exist_ok=True)
        with quiet():
            learner.model.save_pretrained(folder, state_dict=inner)
        if learner.extra is not None:
            own = learner.extra.state_dict()
            save_file(
                {name: value.contiguous().cpu() for name, value in own.items()}, folder / EXTRA
            )
        if self.processing_class is not None:
            self.processing_class.save_pretrained(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        notes = Notes.read(folder := Path(resume_from_checkpoint))
        self._run.compare(notes.identity)
        self._sums = notes.sums if self.is_world_process_zero() else {}  # they are of all processes
        if self.is_fsdp_enabled:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        learner: Learner = self.accelerator.unwrap_model(model or self.model)
        if not (folder / WEIGHTS).exists():
            raise BadInput(f"{folder} holds no {WEIGHTS}, so training cannot go on from it.")
        # A BERT without its pooler would be given a new one, and then not fit.
        bare: dict[str, Any] = (
            {"add_pooling_layer": False} if getattr(learner.model, "pooler", self) is None else {}
        )
        loaded = type(learner.model).from_pretrained(folder, dtype=torch.float32, **bare)
        learner.model.load_state_dict(loaded.state_dict())
        learner.model.tie_weights()
        if learner.extra is not None:
            learner.extra.load_state_dict(load_file(folder / EXTRA))

    def take_up(self, checkpoint: Path) -> bool:
        """Load the checkpoint of a run that is over, where the Trainer would take one more step;
        False where steps are left.
        """
        state = TrainerState.load_from_json(str(checkpoint / STATE))
        if state.global_step < self.args.max_steps or self.is_fsdp_enabled:
            return False
        self._load_from_checkpoint(str(checkpoint))
        if self.args.should_save:  # a kill may have come before older ones had gone
            rotate_checkpoints(str(checkpoint.parent), self.args.save_total_limit)
        self.state = state
        state.is_world_process_zero = self.is_world_process_zero()
        state.is_local_process_zero = self.is_local_process_zero()
        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)
        return True

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save; a disk that is full costs this checkpoint, no older one, and not the run."""
        folder = (
            Path(self._get_output_dir(trial=trial))
            / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        )
        sums = self._over_processes(self._sums)
        limit = self.args.save_total_limit
        try:
            if self.args.should_save:
                Notes(self._run.identity, sums).write(folder)
            self.args.save_total_limit = (
                None  # older ones go when this one has its checksums, not before
            )
            super()._save_checkpoint(model, trial)
            if self.args.should_save:
                seal(folder)
                rotate_checkpoints(str(folder.parent), limit, self.state.best_model_checkpoint)
        except Exception as error:
            if not is_write_failure(error):
                raise
            shutil.rmtree(folder, ignore_errors=True)
            kept = last_checkpoint(folder.parent)
            log.warning(
                "Checkpoint %s could not be written (%s). Training goes on; %s.",
                folder.name,
                error,
                f"the last whole one is {kept}" if kept else "there is no earlier one: make room",
            )
        finally:
            self.args.save_total_limit = limit


def _targets(labels: Tensor, masked: bool) -> Tensor:
    labels = labels if masked else labels[:, 1:]
    return labels[labels != IGNORE]


class StoreInTime(TrainerCallback):
    """Store a checkpoint from the 10th second on, between those of `save_steps`, where storing
    stays at 2 % of the time.

    One costs what the last one took, the first one what its `size` in bytes lets guess. The first
    process decides for all.
    """

    def __init__(self, size: float) -> None:
        self.cost = size / Parts.RATE
        self.spent = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.begun = self.began = time.monotonic()
        self.next = self.begun + Parts.FIRST

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.began = time.monotonic()
        affordable = self.spent + self.cost <= Parts.SHARE * (self.began - self.begun)
        due = self.began >= self.next and affordable
        control.should_save |= bool(agreed(int(due)))

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        now = time.monotonic()
        self.cost = now - self.began
        self.next = now + Parts.FIRST
        self.spent += self.cost


class ProgressCallback(TrainerCallback):
    """Tell `progress` after every step how many tokens were seen; the stage's name ends in the last
    loss.
    """

    def __init__(self, progress: Progress, tokens_per_step: int) -> None:
        self.progress = progress
        self.size = tokens_per_step
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
                state.global_step * self.size,
                state.max_steps * self.size,
                "tokens",
            )
