"""Train: what may be asked, and a recipe, a text and an objective to a model, its curves and its
shape.
"""

import hashlib
import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast

import torch
import transformers
from jaxtyping import Int
from torch import Tensor
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import align_special_tokens

from headscan.model.source import quiet
from headscan.run import BadInput, Given, ModelRecord, Run, TextRecord, plain, verb
from headscan.run.settings import CommandLine, Option, Out, Overwrite, Progressing, Resume, Seed32
from headscan.text import Windows, documents
from headscan.text.source import (
    TEXT,
    Documents,
    FieldName,
    MaxTokens,
    Reading,
    TextLike,
    check_text,
)
from headscan.training.checkpoints import (
    EXTRA,
    check_afresh,
    check_steps,
    check_whole,
    clear,
    is_write_failure,
    last_checkpoint,
)
from headscan.training.data import Masker, PackedText, check_fit, check_known, collate
from headscan.training.heads import capped
from headscan.training.learner import OPTIMISERS, Learner, Optimiser, optimiser_of
from headscan.training.monitor import Monitor
from headscan.training.objective import (
    OBJECTIVES,
    CurvePoint,
    Likelihood,
    Objective,
    objective_of,
    parse_regularisers,
)
from headscan.training.recipes import Recipe, fit_tokenizer, recipe_of
from headscan.training.recovery import perplexity, recover_head
from headscan.training.reference import kept
from headscan.training.result import TrainResult
from headscan.training.trainer import HeadlessTrainer, ProgressCallback, StoreInTime


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
    headless = f"the objective {aim.name}, which trains without a head"
    nothing = asked["held_out"] == 0
    pooled = asked["pool"] != "batch"
    unmeasured = nothing or asked["geometry_every"] == 0
    for given, flag, reason in (
        (
            pooled and not aim.contrastive,
            "--pool",
            f"the objective {aim.name}, which has no negatives",
        ),
        (asked["tied"] is not None and aim.headless, "--tied", headless),
        (
            asked["vocabulary"] and asked["tokenizer"] is not None,
            "--vocabulary",
            "a run whose tokenizer is given",
        ),
        (
            asked["geometry_every"] and nothing,
            "--geometry-every",
            "a run that holds nothing out to measure on",
        ),
        (asked["on_alarm"] and unmeasured, "--on-alarm", "a run whose geometry is not measured"),
    ):
        if given:
            raise BadInput(f"{flag} is not used by {reason}.")
    return aim


# Arguments of the Trainer that decide where and when something is written, and no number: a resume
# may change them.
ASIDE = (
    "save_",
    "logging_",
    "report_to",
    "run_name",
    "disable_tqdm",
    "dataloader_num_workers",
    "push_to_hub",
    "hub_",
)


