"""The arguments of transformers' Trainer: those that a recipe decides, and those of `--trainer`."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from headscan.run import BadInput
from headscan.training.recipes import Recipe

SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}
"""The Trainer's name of each schedule of a recipe."""

OUTPUT_ARGUMENTS = (
    "save_",
    "logging_",
    "report_to",
    "run_name",
    "disable_tqdm",
    "dataloader_num_workers",
    "push_to_hub",
    "hub_",
)
"""Beginnings of arguments that decide where and when something is written, and no number. A resumed
run may change them.
"""


def parse_trainer_options(options: str | Mapping[str, object]) -> dict[str, object]:
    """Return the Trainer's arguments that `--trainer` names.

    A string is KEY=VALUE,... with values as JSON, or as plain strings.

    >>> parse_trainer_options("save_steps=5,bf16=true,report_to=tensorboard")
    {'save_steps': 5, 'bf16': True, 'report_to': 'tensorboard'}
    """
    if not isinstance(options, str):
        return dict(options)

    parsed: dict[str, object] = {}
    for part in options.split(","):
        assignment = part.strip()
        if not assignment:
            continue
        key, equals, value = assignment.partition("=")
        if not equals:
            raise BadInput(
                "--trainer is written KEY=VALUE,..., as in save_steps=100,bf16=true, not "
                f"{assignment!r}."
            )
        try:
            parsed[key.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            parsed[key.strip()] = value.strip()
    return parsed


def numeric_options(options: str | Mapping[str, object]) -> dict[str, object]:
    """Return the options of `--trainer` on which the numbers of a run depend."""
    parsed = parse_trainer_options(options)
    return {key: value for key, value in parsed.items() if not key.startswith(OUTPUT_ARGUMENTS)}


def training_arguments(
    recipe: Recipe, options: str | Mapping[str, object], *, folder: Path, seed: int, device: str
) -> TrainingArguments:
    """Return the Trainer's arguments for a recipe; `options` override them.

    `device`: auto, cpu, cuda or mps.

    Raises:
        BadInput: for sharding without an accelerator, and for arguments that the Trainer refuses.
    """
    overrides = parse_trainer_options(options)
    _check_sharding(overrides)
    arguments = _recipe_arguments(recipe) | {
        "output_dir": str(folder),
        "seed": seed,
        "data_seed": seed,
        "save_strategy": "steps",
        "save_total_limit": 2,
        "report_to": [],
        "remove_unused_columns": False,
        "disable_tqdm": True,
        # At every checkpoint the Trainer would pickle its arguments into what it sends.
        "hub_strategy": "end",
        "use_cpu": device == "cpu" or (device == "auto" and not torch.cuda.is_available()),
        "ddp_backend": _ddp_backend(device),
    }
    try:
        return TrainingArguments(**(arguments | overrides))
    except (TypeError, ValueError, ImportError) as error:
        first_line = str(error).splitlines()[0]
        raise BadInput(f"The Trainer does not take these arguments: {first_line}") from None


def _recipe_arguments(recipe: Recipe) -> dict[str, Any]:
    return {
        "max_steps": recipe.steps,
        "per_device_train_batch_size": recipe.batch,
        "gradient_accumulation_steps": recipe.accumulation,
        "learning_rate": recipe.rate,
        "warmup_steps": min(recipe.warmup, recipe.steps // 2),
        "lr_scheduler_type": SCHEDULES[recipe.schedule],
        "weight_decay": recipe.weight_decay,
        "adam_beta1": recipe.betas[0],
        "adam_beta2": recipe.betas[1],
        "adam_epsilon": recipe.epsilon,
        "max_grad_norm": recipe.clip,
        "logging_steps": max(1, recipe.steps // 50),
        "save_steps": max(1, recipe.steps // 5),
    }


def _ddp_backend(device: str) -> str | None:
    several_processes = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several_processes and (device == "cpu" or not torch.cuda.is_available()):
        return "gloo"
    return None


def _check_sharding(overrides: Mapping[str, object]) -> None:
    """Raise BadInput for FSDP without an accelerator.

    accelerate would refuse some of its settings there, and quietly train data-parallel with others.
    """
    by_environment = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    sharded = bool(overrides.get("fsdp")) or by_environment
    if sharded and torch.accelerator.current_accelerator() is None:
        raise BadInput(
            "FSDP under the Trainer needs an accelerator; on a CPU train data-parallel, with "
            "torchrun alone."
        )
