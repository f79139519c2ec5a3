"""What `train`, `recover` and `evaluate` can be asked."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainingArguments

from headscan.run import BadInput
from headscan.run.settings import Out
from headscan.text.source import Reading, TextLike
from headscan.training.checkpoints import check_afresh
from headscan.training.objective import Objective, objective_of, parse_regularisers
from headscan.training.optimisers import Optimiser
from headscan.training.recipes import Recipe


def require(package: str, extra: str) -> None:
    """BadInput where an optional package is not installed.

    >>> require("no_such_package", "train")
    Traceback (most recent call last):
    headscan.BadInput: This needs the package no_such_package: pip install "headscan[train]".
    """
    if importlib.util.find_spec(package) is None:
        raise BadInput(f'This needs the package {package}: pip install "headscan[{extra}]".')


@dataclass(frozen=True, kw_only=True)
class Training(Reading):
    """A training run. Where a number is None, the recipe says it."""

    text: TextLike
    objective: str | Objective
    size: Literal["tiny", "small", "paper"]
    regulariser: str | None
    optimiser: str | Optimiser
    tokenizer: str | PreTrainedTokenizerBase | None
    tied: bool | None
    steps: int | None
    batch: int | None
    accumulation: int | None
    context: int | None
    rate: float | None
    vocabulary: int | None
    pool: Literal["batch", "accumulation", "devices", "all"]
    held_out: float | None
    geometry_every: int | None
    on_alarm: Literal["warn", "checkpoint", "stop"] | None
    callbacks: Sequence[TrainerCallback]
    trainer: str | Mapping[str, object]
    out: Out
    resume: bool
    seed: int

    def check(self) -> None:
        super().check()
        require("accelerate", "train")
        if self.out is None:
            raise BadInput("Training keeps its checkpoints in a folder: give --out.")
        if not self.resume:
            check_afresh(self.out)
        parse_regularisers(self.regulariser)
        aim = self.aim
        for given, flag, reason in (
            (
                self.pool != "batch" and not aim.contrastive,
                "--pool",
                f"the objective {aim.name}, which has no negatives",
            ),
            (
                self.tied is not None and aim.headless,
                "--tied",
                f"the objective {aim.name}, which trains without a head",
            ),
            (self.vocabulary and self.tokenizer is not None, "--vocabulary", "a run whose tokenizer is given"),
            (
                self.geometry_every and self.held_out == 0,
                "--geometry-every",
                "a run that holds nothing out to measure on",
            ),
            (
                self.on_alarm and (self.held_out == 0 or self.geometry_every == 0),
                "--on-alarm",
                "a run whose geometry is not measured",
            ),
        ):
            if given:
                raise BadInput(f"{flag} is not used by {reason}.")

    @property
    def aim(self) -> Objective:
        return objective_of(self.objective)


# Arguments of the Trainer that decide where and when something is written, and no number: a resume may change them.
ASIDE = ("save_", "logging_", "report_to", "run_name", "disable_tqdm", "dataloader_num_workers", "push_to_hub", "hub_")


def trainer_options(given: str | Mapping[str, object]) -> dict[str, object]:
    """The Trainer's arguments that were asked for; a text is KEY=VALUE,... with values as JSON, or words.

    >>> trainer_options("save_steps=5,bf16=true,report_to=tensorboard")
    {'save_steps': 5, 'bf16': True, 'report_to': 'tensorboard'}
    """
    if not isinstance(given, str):
        return dict(given)
    found: dict[str, object] = {}
    for part in filter(None, (each.strip() for each in given.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise BadInput(f"--trainer is written KEY=VALUE,..., as in save_steps=100,bf16=true, not {part!r}.")
        try:
            found[key.strip()] = json.loads(value)
        except ValueError:
            found[key.strip()] = value.strip()
    return found


SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


def training_arguments(plan: Recipe, settings: Training, folder: Path) -> TrainingArguments:
    """The Trainer's arguments; `settings.trainer` has the last word. BadInput for sharding without an accelerator."""
    extra = trainer_options(settings.trainer)
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if (extra.get("fsdp") or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true") and (
        torch.accelerator.current_accelerator() is None
    ):
        # accelerate would refuse some of its settings there and quietly train data-parallel with others.
        raise BadInput(
            "FSDP under the Trainer needs an accelerator; on a CPU train data-parallel, with torchrun alone."
        )
    options: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": plan.steps,
        "per_device_train_batch_size": plan.batch,
        "gradient_accumulation_steps": plan.accumulation,
        "learning_rate": plan.rate,
        "warmup_steps": min(plan.warmup, plan.steps // 2),
        "lr_scheduler_type": SCHEDULES[plan.schedule],
        "weight_decay": plan.weight_decay,
        "adam_beta1": plan.betas[0],
        "adam_beta2": plan.betas[1],
        "adam_epsilon": plan.epsilon,
        "max_grad_norm": plan.clip,
        "seed": settings.seed,
        "data_seed": settings.seed,
        "logging_steps": max(1, plan.steps // 50),
        "save_steps": max(1, plan.steps // 5),
        "save_strategy": "steps",
        "save_total_limit": 2,
        "report_to": [],
        "hub_strategy": "end",  # at every checkpoint the Trainer would pickle its arguments into what it sends
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "use_cpu": not torch.cuda.is_available(),
        "ddp_backend": "gloo" if many and not torch.cuda.is_available() else None,
    }
    try:
        return TrainingArguments(**(options | extra))
    except (TypeError, ValueError, ImportError) as error:
        raise BadInput(f"The Trainer does not take these arguments: {str(error).splitlines()[0]}") from None