def trainer_options(given: str | Mapping[str, object]) -> dict[str, object]:
    """The Trainer's arguments that were asked for; a text is KEY=VALUE,... with values as JSON, or
    words.

    >>> trainer_options("save_steps=5,bf16=true,report_to=tensorboard")
    {'save_steps': 5, 'bf16': True, 'report_to': 'tensorboard'}
    """
    if not isinstance(given, str):
        return dict(given)
    found: dict[str, object] = {}
    for part in filter(None, (each.strip() for each in given.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise BadInput(
                f"--trainer is written KEY=VALUE,..., as in save_steps=100,bf16=true, not {part!r}."
            )
        try:
            found[key.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            found[key.strip()] = value.strip()
    return found


SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


def training_arguments(plan: Recipe, asked: Given, folder: Path) -> TrainingArguments:
    """The Trainer's arguments; `trainer` has the last word. BadInput for sharding without an
    accelerator.
    """
    extra = trainer_options(asked["trainer"])
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if (extra.get("fsdp") or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true") and (
        torch.accelerator.current_accelerator() is None
    ):
        # accelerate would refuse some of its settings there and quietly train data-parallel with
        # others.
        raise BadInput(
            "FSDP under the Trainer needs an accelerator; on a CPU train data-parallel, with "
            "torchrun alone."
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
        "seed": asked["seed"],
        "data_seed": asked["seed"],
        "logging_steps": max(1, plan.steps // 50),
        "save_steps": max(1, plan.steps // 5),
        "save_strategy": "steps",
        "save_total_limit": 2,
        "report_to": [],
        "remove_unused_columns": False,
        "disable_tqdm": True,
        # at every checkpoint the Trainer would pickle its arguments into what it sends
        "hub_strategy": "end",
        "use_cpu": not torch.cuda.is_available(),
        "ddp_backend": "gloo" if many and not torch.cuda.is_available() else None,
    }
    try:
        return TrainingArguments(**(options | extra))
    except (TypeError, ValueError, ImportError) as error:
        raise BadInput(
            f"The Trainer does not take these arguments: {str(error).splitlines()[0]}"
        ) from None


# ---- Train: a recipe, a text and an objective to a model, its curves and its shape.


@dataclass(frozen=True)
class TrainingData:
    """The tokenizer, the windows to train on and those held out, the counts of the training tokens,
    the text's record.
    """

    tokenizer: PreTrainedTokenizerBase
    windows: PackedText
    held_out: PackedText | None
    counts: Int[Tensor, " vocabulary"]
    text: TextRecord


def gather(plan: Recipe, asked: Given, run: Run) -> TrainingData:
    """Read the text and say what the run rests on: the text's content, and how it became tokens.

    Raises BadInput where text and tokenizer cannot be used, or are not those of the run that is
    resumed.
    """
    check_text(asked["text"])
    words = _tokenizer(plan, asked, run)
    options = {name: asked[name] for name in ("documents", "field", "max_tokens")}
    windows = Windows(asked["text"], words, plan.context, **options)
    vocabulary = hashlib.sha256(json.dumps(sorted(words.get_vocab().items())).encode())
    packed = PackedText.of(windows)
    record = windows.record()
    run.identify("the content of the text", record.sha256)
    vocabulary.update(packed.rows.tobytes())
    run.identify("the tokenizer", vocabulary.hexdigest())
    check_known(record.unknown or 0, record.tokens or 0)
    share = 0.05 if asked["held_out"] is None else asked["held_out"]
    training, held_out = packed.split(share) if share else (packed, None)
    return TrainingData(words, training, held_out, training.counts(len(words)), record)


def _tokenizer(plan: Recipe, asked: Given, run: Run) -> PreTrainedTokenizerBase:
    given: str | PreTrainedTokenizerBase | None = asked["tokenizer"]
    if given is None and run.resume and run.folder is not None:
        finished = run.folder / "model"
        checkpoint = (
            finished if (finished / "tokenizer.json").exists() else last_checkpoint(run.folder)
        )
        given = str(checkpoint) if checkpoint else None
    if isinstance(given, str):
        try:
            found: PreTrainedTokenizerBase = transformers.AutoTokenizer.from_pretrained(given)
            for word in (
                "is_local",
                "local_files_only",
            ):  # how it was found is no part of what is saved
                found.init_kwargs.pop(word, None)
            return found
        except (OSError, ValueError) as error:
            raise BadInput(
                f"No tokenizer could be loaded from {given}: {str(error).splitlines()[0]}"
            ) from None
    if given is not None:
        return given
    texts = documents(asked["text"], documents=asked["documents"], field=asked["field"])
    return fit_tokenizer(texts, plan.vocabulary, masked=plan.masked, context=plan.context)


PROBE = 24  # held-out windows on which the geometry is measured while training


@verb("train", continues=True)
def train(
    run: Run,
    recipe: str | Recipe,
    text: Annotated[TextLike, TEXT],
    *,
    objective: Annotated[
        str | Objective,
        Option("Training objective.", choices=OBJECTIVES, identity=False, group="Input"),
    ] = "cwt",
    size: Annotated[
        Literal["tiny", "small", "paper"],
        Option("tiny (minutes), small (hours on a CPU) or paper (as published).", group="Limits"),
    ] = "tiny",
    regulariser: Annotated[
        str | None,
        Option(
            "Terms added to the loss (of headscan-lab), as in cosine-states:1,z-loss:1e-4.",
            metavar="NAME:STRENGTH,...",
        ),
    ] = None,
    optimiser: Annotated[
        str | Optimiser, Option("Optimizer.", choices=OPTIMISERS, identity=False)
    ] = "adamw",
    tokenizer: Annotated[
        str | PreTrainedTokenizerBase | None,
        Option(
            "Id or folder of a tokenizer. Default: one is fitted on the text.",
            identity=False,
            group="Input",
        ),
    ] = None,
    tied: Annotated[
        bool | None, Option("Tie the head of a model that has one. Default: as the recipe does.")
    ] = None,
    steps: Annotated[
        int | None,
        Option(
            "Steps of the optimizer, in place of the recipe's.",
            low=1,
            identity=False,
            group="Limits",
        ),
    ] = None,
    batch: Annotated[
        int | None, Option("Windows per step and process.", low=1, high=2**20, group="Limits")
    ] = None,
    accumulation: Annotated[
        int | None, Option("Micro-batches per optimizer step.", low=1, group="Advanced")
    ] = None,
    context: Annotated[int | None, Option("Tokens of a window.", low=2, group="Limits")] = None,
    rate: Annotated[float | None, Option("Peak learning rate.", above=0)] = None,
    vocabulary: Annotated[
        int | None,
        Option("Tokens of the tokenizer that is fitted.", low=1, high=2**22, group="Limits"),
    ] = None,
    pool: Annotated[
        Literal["batch", "accumulation", "devices", "all"],
        Option(
            "Where a contrastive objective's negatives come from: one micro-batch, those of a "
            "step, all processes, both.",
            group="Advanced",
        ),
    ] = "batch",
    held_out: Annotated[
        float | None, Option("Share of the windows that is held out. Default: 0.05.", low=0, high=1)
    ] = None,
    geometry_every: Annotated[
        int | None,
        Option("Steps between measurements of the geometry; 0: none. Default: a tenth.", low=0),
    ] = None,
    on_alarm: Annotated[
        Literal["warn", "checkpoint", "stop"] | None,
        Option(
            "When the geometry or the loss breaks: warn, write a checkpoint too, or stop too. "
            "Default: warn.",
            identity=False,
        ),
    ] = None,
    trainer: Annotated[
        str | Mapping[str, object],
        Option(
            "Further TrainingArguments of transformers: save_steps, logging_steps, bf16, "
            "report_to, fsdp ...",
            metavar="KEY=VALUE,...",
            identity=False,
        ),
    ] = MappingProxyType({}),
    callbacks: Annotated[
        Sequence[TrainerCallback], Option("More callbacks of the Trainer.", python=True)
    ] = (),
    documents: Documents = "whole",
    field: FieldName = "text",
    max_tokens: MaxTokens = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed32 = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> TrainResult:
    """Train a language model, without a prediction head unless the objective says otherwise, and
    watch its shape.

    recipe: "gpt", "bert", "multilingual", "mixer", or a `Recipe`. The text's last `held_out` share
    of windows is kept apart. objective: a name of `headscan.training.OBJECTIVES`, or an `Objective`
    with its parameters.

    Returns a `TrainResult`. The folder `out` holds model/ (loads with AutoModel), checkpoints,
    result.json and report.html. Under `torchrun` or `accelerate launch` the same call trains on all
    processes. `resume` goes on from the last whole checkpoint, where text, tokenizer, weights at
    the start and settings are those of the run that wrote it; its files are then those of a run
    that was never stopped. Raises BadInput where text, tokenizer or options do not fit, or the loss
    is not finite.
    """
    asked = Given(locals())
    aim = check_training(asked)
    assert run.folder is not None
    plan = (recipe_of(recipe, size) if isinstance(recipe, str) else recipe).but(
        steps=steps,
        batch=batch,
        accumulation=accumulation,
        context=context,
        rate=rate,
        vocabulary=vocabulary,
    )
    _identify(plan, asked, aim, run)
    arguments = training_arguments(plan, asked, run.folder)
    data = gather(plan, asked, run)
    learner = _learner(plan, asked, aim, data, run)
    watcher = _watcher(plan, asked, data)
    hooks: list[TrainerCallback] = []
    if arguments.save_strategy != "no":  # weights and the optimiser's two moments, in float32
        hooks.append(StoreInTime(12.0 * sum(weight.numel() for weight in learner.parameters())))
    hooks += [watcher] if watcher else []  # after it: what is stored holds what was read
    hooks.append(ProgressCallback(run.progress, plan.tokens_a_step * arguments.world_size))
    masker = Masker(data.tokenizer, seed=seed) if plan.masked else collate
    try:
        fitter = HeadlessTrainer(
            learner,
            arguments,
            run=run,
            pool=pool,
            optimiser=optimiser,
            train_dataset=data.windows,
            data_collator=masker,
            processing_class=data.tokenizer,
            callbacks=[*hooks, *callbacks],
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise BadInput(f"The Trainer cannot work as asked: {str(error).splitlines()[0]}") from None
    if watcher:
        watcher.trainer = fitter
    fitter.remove_callback(
        PrinterCallback
    )  # it writes to standard output, where --json has the result
    _fit(fitter, run)
    settled = _settle(fitter)
    _save_model(fitter, run.folder / "model")
    result = _result(fitter, plan, asked, aim, data, run, settled)
    if watcher:
        found = [alarm.finding() for alarm in watcher.raised]
        result = replace(
            result,
            scan=watcher.history,
            alarms=watcher.raised,
            readings=kept(watcher.readings),
            findings=found,
        )
    return result


def build(
    plan: Recipe, objective: Objective, vocabulary: int, *, tied: bool | None = None
) -> PreTrainedModel:
    """A fresh model of the recipe's architecture: a bare body for headless objectives, else a body
    with a head.
    """
    config = plan.config(vocabulary)
    if tied is not None:
        config.tie_word_embeddings = tied
    if not objective.headless:
        kind: Any = (
            transformers.AutoModelForMaskedLM if plan.masked else transformers.AutoModelForCausalLM
        )
        return cast(PreTrainedModel, kind.from_config(config))
    if is_mixer := config.model_type == "headscan_mixer":
        # Published embeddings are N(0, 1), for a head of their own. As targets their products with
        # a normed state would begin at sqrt(d) in size, and the softmax as a spike; measured best
        # of 1, .2 and .09 at d = 128.
        config.embedding_std = 0.2
    # A BERT's pooler would be a layer that no loss reaches.
    pooler = {"add_pooling_layer": False} if config.model_type == "bert" else {}
    model: Any = transformers.AutoModel.from_config(config, **pooler)
    if is_mixer and config.final_norm:
        # First logits of size sqrt(d) x .2 would still be a spike; measured best of 1, .3, .1 and
        # .03.
        torch.nn.init.constant_(model.norm.weight, 0.3)
    return cast(PreTrainedModel, model)


def _identify(plan: Recipe, asked: Given, aim: Objective, run: Run) -> None:
    """What decides the numbers beside the options that the command line knows."""
    run.identify("the recipe", plain(plan.record().__dict__ | {"steps": None}))
    run.identify("the objective", plain(aim.recorded(asked["regulariser"])))
    optimiser = optimiser_of(asked["optimiser"])
    run.identify("the optimiser", {"name": optimiser.name, "options": plain(optimiser)})
    numbers = {
        key: value
        for key, value in trainer_options(asked["trainer"]).items()
        if not key.startswith(ASIDE)
    }
    run.identify("the Trainer's arguments", plain(numbers))


def _learner(plan: Recipe, asked: Given, aim: Objective, data: TrainingData, run: Run) -> Learner:
    set_seed(asked["seed"])
    model = build(plan, aim, len(data.tokenizer), tied=asked["tied"])
    check_fit(data.tokenizer, model.config.vocab_size)
    learner = Learner(
        model, aim, regulariser=asked["regulariser"], masked=plan.masked, counts=data.counts
    )
    digest = hashlib.sha256()
    for name, value in learner.state_dict().items():
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    run.identify("the weights at the start", digest.hexdigest())
    return learner


def _watcher(plan: Recipe, asked: Given, data: TrainingData) -> Monitor | None:
    every = max(1, plan.steps // 10) if asked["geometry_every"] is None else asked["geometry_every"]
    if not every or data.held_out is None:
        return None
    windows = data.held_out.rows[:PROBE]
    return Monitor(
        windows=windows, every=every, on_alarm=asked["on_alarm"] or "warn", counts=data.counts
    )


def _fit(trainer: HeadlessTrainer, run: Run) -> None:
    """Train, from the last whole checkpoint where the run is resumed."""
    assert run.folder is not None
    checkpoint = last_checkpoint(run.folder) if run.resume else None
    if checkpoint:
        check_whole(checkpoint)
        check_steps(checkpoint, trainer.args.max_steps)
    if not run.resume and trainer.is_world_process_zero():
        clear(run.folder)
    with quiet():
        if checkpoint and trainer.take_up(checkpoint):
            align_special_tokens(
                trainer.model, trainer.processing_class
            )  # as `train` does before its first step
        else:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


def _settle(trainer: HeadlessTrainer) -> list[str]:
    """What the objective holds goes into the model, where it is whole in this process."""
    learner: Learner = trainer.accelerator.unwrap_model(trainer.model)
    if trainer.is_fsdp_enabled:
        return [] if learner.extra is None else [f"what the objective holds is in model/{EXTRA}"]
    return learner.settle()


def _save_model(trainer: HeadlessTrainer, folder: Path) -> None:
    try:
        with quiet():
            trainer.save_model(str(folder))
    except Exception as error:
        if not is_write_failure(error):
            raise
        kept = last_checkpoint(folder.parent)
        raise BadInput(
            f"The trained model could not be written to {folder} ({error}): make room and "
            "--resume from "
            f"{kept.name if kept else 'the beginning'}."
        ) from None


def _result(
    trainer: HeadlessTrainer,
    plan: Recipe,
    asked: Given,
    aim: Objective,
    data: TrainingData,
    run: Run,
    settled: list[str],
) -> TrainResult:
    names = [each.name for each in fields(CurvePoint)]
    log: list[dict[str, Any]] = [entry for entry in trainer.state.log_history if "loss" in entry]
    curve = [CurvePoint(**{name: entry[name] for name in names if name in entry}) for entry in log]
    learner: Learner = trainer.accelerator.unwrap_model(trainer.model)
    heldout, notes = _read_out(learner, data)
    best = heldout.get("head") or heldout.get("bias")
    last = curve[-1] if curve else None
    steps = trainer.state.global_step
    parameters = sum(parameter.numel() for parameter in learner.model.parameters())
    precision = "bfloat16" if trainer.args.bf16 else "float16" if trainer.args.fp16 else "float32"
    return TrainResult(
        protocol=run.protocol(text=data.text, device=str(trainer.args.device), dtype=precision),
        models=[_model_record(plan, learner, parameters)],
        recipe=plan.record(),
        objective=aim.recorded(asked["regulariser"]),
        parameters=parameters,
        steps=steps,
        tokens=steps * plan.tokens_a_step * trainer.args.world_size,
        loss=last.loss if last else None,
        floor_corrected_loss=last.floor_corrected_loss if last else None,
        heldout_bits_per_byte=best.bits_per_byte if best else None,
        heldout=heldout,
        notes=[*notes, *settled],
        curve=curve,
    )


def _read_out(learner: Learner, data: TrainingData) -> tuple[dict[str, Likelihood], list[str]]:
    """How probable the held-out windows are, by each way of reading the model out; and why not,
    where they are not.
    """
    model = learner.model
    kept = data.held_out
    if learner.masked or kept is None:
        return {}, [
            "heldout_bits_per_byte is for models that predict the next token, on text held out"
        ]
    if model.get_output_embeddings() is not None:
        head = learner.objective.head(model, learner.extra)
        with capped(model, head.cap if head else None):
            read = perplexity(model, kept.rows, data.tokenizer, begins=kept.begins)
        missing = (
            "heldout_bits_per_byte: the tokens do not hold the spaces between words (WordPiece)"
        )
        return {"head": read}, [missing] if read.bits_per_byte is None else []
    reading = learner.objective.reading()
    found = {}
    for mode in ("tied", "bias"):
        whole = recover_head(model, mode, counts=data.counts, temperature=reading.temperature)
        found[mode] = perplexity(whole, kept.rows, data.tokenizer, begins=kept.begins)
    return found, [reading.note] if reading.note else []


def _model_record(plan: Recipe, learner: Learner, parameters: int) -> ModelRecord:
    config = learner.config
    return ModelRecord(
        name=f"{plan.name}, {plan.size}",
        model_class=type(learner.model).__name__,
        architecture=config.model_type,
        parameters=parameters,
        dtype="float32",
        depth=getattr(config, "num_hidden_layers", None),
        width=getattr(config, "hidden_size", None),
        vocabulary=config.vocab_size,
        context=plan.context,
    )
