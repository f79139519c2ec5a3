"""`headscan train`: from a recipe, a text and an objective to a model, its curves and geometry."""

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Unpack, cast

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

from headscan.model.settings import check_device
from headscan.model.source import quiet
from headscan.model.tokenizer import check_growth
from headscan.model.weights import check_readable
from headscan.run import BadInput, MachineLimit, ModelRecord, Run, TextRecord, plain, verb
from headscan.run.settings import (
    Option,
    RunOptions,
    Seed32,
)
from headscan.text import Windows
from headscan.text import documents as read_documents
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
from headscan.training.data import (
    Masker,
    PackedText,
    check_fit,
    check_known,
    collate,
    tokenization_hash,
)
from headscan.training.heads import capped
from headscan.training.healthy_runs import thinned
from headscan.training.learner import Learner
from headscan.training.likelihood import perplexity
from headscan.training.monitor import Monitor
from headscan.training.objective import OBJECTIVES, Objective, objective_of, parse_regularisers
from headscan.training.optimisers import OPTIMISERS, Optimiser, optimiser_of
from headscan.training.recipes import Recipe, fit_tokenizer, recipe_of
from headscan.training.records import CurvePoint, Likelihood, ObjectiveRecord
from headscan.training.recovery import recover_head
from headscan.training.result import TrainResult
from headscan.training.trainer import HeadlessTrainer, ProgressCallback, StoreInTime
from headscan.training.trainer_arguments import numeric_options, training_arguments

MONITORED_WINDOWS = 24
"""Held-out windows on which the geometry is measured during training."""

HELD_OUT_SHARE = 0.05
"""Share of the windows that is held out by default."""

