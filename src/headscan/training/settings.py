"""What `train`, `recover` and `evaluate` can be asked."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainingArguments

from headscan.model.settings import Loading
from headscan.run import BadInput, Option, Running
from headscan.text.source import TEXT, Reading, TextLike
from headscan.training.checkpoints import check_afresh
from headscan.training.objective import OBJECTIVES, Objective, objective_of, parse_regularisers
from headscan.training.optimisers import OPTIMISERS, Optimiser
from headscan.training.recipes import Recipe
from headscan.training.recovery import RECOVERIES, HeadRecovery, recovery_of


def require(package: str, extra: str) -> None:
    """BadInput where an optional package is not installed.

    >>> require("no_such_package", "train")
    Traceback (most recent call last):
    headscan.BadInput: This needs the package no_such_package: pip install "headscan[train]".
    """
    if importlib.util.find_spec(package) is None:
        raise BadInput(f'This needs the package {package}: pip install "headscan[{extra}]".')


@dataclass(frozen=True)
class Training(Reading, Running):
    """A training run. Where a number is None, the recipe says it."""

    continues: ClassVar[bool] = True
    text: Annotated[TextLike, TEXT]
    _: KW_ONLY
    objective: Annotated[str | Objective, Option("What is minimised.", choices=OBJECTIVES, identity=False)] = "cwt"
    size: Annotated[
        Literal["tiny", "small", "paper"], Option("tiny (minutes), small (hours on a CPU) or paper (as published).")
    ] = "tiny"
    regulariser: Annotated[
        str | None, Option("Terms added to the loss, as in cosine-states:1,z-loss:1e-4.", metavar="NAME:STRENGTH,...")
    ] = None
    optimiser: Annotated[str | Optimiser, Option("By what the weights move.", choices=OPTIMISERS, identity=False)] = (
        "adamw"
    )
    centre_head: Annotated[bool, Option("Take the mean row out of the head after every step (μ-centring).")] = False
    tokenizer: Annotated[
        str | PreTrainedTokenizerBase | None,
        Option("Id or folder of a tokenizer. Default: one is fitted on the text.", identity=False),
    ] = None
    tied: Annotated[bool | None, Option("Tie the head of a model that has one. Default: as the recipe does.")] = None
    steps: Annotated[int | None, Option("Steps of the optimizer, in place of the recipe's.", low=1, identity=False)] = (
        None
    )
    batch: Annotated[int | None, Option("Windows a step and process.", low=1)] = None
    accumulation: Annotated[int | None, Option("Micro-batches before the weights move.", low=1)] = None
    context: Annotated[int | None, Option("Tokens of a window.", low=1)] = None
    rate: Annotated[float | None, Option("Peak learning rate.", above=0)] = None
    vocabulary: Annotated[int | None, Option("Tokens of the tokenizer that is fitted.", low=1)] = None
    pool: Annotated[
        Literal["batch", "accumulation", "devices", "all"],
        Option(
            "Where a contrastive objective's negatives come from: one micro-batch, those of a step, all processes, both."
        ),
    ] = "batch"
    masking: Annotated[
        Literal["bert", "published"] | None,
        Option("How a masked recipe hides tokens: bert (80/10/10) or published. Default: bert."),
    ] = None
    held_out: Annotated[
        float | None, Option("Share of the windows that is held out. Default: 0.05.", low=0, high=1)
    ] = None
    streaming: Annotated[bool, Option("Read the text as training goes on, instead of packing it into memory.")] = False
    geometry_every: Annotated[
        int | None, Option("Steps between measurements of the geometry; 0: none. Default: a tenth.", low=0)
    ] = None
    on_alarm: Annotated[
        Literal["warn", "checkpoint", "stop"] | None,
        Option(
            "When the geometry or the loss breaks: warn, write a checkpoint too, or stop too. Default: warn.",
            identity=False,
        ),
    ] = None
    log_every: Annotated[int | None, Option("Steps between points of the curve. Default: a fiftieth.", low=1)] = None
    save_every: Annotated[
        int | None,
        Option(
            "Steps between checkpoints, with more from the 10th second on; 0: none. Default: a fifth.",
            low=0,
            identity=False,
        ),
    ] = None
    precision: Annotated[Literal["float32", "bfloat16", "float16"], Option("Of the products (mixed).")] = "float32"
    seconds: Annotated[float | None, Option("Stop after so many seconds of training.", above=0, identity=False)] = None
    tensorboard: Annotated[bool, Option("Log to TensorBoard under --out.", identity=False)] = False
    push_to_hub: Annotated[
        str | None, Option("Id under which the model goes to the Hub at the end.", metavar="ID", identity=False)
    ] = None
    callbacks: Annotated[Sequence[TrainerCallback], Option("More callbacks of the Trainer.", python=True)] = ()
    trainer: Annotated[
        Mapping[str, object], Option("Anything else that TrainingArguments takes (fsdp, deepspeed ...).", python=True)
    ] = field(default_factory=dict)

    def check(self) -> None:
        super().check()
        require("accelerate", "train")
        if self.tensorboard:
            require("tensorboard", "train")
        if self.out is None:
            raise BadInput("Training keeps its checkpoints in a folder: give --out.")
        if not self.resume:
            check_afresh(self.out)
        parse_regularisers(self.regulariser)
        aim = self.aim
        if self.streaming and aim.needs_counts:
            raise BadInput(f"The objective {aim.name!r} draws by frequency and so needs the text packed, not streamed.")
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
            (
                self.centre_head and aim.headless,
                "--centre-head",
                f"the objective {aim.name}, which trains without a head",
            ),
            (self.vocabulary and self.tokenizer is not None, "--vocabulary", "a run whose tokenizer is given"),
            (self.held_out and self.streaming, "--held-out", "a streamed text, of which nothing is held out"),
            (
                self.geometry_every and (self.streaming or self.held_out == 0),
                "--geometry-every",
                "a run that holds nothing out to measure on",
            ),
            (
                self.on_alarm and (self.streaming or self.held_out == 0 or self.geometry_every == 0),
                "--on-alarm",
                "a run whose geometry is not measured",
            ),
        ):
            if given:
                raise BadInput(f"{flag} is not used by {reason}.")

    @property
    def aim(self) -> Objective:
        return objective_of(self.objective)


@dataclass(frozen=True)
class Recovering(Loading, Reading, Running):
    """How a headless model gets a head."""

    text: Annotated[TextLike, TEXT]
    _: KW_ONLY
    mode: Annotated[str | HeadRecovery, Option("How the head is made.", choices=RECOVERIES)] = "bias"
    temperature: Annotated[float, Option("The one that the model was trained with.", above=0)] = 1.0
    context: Annotated[int | None, Option("Tokens of a window. Default: the model's, at most 128.", low=1)] = None
    held_out: Annotated[float, Option("Share of the windows that is held out.", above=0, high=1)] = 0.05
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option("Weights and activations; auto is as the weights were saved."),
    ] = "float32"

    def check(self) -> None:
        super().check()
        if self.out is None:
            raise BadInput("The recovered model is written to a folder: give --out.")
        if self.quantize is not None:
            raise BadInput("--quantize is not used by recover: a head is made for whole weights.")
        recovery_of(self.mode)


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
