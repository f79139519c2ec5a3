"""A recipe and settings as the Trainer's own arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from headscan.run import BadInput
from headscan.training.recipes import Recipe
from headscan.training.settings import Training

__all__ = ["training_arguments"]

SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


def training_arguments(plan: Recipe, settings: Training, folder: Path) -> TrainingArguments:
    """The Trainer's arguments; `settings.trainer` has the last word. BadInput for sharding without an accelerator."""
    extra = dict(settings.trainer)
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if (extra.get("fsdp") or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true") and (
        torch.accelerator.current_accelerator() is None
    ):
        # accelerate would refuse some of its settings there and quietly train data-parallel with others.
        raise BadInput(
            "FSDP under the Trainer needs an accelerator; on a CPU train data-parallel, with torchrun alone."
        )
    save_every = max(1, plan.steps // 5) if settings.save_every is None else settings.save_every
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
        "bf16": settings.precision == "bfloat16",
        "fp16": settings.precision == "float16",
        "logging_steps": settings.log_every or max(1, plan.steps // 50),
        "save_steps": save_every or plan.steps,
        "save_strategy": "steps" if save_every else "no",
        "save_total_limit": 2,
        "report_to": ["tensorboard"] if settings.tensorboard else [],
        "push_to_hub": settings.push_to_hub is not None,
        "hub_model_id": settings.push_to_hub,
        "hub_strategy": "end",  # at every checkpoint the Trainer would pickle its arguments into what it sends
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "use_cpu": not torch.cuda.is_available(),
        "ddp_backend": "gloo" if many and not torch.cuda.is_available() else None,
    }
    try:
        return TrainingArguments(**(options | extra))
    except TypeError as error:
        raise BadInput(f"The Trainer does not take these arguments: {error}") from None
