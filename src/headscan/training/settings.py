"""What a training may be asked, and the arguments of the Trainer that follow."""

import importlib.util
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from headscan.run import BadInput, Given
from headscan.text.source import Reading
from headscan.training.checkpoints import check_afresh
from headscan.training.objective import Objective, objective_of, parse_regularisers
from headscan.training.recipes import Recipe


def check_training(asked: Given) -> Objective:
    """The objective of a training; BadInput where what is asked does not fit together."""
    asked.chosen(Reading)
    if importlib.util.find_spec("accelerate") is None:
        raise BadInput('This needs the package accelerate: pip install "headscan[train]".')
    if asked["out"] is None:
        raise BadInput("Training keeps its checkpoints in a folder: give --out.")
    if not asked["resume"]:
        check_afresh(asked["out"])
    parse_regularisers(asked["regulariser"])
    aim = objective_of(asked["objective"])
    headless, nothing = f"the objective {aim.name}, which trains without a head", asked["held_out"] == 0
    pooled, unmeasured = asked["pool"] != "batch", nothing or asked["geometry_every"] == 0
    for given, flag, reason in (
        (pooled and not aim.contrastive, "--pool", f"the objective {aim.name}, which has no negatives"),
        (asked["tied"] is not None and aim.headless, "--tied", headless),
        (asked["vocabulary"] and asked["tokenizer"] is not None, "--vocabulary", "a run whose tokenizer is given"),
        (asked["geometry_every"] and nothing, "--geometry-every", "a run that holds nothing out to measure on"),
        (asked["on_alarm"] and unmeasured, "--on-alarm", "a run whose geometry is not measured"),
    ):
        if given:
            raise BadInput(f"{flag} is not used by {reason}.")
    return aim


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
        except (ValueError, RecursionError):
            found[key.strip()] = value.strip()
    return found


SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


def training_arguments(plan: Recipe, asked: Given, folder: Path) -> TrainingArguments:
    """The Trainer's arguments; `trainer` has the last word. BadInput for sharding without an accelerator."""
    extra = trainer_options(asked["trainer"])
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if (extra.get("fsdp") or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true") and (
        torch.accelerator.current_accelerator() is None
    ):
        # accelerate would refuse some of its settings there and quietly train data-parallel with others.
        raise BadInput("FSDP under the Trainer needs an accelerator; on a CPU train data-parallel, with torchrun alone.")
    options: dict[str, Any] = {
        "output_dir": str(folder), "max_steps": plan.steps, "per_device_train_batch_size": plan.batch,
        "gradient_accumulation_steps": plan.accumulation, "learning_rate": plan.rate,
        "warmup_steps": min(plan.warmup, plan.steps // 2), "lr_scheduler_type": SCHEDULES[plan.schedule],
        "weight_decay": plan.weight_decay, "adam_beta1": plan.betas[0], "adam_beta2": plan.betas[1],
        "adam_epsilon": plan.epsilon, "max_grad_norm": plan.clip, "seed": asked["seed"], "data_seed": asked["seed"],
        "logging_steps": max(1, plan.steps // 50), "save_steps": max(1, plan.steps // 5), "save_strategy": "steps",
        "save_total_limit": 2, "report_to": [], "remove_unused_columns": False, "disable_tqdm": True,
        "hub_strategy": "end",  # at every checkpoint the Trainer would pickle its arguments into what it sends
        "use_cpu": not torch.cuda.is_available(),
        "ddp_backend": "gloo" if many and not torch.cuda.is_available() else None,
    }  # fmt: skip
    try:
        return TrainingArguments(**(options | extra))
    except (TypeError, ValueError, ImportError) as error:
        raise BadInput(f"The Trainer does not take these arguments: {str(error).splitlines()[0]}") from None