BYTES_A_WEIGHT = 12.0
"""Bytes of a checkpoint for each weight: it and two moments of the optimizer, in float32."""


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
    mixing: Annotated[
        Literal["flat", "expanded", "parallel", "heads"] | None,
        Option("How a mixer mixes tokens. Default: flat."),
    ] = None,
    kernels: Annotated[
        int | None,
        Option(
            "Matrices of a parallel mixing, hidden units a position of an expanded one, or heads. "
            "Default: 2, 2 and 4.",
            low=1,
        ),
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
    device: Annotated[
        Literal["auto", "cpu", "cuda", "mps"],
        Option(
            "Device; auto: cuda where there is one, else cpu. Several GPUs: torchrun.",
            identity=False,
            group="Advanced",
        ),
    ] = "auto",
    documents: Documents = "whole",
    field: FieldName = None,
    max_tokens: MaxTokens = None,
    seed: Seed32 = 0,
    **_run_options: Unpack[RunOptions],
) -> TrainResult:
    """Train a language model, without a prediction head unless the objective says otherwise, and
    watch its geometry.

    recipe: "gpt", "bert", "multilingual", "mixer", or a `Recipe`. The last `held_out` share of the
    text's windows is not trained on. objective: a name of `headscan.training.OBJECTIVES`, or an
    `Objective` with its parameters.

    Returns a `TrainResult`. The folder `out` holds model/ (loads with AutoModel), checkpoints,
    result.json and report.html. Under `torchrun` or `accelerate launch` the same call trains on all
    processes. `resume` goes on from the last whole checkpoint, where text, tokenizer, weights at
    the start and settings are those of the run that wrote it; its files are then those of a run
    that was never stopped. Raises BadInput where text, tokenizer or options do not fit, or the loss
    is not finite.
    """
    reading = Reading(documents=documents, field=field, max_tokens=max_tokens)
    check_device(device)
    folder = _output_folder(run)
    parse_regularisers(regulariser)
    aim = objective_of(objective)
    if not aim.contrastive:
        run.refuse_changed(f"by the objective {aim.name}, which has no negatives", pool=pool)
    if aim.headless:
        run.refuse_changed(f"by the objective {aim.name}, which trains without a head", tied=tied)
    if tokenizer is not None:
        run.refuse_changed("by a run whose tokenizer is given", vocabulary=vocabulary)
    if held_out == 0 and geometry_every:
        run.refuse_changed(
            "by a run that holds nothing out to measure on", geometry_every=geometry_every
        )
    if held_out == 0 or geometry_every == 0:
        run.refuse_changed("by a run whose geometry is not measured", on_alarm=on_alarm)

    plan = recipe_of(recipe, size) if isinstance(recipe, str) else recipe
    plan = plan.but(
        steps=steps,
        batch=batch,
        accumulation=accumulation,
        context=context,
        rate=rate,
        vocabulary=vocabulary,
    ).mixing(mixing, kernels)
    _identify_settings(run, plan, aim, regulariser, optimiser_of(optimiser), trainer)
    arguments = training_arguments(plan, trainer, folder=folder, seed=seed, device=device)

    check_text(text)
    words: PreTrainedTokenizerBase
    if tokenizer is None:  # a resumed run fits it again, so that a changed text is seen
        texts = read_documents(text, documents=documents, field=field)
        words = fit_tokenizer(texts, plan.vocabulary, masked=plan.masked, context=plan.context)
    else:
        words = _load_tokenizer(tokenizer)
    held_out_share = HELD_OUT_SHARE if held_out is None else held_out
    data = read_training_data(text, words, plan.context, reading, held_out_share, run)

    set_seed(seed)
    model = build(plan, aim, len(data.tokenizer), tied=tied)
    check_fit(data.tokenizer, model.config.vocab_size)
    learner = Learner(model, aim, regulariser=regulariser, masked=plan.masked, counts=data.counts)
    run.identify("the weights at the start", _weights_hash(learner))

    every = max(1, plan.steps // 10) if geometry_every is None else geometry_every
    monitor = _monitor_of(data, every, on_alarm or "warn")
    fitter = _trainer_of(
        learner,
        arguments,
        plan=plan,
        data=data,
        run=run,
        monitor=monitor,
        callbacks=callbacks,
        pool=pool,
        optimiser=optimiser,
    )
    _fit(fitter, run, folder)
    notes = _settle(fitter)
    _save_model(fitter, folder / "model")
    return _result(fitter, plan, data, run, monitor, aim.recorded(regulariser), notes)


def _output_folder(run: Run) -> Path:
    """Return the run's folder, after a check that a training can write to it."""
    if importlib.util.find_spec("accelerate") is None:
        raise BadInput('This needs the package accelerate: pip install "headscan[train]".')
    if run.folder is None:
        raise BadInput("Training keeps its checkpoints in a folder: give --out.")
    if not run.resume:
        check_afresh(run.folder)
    return run.folder


def _identify_settings(
    run: Run,
    recipe: Recipe,
    objective: Objective,
    regulariser: str | None,
    optimiser: Optimiser,
    trainer: str | Mapping[str, object],
) -> None:
    """Record the settings that decide the numbers beside the options of the command line."""
    run.identify("the recipe", plain(recipe.record().__dict__ | {"steps": None}))
    run.identify("the objective", plain(objective.recorded(regulariser)))
    run.identify("the optimiser", {"name": optimiser.name, "options": plain(optimiser)})
    run.identify("the Trainer's arguments", plain(numeric_options(trainer)))


def _load_tokenizer(tokenizer: str | PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return the tokenizer that was given, loaded where it is a name or a folder."""
    if not isinstance(tokenizer, str):
        return tokenizer

    if Path(tokenizer).is_dir():
        check_readable(Path(tokenizer))
    try:
        loaded: PreTrainedTokenizerBase = transformers.AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError) as error:
        first_line = str(error).splitlines()[0]
        raise BadInput(f"No tokenizer could be loaded from {tokenizer}: {first_line}") from None
    check_growth(loaded, tokenizer)
    # How a tokenizer was found is no part of what is saved.
    for name in ("is_local", "local_files_only"):
        loaded.init_kwargs.pop(name, None)
    return loaded


@dataclass(frozen=True)
class TrainingData:
    """The tokenizer, the windows for training and those held out, and the text's record.

    Attributes:
        counts: how often each token occurs in the windows for training.
    """

    tokenizer: PreTrainedTokenizerBase
    windows: PackedText
    held_out: PackedText | None
    counts: Int[Tensor, " vocabulary"]
    text: TextRecord


def read_training_data(
    text: TextLike,
    tokenizer: PreTrainedTokenizerBase,
    context: int,
    reading: Reading,
    held_out: float,
    run: Run,
) -> TrainingData:
    """Read the text, and record its content and how it became tokens in the run's identity.

    Raises:
        BadInput: for a text that cannot be used, or that is not the one of the run that is resumed.
    """
    windows = Windows(
        text,
        tokenizer,
        context,
        documents=reading.documents,
        field=reading.field,
        max_tokens=reading.max_tokens,
    )
    packed = PackedText.of(windows)
    record = windows.record()
    run.identify("the content of the text", record.sha256)
    run.identify("the tokenizer", tokenization_hash(tokenizer, packed))

    check_known(record.unknown or 0, record.tokens or 0)
    training: PackedText = packed
    validation: PackedText | None = None
    if held_out:
        training, validation = packed.split(held_out)
    return TrainingData(tokenizer, training, validation, training.counts(len(tokenizer)), record)


def build(
    plan: Recipe, objective: Objective, vocabulary: int, *, tied: bool | None = None
) -> PreTrainedModel:
    """Return a fresh model of the recipe's architecture.

    It is a bare body for headless objectives, else a body with a head.
    """
    config = plan.config(vocabulary)
    if tied is not None:
        config.tie_word_embeddings = tied
    if not objective.headless:
        with_head: Any = transformers.AutoModelForCausalLM
        if plan.masked:
            with_head = transformers.AutoModelForMaskedLM
        return cast(PreTrainedModel, with_head.from_config(config))

    is_mixer = config.model_type == "headscan_mixer"
    if is_mixer:
        # Published embeddings are N(0, 1), for a head of their own. As targets, their products with
        # a normed state would begin at sqrt(d) in size, and the softmax as a spike; 0.2 was
        # measured best of 1, 0.2 and 0.09 at d = 128.
        config.embedding_std = 0.2
    # A BERT's pooler would be a layer that no loss reaches.
    options = {"add_pooling_layer": False} if config.model_type == "bert" else {}
    model: Any = transformers.AutoModel.from_config(config, **options)
    if is_mixer and config.final_norm:
        # First logits of size 0.2 sqrt(d) would still be a spike; 0.3 was measured best of 1, 0.3,
        # 0.1 and 0.03.
        torch.nn.init.constant_(model.norm.weight, 0.3)
    return cast(PreTrainedModel, model)


def _weights_hash(learner: Learner) -> str:
    digest = hashlib.sha256()
    for name, tensor in learner.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _monitor_of(
    data: TrainingData, every: int, on_alarm: Literal["warn", "checkpoint", "stop"]
) -> Monitor | None:
    """Return the monitor of a training; None where nothing is measured."""
    if every == 0 or data.held_out is None:
        return None
    windows = data.held_out.rows[:MONITORED_WINDOWS]
    return Monitor(windows=windows, every=every, on_alarm=on_alarm, counts=data.counts)


def _trainer_of(
    learner: Learner,
    arguments: TrainingArguments,
    *,
    plan: Recipe,
    data: TrainingData,
    run: Run,
    monitor: Monitor | None,
    callbacks: Sequence[TrainerCallback],
    pool: str,
    optimiser: str | Optimiser,
) -> HeadlessTrainer:
    """Return the Trainer with the callbacks that store, measure and report progress.

    Raises:
        BadInput: where transformers or accelerate refuse the arguments.
    """
    own_callbacks: list[TrainerCallback] = []
    if arguments.save_strategy != "no":
        weights = sum(parameter.numel() for parameter in learner.parameters())
        own_callbacks.append(StoreInTime(BYTES_A_WEIGHT * weights))
    if monitor is not None:
        # The monitor comes after it: a checkpoint then holds what was read.
        own_callbacks.append(monitor)
    tokens_a_step = plan.tokens_a_step * arguments.world_size
    own_callbacks.append(ProgressCallback(run.progress, tokens_a_step))
    try:
        trainer = HeadlessTrainer(
            learner,
            arguments,
            run=run,
            pool=pool,
            optimiser=optimiser,
            train_dataset=data.windows,
            data_collator=Masker(data.tokenizer, seed=run.seed) if plan.masked else collate,
            processing_class=data.tokenizer,
            callbacks=[*own_callbacks, *callbacks],
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        first_line = str(error).splitlines()[0]
        raise BadInput(f"The Trainer cannot work as asked: {first_line}") from None
    if monitor is not None:
        monitor.trainer = trainer
    # This callback writes to standard output, where --json has the result.
    trainer.remove_callback(PrinterCallback)
    return trainer


def _fit(trainer: HeadlessTrainer, run: Run, folder: Path) -> None:
    """Train, from the last whole checkpoint where the run is resumed."""
    checkpoint = last_checkpoint(folder) if run.resume else None
    if checkpoint is not None:
        check_whole(checkpoint)
        check_steps(checkpoint, trainer.args.max_steps)
    if not run.resume and trainer.is_world_process_zero():
        clear(folder)
    with quiet():
        if checkpoint is not None and trainer.take_up(checkpoint):
            # `Trainer.train` does this before its first step.
            align_special_tokens(trainer.model, trainer.processing_class)
        else:
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))


def _learner_of(trainer: HeadlessTrainer) -> Learner:
    learner: Learner = trainer.accelerator.unwrap_model(trainer.model)
    return learner


def _settle(trainer: HeadlessTrainer) -> list[str]:
    """Put the objective's own parameters into the model where it is whole in this process; return
    notes for a reader.
    """
    learner = _learner_of(trainer)
    if not trainer.is_fsdp_enabled:
        return learner.settle()
    if learner.extra is None:
        return []
    return [f"what the objective holds is in model/{EXTRA}"]


def _save_model(trainer: HeadlessTrainer, folder: Path) -> None:
    try:
        with quiet():
            trainer.save_model(str(folder))
    except Exception as error:
        if not is_write_failure(error):
            raise
        checkpoint = last_checkpoint(folder.parent)
        start = "the beginning" if checkpoint is None else checkpoint.name
        raise MachineLimit(
            f"The trained model could not be written to {folder} ({error}): free some disk space "
            f"and --resume from {start}."
        ) from None


def _result(
    trainer: HeadlessTrainer,
    recipe: Recipe,
    data: TrainingData,
    run: Run,
    monitor: Monitor | None,
    objective: ObjectiveRecord,
    notes: list[str],
) -> TrainResult:
    """Return the result of a finished training; `notes` come after those of the likelihood."""
    learner = _learner_of(trainer)
    curve = _loss_curve(trainer)
    heldout, likelihood_notes = _read_out(learner, data)
    best = heldout.get("head") or heldout.get("bias")
    last_point = curve[-1] if curve else None
    steps = trainer.state.global_step
    parameters = sum(parameter.numel() for parameter in learner.model.parameters())
    result = TrainResult(
        protocol=run.protocol(
            text=data.text, device=str(trainer.args.device), dtype=_precision(trainer.args)
        ),
        models=[_model_record(recipe, learner, parameters)],
        recipe=recipe.record(),
        objective=objective,
        parameters=parameters,
        steps=steps,
        tokens=steps * recipe.tokens_a_step * trainer.args.world_size,
        loss=last_point.loss if last_point else None,
        floor_corrected_loss=last_point.floor_corrected_loss if last_point else None,
        heldout_bits_per_byte=best.bits_per_byte if best else None,
        heldout=heldout,
        notes=[*likelihood_notes, *notes],
        curve=curve,
    )
    if monitor is None:
        return result
    return replace(
        result,
        scan=monitor.history,
        alarms=monitor.raised,
        readings=thinned(monitor.readings),
        findings=[alarm.finding() for alarm in monitor.raised],
    )


def _loss_curve(trainer: HeadlessTrainer) -> list[CurvePoint]:
    """Return one point for each line of the log that has a loss."""
    names = [field.name for field in fields(CurvePoint)]
    curve = []
    for entry in trainer.state.log_history:
        if "loss" in entry:
            logged: dict[str, Any] = {name: entry[name] for name in names if name in entry}
            curve.append(CurvePoint(**logged))
    return curve


def _precision(arguments: TrainingArguments) -> str:
    if arguments.bf16:
        return "bfloat16"
    return "float16" if arguments.fp16 else "float32"


def _read_out(learner: Learner, data: TrainingData) -> tuple[dict[str, Likelihood], list[str]]:
    """Return the likelihood of the held-out windows by each way of reading the model out, and notes
    for a reader.
    """
    model = learner.model
    held_out = data.held_out
    if learner.masked or held_out is None:
        note = "heldout_bits_per_byte is for models that predict the next token, on text held out"
        return {}, [note]

    if model.get_output_embeddings() is not None:
        head = learner.objective.head(model, learner.extra)
        with capped(model, head.cap if head else None):
            likelihood = perplexity(model, held_out.rows, data.tokenizer, begins=held_out.begins)
        if likelihood.bits_per_byte is not None:
            return {"head": likelihood}, []
        note = "heldout_bits_per_byte: the tokens do not hold the spaces between words (WordPiece)"
        return {"head": likelihood}, [note]

    readout = learner.objective.reading()
    likelihoods = {}
    for recovery in ("tied", "bias"):
        with_head = recover_head(
            model, recovery, counts=data.counts, temperature=readout.temperature
        )
        likelihoods[recovery] = perplexity(
            with_head, held_out.rows, data.tokenizer, begins=held_out.begins
        )
    return likelihoods, [readout.note] if readout.note else []


def _model_record(recipe: Recipe, learner: Learner, parameters: int) -> ModelRecord:
    config = learner.config
    return ModelRecord(
        name=f"{recipe.name}, {recipe.size}",
        model_class=type(learner.model).__name__,
        architecture=config.model_type,
        parameters=parameters,
        dtype="float32",
        depth=getattr(config, "num_hidden_layers", None),
        width=getattr(config, "hidden_size", None),
        vocabulary=config.vocab_size,
        context=recipe.context,
    )
