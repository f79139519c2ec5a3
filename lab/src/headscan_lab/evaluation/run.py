"""The verb `headscan evaluate`: it tries a model on a folder of evaluation sets."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Unpack

from headscan.model import Lens
from headscan.model.matrices import matrices
from headscan.model.rounding import RoundingName, round_block
from headscan.model.sentence import declared_pooling
from headscan.model.settings import Device, Loading, TokenizerName
from headscan.run import (
    BadInput,
    Json,
    Option,
    Run,
    Seed,
    names_in,
    verb,
)
from headscan.run.settings import RunOptions
from headscan.statistics.uncertainty import normal
from headscan.training.checkpoints import load_trained
from headscan_lab.evaluation.harness import check_harness, harness
from headscan_lab.evaluation.result import EvaluationResult, Score
from headscan_lab.evaluation.scores import Numbers, PlainNumber, changes
from headscan_lab.evaluation.task import (
    TASKS,
    Evaluated,
    affordable_items,
    evaluate_task,
    tasks_for,
)

HARNESS = "lm-eval:"
"""The beginning of the names of lm-evaluation-harness's tasks."""
LARGEST_SET = 10_000  # items: no set that is known is much larger


@verb("evaluate")
def evaluate(
    run: Run,
    model: str | os.PathLike[str],
    text: Annotated[
        str | os.PathLike[str] | None,
        Option(
            "Folder of the evaluation sets, as their authors ship them; not needed where all "
            "tasks are lm-eval:NAME.",
            metavar="FOLDER",
            group="Input",
        ),
    ] = None,
    *,
    tasks: Annotated[
        str | Sequence[str] | None,
        Option(
            "Comma-separated: lambada, blimp, cola, sst2, stsb, rte, wnli, mrpc, qqp, qnli, mnli, "
            "mnli_mismatch, xnli, pud, synonyms, NAME-finetuned (cola, sst2 and all pairs), or "
            "lm-eval:NAME. Default: all but the fine-tuned that the folder holds and the model can "
            "do.",
            group="Input",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        Option(
            "At most so many items of a set, drawn with --seed. Default: all, or what some "
            "minutes have room for.",
            low=1,
            group="Limits",
        ),
    ] = None,
    against: Annotated[
        RoundingName | None,
        Option(
            "Do the tasks again with the matrices of all blocks rounded so, and give the changes.",
            group="Input",
        ),
    ] = None,
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option("Weights and activations; auto is as the weights were saved.", group="Advanced"),
    ] = "float32",
    tokenizer: TokenizerName = None,
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[RunOptions],
) -> EvaluationResult:
    """Try the model in a folder (or of an id) on a folder of evaluation sets.

    `tasks` are names of `headscan_lab.evaluation.task.TASKS`; "lm-eval:NAME" is a task of
    lm-evaluation-harness, with its data from the Hub (with `limit`, its first items). By default
    all tasks are done that the folder holds and the model can do. A headless model is evaluated as
    the body that it is. A finished task is stored, so that a resumed run does not repeat it. With
    `against`, "NAME change" is by how much the rounding changes a number of the same items.

    Raises:
        BadInput: where model, sets or tasks cannot be used.
    """
    request = _requested_tasks(tasks)
    if against is not None and request.harness_tasks:
        raise BadInput("--against is for tasks of sets, not for those of lm-evaluation-harness.")
    _check_request(request, text)
    trained = load_trained(model, Loading(tokenizer=tokenizer, dtype=dtype, device=device), run)
    pooling = declared_pooling(trained.folder)
    subject = Evaluated(
        trained.model, trained.tokenizer, Path(text or ""), limit, pooling, run.seed
    )
    set_tasks = [] if request.set_tasks == [] else tasks_for(subject, request.set_tasks)
    _identify_sets(run, subject, set_tasks)

    items = {}
    for name in set_tasks:
        items[name] = limit or affordable_items(subject, len(set_tasks), name)
    notes = []
    if limit is None and min(items.values(), default=LARGEST_SET) < LARGEST_SET:
        counts = ", ".join(f"{name} {count:,}" for name, count in items.items())
        notes.append(f"Of each set a sample was tried, at most: {counts} (--limit).")
        run.announce(notes[0])
    if pooling is not None:
        notes.append(
            f"Sentence vectors are made as the model's folder says: {pooling}, with special tokens."
        )

    scores: list[Score] = []
    labels = [*set_tasks, *(HARNESS + name for name in request.harness_tasks)]
    for done, label in enumerate(labels):
        run.progress(f"evaluating · {label}", done, len(labels), "tasks")
        limited = replace(subject, limit=items.get(label, limit))
        scores += run.unit(label, TaskScores, partial(_scores, limited, label, against)).scores
    precision = str(trained.model.dtype).removeprefix("torch.")
    protocol = run.protocol(device=str(trained.model.device), dtype=precision, notes=notes)
    return EvaluationResult(protocol=protocol, models=[trained.record], scores=scores)


