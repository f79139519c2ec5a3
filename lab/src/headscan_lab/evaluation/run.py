"""From a model's folder to what it can do: `headscan evaluate`."""

import hashlib
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.model.inputs import declared_pooling
from headscan.model.settings import Device, Loading, TokenizerName
from headscan.run import (
    BadInput,
    CommandLine,
    Option,
    Out,
    Progressing,
    Resume,
    Run,
    Seed,
    names_in,
    verb,
)
from headscan.run.settings import Overwrite
from headscan.run.verbs import Given
from headscan.statistics.uncertainty import normal
from headscan.training.checkpoints import load_trained
from headscan_lab.evaluation.result import EvaluationResult, Score
from headscan_lab.evaluation.task import (
    TASKS,
    Evaluated,
    Scores,
    affordable_items,
    evaluate_task,
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
) -> dict[str, dict[str, float]]:
    """Run tasks of lm-evaluation-harness on a causal model with a head; {task: {metric: value}}.

    tasks: names ("lambada_openai", "blimp", "hellaswag", ...), which fetch their data from the Hub,
    or task objects of the harness. limit: items a task. options: anything else that
    `lm_eval.simple_evaluate` takes. Raises BadInput where the harness is not installed, knows no
    such task, or the model has no head.
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
        raise BadInput(
            f"lm-evaluation-harness {lm_eval.__version__} has no task {', '.join(unknown)}."
        )
    length = getattr(model.config, "max_position_embeddings", None)
    wrapped = HFLM(
        pretrained=model.eval(), tokenizer=tokenizer, batch_size=batch, max_length=length
    )
    found = lm_eval.simple_evaluate(
        wrapped, tasks=tasks, limit=limit, task_manager=manager, **options
    )
    return {
        task: {
            name.removesuffix(",none"): float(value)
            for name, value in numbers.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for task, numbers in found["results"].items()
    }


HARNESS = "lm-eval:"
UNTOLD = 10_000  # items: no set that is known is much larger


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
            "mnli_mismatch, xnli, pud, synonyms, cola-finetuned, sst2-finetuned, or lm-eval:NAME. "
            "Default: all but the fine-tuned that the folder holds and the model can do.",
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
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option("Weights and activations; auto is as the weights were saved.", group="Advanced"),
    ] = "float32",
    tokenizer: TokenizerName = None,
    device: Device = "auto",
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> EvaluationResult:
    """Try the model in a folder (or of an id) on a folder of evaluation sets.

    tasks: names of `headscan.training.TASKS`; "lm-eval:NAME" is a task of lm-evaluation-harness,
    with its data from the Hub (with `limit`, its first items). Default: all that the folder holds
    and the model can do. A headless model is taken as the body it is. A task that is done is kept,
    so that a resumed run does not do it again. Raises BadInput where model, sets or tasks cannot be
    used.
    """
    asked = Given(locals())
    names = None if tasks is None else names_in(tasks)
    own = None if names is None else [name for name in names if not name.startswith(HARNESS)]
    theirs = [name.removeprefix(HARNESS) for name in names or [] if name.startswith(HARNESS)]
    for name in own or ():
        _ = TASKS[name]
    if own != [] and text is None:
        raise BadInput(
            "Say which folder holds the evaluation sets: --text FOLDER. Only tasks named "
            "lm-eval:NAME need none."
        )
    if own != [] and not Path(text or "").is_dir():
        raise BadInput(f"There is no folder '{text}' of evaluation sets.")
    if theirs:
        check_harness()
    trained = load_trained(model, asked.chosen(Loading), run)
    pooling = declared_pooling(trained.folder)
    given = Evaluated(trained.model, trained.tokenizer, Path(text or ""), limit, pooling, run.seed)
    chosen = [] if own == [] else tasks_for(given, own)
    places = dict.fromkeys(TASKS[name].place for name in chosen if TASKS[name].place)
    run.identify("the sets", {str(place): _content(given.sets / place) for place in places})
    items = {name: limit or affordable_items(given, len(chosen), name) for name in chosen}
    notes = []
    if limit is None and min(items.values(), default=UNTOLD) < UNTOLD:
        said = ", ".join(f"{name} {most:,}" for name, most in items.items())
        notes = [f"Of each set a sample was tried, at most: {said} (--limit)."]
        run.announce(notes[0])
    if pooling is not None:
        notes.append(
            f"Sentence vectors are made as the model's folder says: {pooling}, with special tokens."
        )
    scores: list[Score] = []
    for done, label in enumerate([*chosen, *(HARNESS + name for name in theirs)]):
        run.progress(f"evaluating · {label}", done, len(chosen) + len(theirs), "tasks")
        numbers = run.unit(
            label,
            Numbers,
            partial(_numbers, replace(given, limit=items.get(label, given.limit)), label),
        ).values
        scores += _scores(label, numbers)
    precision = str(trained.model.dtype).removeprefix("torch.")
    protocol = run.protocol(device=str(trained.model.device), dtype=precision, notes=notes)
    return EvaluationResult(protocol=protocol, models=[trained.record], scores=scores)


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
                Score(
                    task=task,
                    number=name,
                    value=value,
                    interval=interval if isinstance(interval, list) else None,
                )
            )
    return found


def _numbers(given: Evaluated, label: str) -> Numbers:
    if not label.startswith(HARNESS):
        return Numbers(evaluate_task(given, label))
    (found,) = harness(
        given.model, given.tokenizer, [label.removeprefix(HARNESS)], limit=given.limit
    ).values()
    errors = {name: found.get(f"{name}_stderr") for name in found}
    return Numbers(
        dict(found)
        | {f"{n}_interval": list(normal(found[n], e)) for n, e in errors.items() if e is not None}
    )


def _content(folder: Path) -> str:
    """The SHA-256 of a folder's files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(
            str(path.relative_to(folder)).encode()
            + b"\xff"
            + hashlib.sha256(path.read_bytes()).digest()
        )
    return digest.hexdigest()
