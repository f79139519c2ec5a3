"""Train: a recipe, a text and an objective to a model, its curves and its shape."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PrinterCallback,
    TrainingArguments,
    set_seed,
)

from headscan.errors import BadInput
from headscan.model.quiet import quiet
from headscan.results import check_writable
from headscan.text import Windows, documents
from headscan.training.callbacks import Clock, Progress
from headscan.training.data import Masker, PackedText, StreamedText, check_fit, check_known, collate
from headscan.training.evaluate.likelihood import perplexity
from headscan.training.geometry import GeometryCallback
from headscan.training.learner import Learner, Objective
from headscan.training.readout import recover
from headscan.training.recipes import Recipe, recipe_of
from headscan.training.result import TrainResult
from headscan.training.tokenizers import fit_tokenizer
from headscan.training.trainer import HeadlessTrainer, check_afresh, clear, is_write_failure, last_checkpoint

__all__ = ["build", "train"]

CURVE = ("step", "loss", "floor_corrected_loss", "in_batch_accuracy", "penalty", "learning_rate")
PROBE = 24  # held-out windows on which the geometry is measured while training
# The Hub's own error and what it is made of: the error of the HTTP library, another one from release to release.
HUB_FAILURES: tuple[type[Exception], ...] = (
    LocalTokenNotFoundError,
    ConnectionError,
    *(kind for kind in HfHubHTTPError.__mro__ if issubclass(kind, Exception) and kind not in (OSError, Exception)),
)
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}


def train(
    recipe: str | Recipe,
    text: Any,
    out: str | os.PathLike,
    *,
    objective: str | Objective = "cwt",
    size: str = "tiny",
    tokenizer: Any = None,
    tied: bool | None = None,
    held_out: float = 0.05,
    documents: str = "whole",
    field: str = "text",
    max_tokens: int | None = None,
    streaming: bool = False,
    masking: str = "bert",
    pool: str = "batch",
    steps: int | None = None,
    batch: int | None = None,
    accumulation: int | None = None,
    context: int | None = None,
    rate: float | None = None,
    vocabulary: int | None = None,
    seed: int = 0,
    precision: str = "float32",
    geometry_every: int | None = None,
    log_every: int | None = None,
    save_every: int | None = None,
    resume: bool = False,
    seconds: float | None = None,
    tensorboard: bool = False,
    push_to_hub: str | None = None,
    command: str | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
    callbacks: Iterable[Any] = (),
    **arguments: Any,
) -> TrainResult:
    """Train a language model by a recipe and write model, tokenizer, curves and geometry to the folder `out`.

    Args:
        recipe: "gpt", "bert", "multilingual", "mixer", or a `Recipe`; size: "tiny", "small" (minutes and hours on a
            CPU) or "paper" (as published).
        text: whatever `headscan.text.Windows` reads; its last `held_out` share of windows (0 to 1) is kept apart.
        objective: a name of `headscan.training.OBJECTIVES`, or an `Objective` with its options.
        tokenizer: one of transformers, a folder or an id; by default one of `vocabulary` tokens is fitted on the text.
        tied: whether a model with a head ties it to its input embeddings; default as the recipe's architecture does.
        streaming: read the text as training goes on, instead of packing it into memory (nothing is then held out).
        masking: "bert" (80/10/10) or "published" (the headless paper's released code). pool: see `HeadlessTrainer`.
        steps, batch, accumulation, context, rate, vocabulary: in place of the recipe's. seconds: stop at this time.
        precision: "float32", "bfloat16" or "float16" (mixed). seed: of weights, order and masks.
        geometry_every: steps between measurements of all sites; default a tenth of the run; 0 for none.
        resume: go on from the last whole checkpoint in `out`. save_every: steps between checkpoints; default a fifth.
        command, progress: as for the other verbs; progress counts tokens. callbacks: more of the Trainer's.
        arguments: anything else that `transformers.TrainingArguments` takes (fsdp, deepspeed, num_workers, ...).

    Returns:
        A `TrainResult`. The folder holds model/ (loads with AutoModel), checkpoints, result.json and report.html.

    Raises:
        BadInput: text, tokenizer or options do not fit; the loss is not finite.

    Under `torchrun` or `accelerate launch` the same call trains on all processes.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    folder = check_writable(out)
    if not resume:
        check_afresh(folder)
    plan = (recipe_of(recipe, size) if isinstance(recipe, str) else recipe).but(
        steps=steps, batch=batch, accumulation=accumulation, context=context, rate=rate, vocabulary=vocabulary
    )
    aim = Objective(objective) if isinstance(objective, str) else objective
    if streaming and (aim.extra_negatives or aim.name in ("adaptive", "sampled")):
        raise BadInput(f"The objective {aim.name!r} draws by frequency and so needs the text packed, not streamed.")
    words = _tokenizer(tokenizer, plan, text, documents, field, folder, resume)
    windows = Windows(text, words, plan.context, documents=documents, field=field, max_tokens=max_tokens)
    kept: PackedText | None = None
    data: PackedText | StreamedText
    counts: torch.Tensor | None = None
    if streaming:
        data = StreamedText(windows)
    else:
        packed = PackedText.of(windows)
        rows, kept = packed.split(held_out) if held_out else (packed, None)
        data, counts = rows, rows.counts(len(words))
        check_known(words, windows.account())
    set_seed(seed)
    model = build(plan, aim, len(words), tied=tied)
    check_fit(words, model.config.vocab_size)
    learner = Learner(model, aim, masked=plan.masked, counts=counts)
    every = geometry_every if geometry_every is not None else max(1, plan.steps // 10)
    probe = kept.rows[:PROBE] if kept is not None else None
    watcher = GeometryCallback(probe, every=every) if every and probe is not None else None
    options = _arguments(
        plan,
        folder,
        seed=seed,
        precision=precision,
        log_every=log_every or max(1, plan.steps // 50),
        save_every=save_every if save_every is not None else max(1, plan.steps // 5),
        tensorboard=tensorboard,
        push_to_hub=push_to_hub,
        extra=arguments,
    )
    hooks: list[Any] = [watcher] if watcher else []
    hooks += [Clock(seconds)] if seconds else []
    step = plan.batch * plan.accumulation * plan.context * options.world_size
    hooks += [Progress(progress, step)] if progress else []
    try:
        trainer = HeadlessTrainer(
            learner,
            options,
            train_dataset=data,
            data_collator=Masker(words, scheme=masking, seed=seed) if plan.masked else collate,
            processing_class=words,
            pool=pool,
            callbacks=[*hooks, *callbacks],
        )
    except HUB_FAILURES as error:
        raise BadInput(
            f"The Hub does not take {push_to_hub}: {str(error).splitlines()[0]} (log in with `hf auth login`?)"
        ) from None
    trainer.remove_callback(PrinterCallback)  # it writes to standard output, where --json has the result
    checkpoint = last_checkpoint(folder) if resume else None
    if not resume and trainer.is_world_process_zero():
        clear(folder)
    with quiet():
        if not (checkpoint and trainer.take_up(checkpoint)):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    unsent: Exception | None = None
    try:
        with quiet():
            trainer.save_model(str(folder / "model"))  # and send it to the Hub, where that is wanted
    except HUB_FAILURES as error:
        unsent = error
    except Exception as error:
        if not is_write_failure(error):
            raise
        kept_whole = last_checkpoint(folder)
        raise BadInput(
            f"The trained model could not be written to {folder / 'model'} ({error}): make room and --resume from "
            f"{kept_whole.name if kept_whole else 'the beginning'}."
        ) from None
    result = TrainResult(
        {
            "headscan": version("headscan"),
            "protocol": {
                "command": command,
                "text": windows.account(),
                "context": plan.context,
                "seed": seed,
                "device": str(trainer.args.device),
                "dtype": precision,
                "processes": trainer.args.world_size,
                "tokenizer": {"name": getattr(words, "name_or_path", "") or "fitted", "tokens": len(words)},
                "started": started.isoformat(timespec="seconds"),
                "seconds": round(time.monotonic() - clock, 1),
                "versions": {name: version(name) for name in ("headscan", "torch", "transformers")},
            },
            "recipe": {k: v for k, v in asdict(plan).items() if k != "architecture"} | {"objective": asdict(aim)},
            "parameters": sum(p.numel() for p in model.parameters()),
            **_outcome(trainer, plan, learner, words, kept, counts),
            "scan": watcher.history if watcher else [],
        }
    )
    if trainer.is_world_process_zero():
        result.save(folder)
    if unsent is not None:
        raise BadInput(
            f"The model is whole in {folder / 'model'} but the Hub did not take it: {str(unsent).splitlines()[0]}"
        )
    return result


def build(plan: Recipe, aim: Objective, vocabulary: int, *, tied: bool | None = None) -> Any:
    """A fresh model of the recipe's architecture: a bare body for headless objectives, else a body with a head."""
    config = plan.config(vocabulary)
    if tied is not None:
        config.tie_word_embeddings = tied
    if aim.headless:
        if config.model_type == "headscan_mixer":
            # Published embeddings are N(0, 1), for a head of their own. As targets their products with a normed state
            # would begin at sqrt(d) in size, and the softmax as a spike; measured best of 1, .2 and .09 at d = 128.
            config.embedding_std = 0.2
        # A BERT's pooler would be a layer that no loss reaches.
        pooler = {"add_pooling_layer": False} if config.model_type == "bert" else {}
        model = AutoModel.from_config(config, **pooler)
        if config.model_type == "headscan_mixer" and config.final_norm:
            # First logits of size sqrt(d) x .2 would still be a spike; measured best of 1, .3, .1 and .03.
            torch.nn.init.constant_(model.norm.weight, 0.3)
        return model
    return (AutoModelForMaskedLM if plan.masked else AutoModelForCausalLM).from_config(config)


def _tokenizer(given: Any, plan: Recipe, text: Any, cut: str, field: str, folder: Path, resume: bool) -> Any:
    if given is None and resume and (folder / "model" / "tokenizer.json").exists():
        given = str(folder / "model")
    if given is None and resume and (checkpoint := last_checkpoint(folder)):
        given = str(checkpoint)
    if isinstance(given, str):
        try:
            return AutoTokenizer.from_pretrained(given)
        except (OSError, ValueError) as error:
            raise BadInput(f"No tokenizer could be loaded from {given}: {str(error).splitlines()[0]}") from None
    if given is not None:
        return given
    return fit_tokenizer(
        documents(text, documents=cut, field=field), plan.vocabulary, masked=plan.masked, context=plan.context
    )


def _arguments(plan, folder, *, seed, precision, log_every, save_every, tensorboard, push_to_hub, extra):
    if precision not in ("float32", "bfloat16", "float16"):
        raise BadInput(f"The precision must be float32, bfloat16 or float16, not {precision!r}.")
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if (extra.get("fsdp") or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true") and (
        torch.accelerator.current_accelerator() is None
    ):
        # accelerate would refuse some of its settings there and quietly train data-parallel with others.
        raise BadInput(
            "FSDP under the Trainer needs an accelerator; on a CPU train data-parallel, with torchrun alone."
        )
    options = {
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
        "seed": seed,
        "data_seed": seed,
        "bf16": precision == "bfloat16",
        "fp16": precision == "float16",
        "logging_steps": log_every,
        "save_steps": save_every or plan.steps,
        "save_strategy": "steps" if save_every else "no",
        "save_total_limit": 2,
        "report_to": ["tensorboard"] if tensorboard else [],
        "push_to_hub": push_to_hub is not None,
        "hub_model_id": push_to_hub,
        "hub_strategy": "end",  # at every checkpoint the Trainer would pickle its arguments into what it sends
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "use_cpu": not torch.cuda.is_available(),
        "ddp_backend": "gloo" if many and not torch.cuda.is_available() else None,
    }
    return TrainingArguments(**(options | extra))


def _outcome(trainer, plan, learner, words, kept, counts) -> dict[str, Any]:
    """Steps, tokens, last losses, the curve, and how probable the held-out windows are, read out each possible way."""
    curve = [
        {key: entry[key] for key in CURVE if key in entry} for entry in trainer.state.log_history if "loss" in entry
    ]
    heldout: dict[str, Any] = {}
    notes: list[str] = []
    model, aim = learner.model, learner.objective
    if plan.masked or kept is None:
        notes.append("heldout_bits_per_byte is for models that predict the next token, on text held out")
    elif model.get_output_embeddings() is not None:
        heldout["head"] = perplexity(model, kept.rows, words)
    elif aim.name == "adaptive":
        notes.append("the adaptive softmax is no linear head, so its held-out likelihood is not read out")
    else:
        rows = learner.extra.weight if aim.name == "nce" else None
        for mode in ("tied", "bias"):
            whole = recover(model, mode, counts=counts, temperature=aim.temperature, rows=rows)
            heldout[mode] = perplexity(whole, kept.rows, words)
        if aim.normalize:
            notes.append("the loss compared directions; the held-out likelihood is read out by products")
    best = heldout.get("head") or heldout.get("bias")
    last = curve[-1] if curve else {}
    return {
        "steps": trainer.state.global_step,
        "tokens": trainer.state.global_step * plan.tokens_a_step * trainer.args.world_size,
        "loss": last.get("loss"),
        "floor_corrected_loss": last.get("floor_corrected_loss"),
        "heldout_bits_per_byte": best["bits_per_byte"] if best else None,
        "heldout": heldout,
        "notes": notes,
        "curve": curve,
    }
