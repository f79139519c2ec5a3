"""From a model's folder to what it can do: `headscan evaluate`."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headscan.model.pooling import declared_pooling
from headscan.run import BadInput, Run, verb
from headscan.training.finetuning import finetuned
from headscan.training.harness import check_harness, harness
from headscan.training.loading import load_trained
from headscan.training.records import Score
from headscan.training.result import EvaluationResult
from headscan.training.settings import Evaluating
from headscan.training.task import TASKS, Evaluated, Scores, Task, affordable_items, evaluate_task, tasks_for

__all__ = ["evaluate"]

HARNESS = "lm-eval:"
UNTOLD = 10_000  # items: no set that is known is much larger


@verb("evaluate", Evaluating)
def evaluate(model: str | os.PathLike[str], settings: Evaluating, run: Run) -> EvaluationResult:
    """Try the model in a folder (or of an id) on a folder of evaluation sets.

    tasks: names of `headscan.training.TASKS`; "lm-eval:NAME" is a task of lm-evaluation-harness, with its data from the
    Hub. Default: all that the folder holds and the model can do. A headless model is taken as the body it is. A task that
    is done is kept, so that a resumed run does not do it again. Raises BadInput where model, sets or tasks cannot be used.
    """
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
        dict(found)
        | {f"{n}_interval": [found[n] - 1.96 * e, found[n] + 1.96 * e] for n, e in errors.items() if e is not None}
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
