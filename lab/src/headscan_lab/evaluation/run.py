"""From a model's folder to what it can do: `headscan evaluate`."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.model.inputs import declared_pooling, pooled
from headscan.model.settings import Device, TokenizerName
from headscan.run import BadInput, Progress, Run, no_progress, running, verb
from headscan.run.settings import CommandLine, Option, Out, Progressing, Resume, Seed
from headscan.statistics.uncertainty import normal
from headscan.training.checkpoints import load_trained
from headscan.training.heads import body_of
from headscan_lab.evaluation.result import Evaluating, EvaluationResult, Score
from headscan_lab.evaluation.task import (
    TASKS,
    Evaluated,
    Labelled,
    Scores,
    Task,
    affordable_items,
    balanced_cross_entropy,
    evaluate_task,
    matthews,
    mean_of,
    scored,
    tasks_for,
)

# ---- lm-evaluation-harness, for the tasks that headscan has no data for: `pip install 'headscan[eval]'`.


def check_harness() -> None:
    """BadInput where the harness is not installed."""
    if importlib.util.find_spec("lm_eval") is None:
        raise BadInput("lm-evaluation-harness is not installed: pip install 'headscan[eval]'.")


def harness(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tasks: list[Any],
    *,
    limit: int | None = None,
    batch: int = 16,
    **options: Any,
) -> dict[str, dict[str, float]]:  # fmt: skip
    """Run tasks of lm-evaluation-harness on a causal model with a head; {task: {metric: value}}.

    tasks: names ("lambada_openai", "blimp", "hellaswag", ...), which fetch their data from the Hub, or task objects of
    the harness. limit: items a task. options: anything else that `lm_eval.simple_evaluate` takes.
    Raises BadInput where the harness is not installed, knows no such task, or the model has no head.
    """
    if model.get_output_embeddings() is None:
        raise BadInput("lm-evaluation-harness needs a model with a head: recover one first.")
    check_harness()
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = options.pop("task_manager", None) or TaskManager()
    unknown = [task for task in tasks if isinstance(task, str) and not manager.match_tasks([task])]
    if unknown:
        raise BadInput(f"lm-evaluation-harness {lm_eval.__version__} has no task {', '.join(unknown)}.")
    length = getattr(model.config, "max_position_embeddings", None)
    wrapped = HFLM(pretrained=model.eval(), tokenizer=tokenizer, batch_size=batch, max_length=length)
    found = lm_eval.simple_evaluate(wrapped, tasks=tasks, limit=limit, task_manager=manager, **options)
    return {
        task: {
            name.removesuffix(",none"): float(value)
            for name, value in numbers.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for task, numbers in found["results"].items()
    }


# ---- Fine-tuning on labelled sentences: a linear layer on the sentence vector, and the whole body trained with it.


def finetuned(
    given: Evaluated, train: Labelled, test: Labelled, *, epochs: int = 3, rate: float = 5e-5, batch: int = 32, seed: int = 0,
    progress: Progress | None = None,
) -> Scores:  # fmt: skip
    """Accuracy and Matthews' correlation of a copy of the model that was trained on sentences with labels.

    The classifier is linear on the sentence vector (as `sentence_vectors` makes it) and starts at zero; cross-entropy weighs
    every class of a batch alike (Godey et al. 2024, appendix E); AdamW, a tenth of the steps as warm-up, then linear to
    zero, clip 1. The model that is given stays as it is. Cost: `epochs` passes forward and back, twice the weights and
    Adam's moments. Deterministic in the seed. Raises BadInput where the loss is not finite or a label is missing.
    """
    texts, labels = train[0][: given.limit], np.asarray(train[1][: given.limit])
    wanted = np.asarray(test[1][: given.limit])
    classes = int(max(labels.max(), wanted.max())) + 1
    if len(set(labels.tolist())) < 2:
        raise BadInput("Fine-tuning needs sentences of two classes at least: raise --limit.")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = copy.deepcopy(body_of(given.model)).float().train()
        layer = nn.Linear(body.config.hidden_size, classes).to(body.device)
        nn.init.zeros_(layer.weight)
        weights = [*(one for one in body.parameters() if one.requires_grad), *layer.parameters()]
        optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.01)
        steps = epochs * -(-len(texts) // batch)
        for step, chosen in enumerate(_batches(len(texts), batch, epochs, seed), 1):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(step / max(1.0, 0.1 * steps), (steps - step + 1) / max(1.0, 0.9 * steps))
            logits = layer(_vectors(given, body, [texts[i] for i in chosen]))
            loss = balanced_cross_entropy(logits, torch.from_numpy(labels[chosen]).to(logits.device))
            if not bool(torch.isfinite(loss)):
                raise BadInput(f"The loss of the fine-tuning is not finite at step {step}: lower --finetune-rate.")
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            (progress or no_progress)(f"fine-tuning · loss {float(loss.detach()):.3f}", step, steps, "steps")
        predicted = _predicted(given, body.eval(), layer, test[0][: given.limit], batch)
    largest = float(np.bincount(wanted).max() / len(wanted))
    return {
        **mean_of("finetuned_accuracy", predicted == wanted),
        **scored(
            "finetuned_matthews", lambda taken: matthews(predicted[taken], wanted[taken]), len(wanted), bounds=(-1, 1)
        ),
        "largest_class": largest,
        "finetuned_on": len(texts),
    }


def _batches(count: int, size: int, epochs: int, seed: int) -> Iterator[list[int]]:
    """Places of the items of each step, shuffled anew every epoch."""
    draw = np.random.default_rng(seed)
    for _ in range(epochs):
        order = draw.permutation(count)
        for start in range(0, count, size):
            yield order[start : start + size].tolist()


def _vectors(given: Evaluated, body: nn.Module, texts: list[str]) -> Tensor:
    """Sentence vectors with gradient, [n, d]."""
    special = given.pooling is not None
    rows = [given.tokenizer(text, add_special_tokens=special)["input_ids"][: given.context] or [0] for text in texts]
    width = max(map(len, rows))
    device = next(body.parameters()).device
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    states: Tensor = body(input_ids=ids, attention_mask=mask).last_hidden_state
    return pooled(states, given.pooling or "mean", mask)


@torch.no_grad()
def _predicted(given: Evaluated, body: nn.Module, layer: nn.Module, texts: list[str], batch: int) -> np.ndarray:
    """The class of each text, int [n]."""
    found = [
        layer(_vectors(given, body, texts[start : start + batch])).argmax(-1).cpu()
        for start in range(0, len(texts), batch)
    ]
    classes: np.ndarray = torch.cat(found).numpy()
    return classes


HARNESS = "lm-eval:"
UNTOLD = 10_000  # items: no set that is known is much larger


@verb("evaluate")
def evaluate(
    model: str | os.PathLike[str],
    text: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "Folder of the evaluation sets, as their authors ship them; not needed where all tasks are lm-eval:NAME.",
            metavar="FOLDER",
        ),
    ] = None,
    *,
    tasks: Annotated[
        str | Sequence[str] | None,
        Option(
            "Comma-separated: lambada, blimp, cola, sst2, stsb, paraphrase, rte, pud, synonyms, or lm-eval:NAME. Default: "
            "all that the folder holds and the model can do."
        ),
    ] = None,
    limit: Annotated[
        int | None, Option("At most so many items of a set. Default: all, or what some minutes have room for.", low=1)
    ] = None,
    finetune: Annotated[
        bool, Option("Train a copy of the model on each of the tasks that have classes, too (sst2, cola).")
    ] = False,
    finetune_epochs: Annotated[int, Option("How often a fine-tuning reads its sentences.", low=1)] = 3,
    finetune_rate: Annotated[float, Option("Peak learning rate of a fine-tuning.", above=0)] = 5e-5,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option("Weights and activations; auto is as the weights were saved."),
    ] = "float32",
    tokenizer: TokenizerName = None, device: Device = "auto",
    out: Out = None, resume: Resume = False, seed: Seed = 0, progress: Progressing = None, command: CommandLine = None,
) -> EvaluationResult:  # fmt: skip
    """Try the model in a folder (or of an id) on a folder of evaluation sets.

    tasks: names of `headscan.training.TASKS`; "lm-eval:NAME" is a task of lm-evaluation-harness, with its data from the
    Hub. Default: all that the folder holds and the model can do. A headless model is taken as the body it is. A task that
    is done is kept, so that a resumed run does not do it again. Raises BadInput where model, sets or tasks cannot be used.
    """
    asked, run = running()
    settings = asked.chosen(Evaluating)
    names = settings.names
    own = None if names is None else [name for name in names if not name.startswith(HARNESS)]
    theirs = [name.removeprefix(HARNESS) for name in names or [] if name.startswith(HARNESS)]
    for name in own or ():
        _ = TASKS[name]
    if own != [] and settings.text is None:
        raise BadInput(
            "Say which folder holds the evaluation sets: --text FOLDER. Only tasks named lm-eval:NAME need none."
        )
    if own != [] and not Path(settings.text or "").is_dir():
        raise BadInput(f"There is no folder '{settings.text}' of evaluation sets.")
    if theirs:
        check_harness()
    trained = load_trained(model, settings, run)
    pooling = declared_pooling(trained.folder)
    given = Evaluated(trained.model, trained.tokenizer, Path(settings.text or ""), settings.limit, pooling)
    chosen = [] if own == [] else tasks_for(given, own)
    for place in dict.fromkeys(TASKS[name].place for name in chosen if TASKS[name].place):
        run.identify(f"the set {place}", _content(given.sets / place))
    items = {name: settings.limit or affordable_items(given, len(chosen), name) for name in chosen}
    notes = []
    if settings.limit is None and min(items.values(), default=UNTOLD) < UNTOLD:
        said = ", ".join(f"{name} {most:,}" for name, most in items.items())
        notes = [f"Of each set the first items were tried, at most: {said} (--limit)."]
        run.announce(notes[0])
    if pooling is not None:
        notes.append(f"Sentence vectors are made as the model's folder says: {pooling}, with special tokens.")
    trainable = [name for name in chosen if TASKS[name].labelled is not Task.labelled] if settings.finetune else []
    if settings.finetune and not trainable:
        raise BadInput("--finetune needs a task with classes, such as sst2 or cola.")
    scores: list[Score] = []
    for done, label in enumerate([*chosen, *(HARNESS + name for name in theirs)]):
        run.progress(f"evaluating · {label}", done, len(chosen) + len(theirs), "tasks")
        numbers = run.unit(
            label, Numbers, partial(_numbers, replace(given, limit=items.get(label, given.limit)), label)
        ).values
        scores += _scores(label, numbers)
    for label in trainable:
        most = settings.limit or max(
            64, items[label] // (4 * settings.finetune_epochs)
        )  # a pass back takes twice one forth
        made = partial(_finetuned, replace(given, limit=most), label, settings, run)
        numbers = run.unit(f"{label}, fine-tuned", Numbers, made).values
        scores += _scores(label, numbers)
    return EvaluationResult(
        protocol=run.protocol(
            device=str(trained.model.device), dtype=str(trained.model.dtype).removeprefix("torch."), notes=notes
        ),
        models=[trained.record],
        scores=scores,
    )


@dataclass(frozen=True)
class Numbers:
    """What one task found, as it is kept for a resume."""

    values: Scores


def _scores(task: str, numbers: Scores) -> list[Score]:
    """Each number with its interval."""
    found = []
    for name, value in numbers.items():
        interval = numbers.get(f"{name}_interval")
        if not isinstance(value, list) and not name.endswith("_interval"):
            found.append(
                Score(task=task, number=name, value=value, interval=interval if isinstance(interval, list) else None)
            )
    return found


def _numbers(given: Evaluated, label: str) -> Numbers:
    if not label.startswith(HARNESS):
        return Numbers(evaluate_task(given, label))
    (found,) = harness(given.model, given.tokenizer, [label.removeprefix(HARNESS)], limit=given.limit).values()
    errors = {name: found.get(f"{name}_stderr") for name in found}
    return Numbers(
        dict(found) | {f"{n}_interval": list(normal(found[n], e)) for n, e in errors.items() if e is not None}
    )


def _finetuned(given: Evaluated, label: str, settings: Evaluating, run: Run) -> Numbers:
    parts = TASKS[label]().labelled(given)
    assert parts is not None
    found = finetuned(
        given, *parts, epochs=settings.finetune_epochs, rate=settings.finetune_rate, seed=settings.seed,
        progress=run.progress,
    )  # fmt: skip
    return Numbers(found)


def _content(folder: Path) -> str:
    """The SHA-256 of a folder's files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\xff" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