@dataclass(frozen=True)
class _Request:
    """The tasks that a user named.

    Attributes:
        set_tasks: tasks of this package; None: all that the folder holds and the model can do.
        harness_tasks: tasks of lm-evaluation-harness, without `HARNESS`.
    """

    set_tasks: list[str] | None
    harness_tasks: list[str]


def _requested_tasks(tasks: str | Sequence[str] | None) -> _Request:
    if tasks is None:
        return _Request(None, [])
    names = names_in(tasks)
    set_tasks = [name for name in names if not name.startswith(HARNESS)]
    harness_tasks = [name.removeprefix(HARNESS) for name in names if name.startswith(HARNESS)]
    return _Request(set_tasks, harness_tasks)


def _check_request(request: _Request, text: str | os.PathLike[str] | None) -> None:
    """Raise BadInput for an unknown task, a missing folder of sets, and a missing harness."""
    for name in request.set_tasks or ():
        _ = TASKS[name]
    if request.set_tasks != []:
        if text is None:
            raise BadInput(
                "Say which folder holds the evaluation sets: --text FOLDER. Only tasks named "
                "lm-eval:NAME need none."
            )
        if not Path(text or "").is_dir():
            raise BadInput(f"There is no folder '{text}' of evaluation sets.")
    if request.harness_tasks:
        check_harness()


def _identify_sets(run: Run, subject: Evaluated, tasks: list[str]) -> None:
    """Let the run depend on the content of the sets that the tasks read."""
    folders = dict.fromkeys(TASKS[name].folder for name in tasks if TASKS[name].folder)
    contents: Json = {str(folder): _content(subject.sets / folder) for folder in folders}
    run.identify("the sets", contents)


@dataclass(frozen=True)
class TaskScores:
    """The scores of one task, as they are stored for a resume."""

    scores: list[Score]


def _scores(subject: Evaluated, label: str, against: RoundingName | None) -> TaskScores:
    """Return the scores of a task of this package or of lm-evaluation-harness."""
    if label.startswith(HARNESS):
        numbers = _harness_numbers(subject, label.removeprefix(HARNESS))
    else:
        numbers = evaluate_task(subject, label)
    if against is not None:
        with rounded_blocks(subject, against):
            numbers = numbers | changes(numbers, evaluate_task(subject, label))
    scores = []
    for name, number in numbers.items():
        scores.append(Score(task=label, number=name, value=number.value, interval=number.interval))
    return TaskScores(scores)


def _harness_numbers(subject: Evaluated, name: str) -> Numbers:
    """Return the numbers of a task of lm-evaluation-harness, with the intervals of its errors."""
    results = harness(subject.model, subject.tokenizer, [name], limit=subject.limit)
    (metrics,) = results.values()
    numbers: Numbers = {}
    for metric, value in metrics.items():
        error = metrics.get(f"{metric}_stderr")
        interval = None if error is None else list(normal(value, error))
        numbers[metric] = PlainNumber(value, interval)
    return numbers


@contextmanager
def rounded_blocks(subject: Evaluated, against: RoundingName) -> Iterator[None]:
    """Round the matrices of all blocks of a model in this context."""
    blocks = [block for stack in Lens(subject.model).stacks for block in stack.blocks]
    weights = [matrix.weight for block in blocks for matrix in matrices(block)]
    originals = [weight.detach().clone() for weight in weights]
    try:
        for block in blocks:
            round_block(block, against)
        yield
    finally:
        for weight, original in zip(weights, originals, strict=True):
            weight.data.copy_(original)


def _content(folder: Path) -> str:
    """Return the SHA-256 of a folder's files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder)).encode()
        digest.update(name + b"\xff" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
