"""The evaluation tasks: what one is, and which of them a model can do on a folder of sets.

A task is one class of `headscan_lab.evaluation`, or of a plug-in.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.model.sentence import Pooling
from headscan.model.traits import embedding_table, output_layer
from headscan.run import BadInput, Registry
from headscan_lab.evaluation.scores import Numbers
from headscan_lab.evaluation.vectors import sentence_vectors


@dataclass(frozen=True)
class Evaluated:
    """The model and the sets that a task works on.

    Attributes:
        sets: the folder of the evaluation sets.
        limit: the most items of a set. Of a larger set so many are drawn with `seed`, without
            replacement, and stay in the set's order. (Sets are often sorted, so that their first
            items are no sample.)
        pooling: how the model's folder says that sentence vectors are made, with special tokens.
            None: it says nothing, and the mean over the sentence's own tokens is used.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    sets: Path
    limit: int | None = None
    pooling: Pooling | None = None
    seed: int = 0

    def sampled_indices(self, count: int) -> list[int]:
        """Return which of `count` items are used; it is the same for every list of that length."""
        if self.limit is None or self.limit >= count:
            return list(range(count))
        drawing = np.random.default_rng(self.seed)
        return sorted(drawing.choice(count, self.limit, replace=False).tolist())

    def sample(self, *columns: Sequence[Any] | npt.NDArray[Any]) -> tuple[Any, ...]:
        """Return the items that are used, of each of several parallel lists or arrays."""
        indices = self.sampled_indices(len(columns[0]))
        samples: list[Any] = []
        for column in columns:
            if isinstance(column, np.ndarray):
                samples.append(column[indices])
            else:
                samples.append([column[index] for index in indices])
        return tuple(samples)

    @property
    def context(self) -> int | None:
        return getattr(self.model.config, "max_position_embeddings", None)

    @property
    def has_head(self) -> bool:
        return self.model.get_output_embeddings() is not None

    def vectors(self, sentences: list[str]) -> npt.NDArray[np.float32]:
        """Return the vectors [n, d] of sentences."""
        return sentence_vectors(
            self.model,
            self.tokenizer,
            sentences,
            context=self.context,
            pooling=self.pooling or "mean",
            special=self.pooling is not None,
        )


class Task(ABC):
    """An evaluation task.

    Attributes:
        folder: the folder below that of the sets which it reads; "" for none.
        tokens: about how many tokens one more item of the limit takes.
        needs_head: whether a headless body cannot do it.
        optional: whether it is done only where it is named.
    """

    folder: ClassVar[str] = ""
    tokens: ClassVar[int] = 60
    needs_head: ClassVar[bool] = False
    optional: ClassVar[bool] = False

    @abstractmethod
    def numbers(self, subject: Evaluated) -> Numbers:
        """Return the numbers of one model."""


MULTIPLICATIONS = 1.2e13
"""The multiplications that an evaluation may take by default.

They take three to six minutes of two cores or one (measured: 3 to 6e10 a second).
"""

TASKS: Registry[type[Task]] = Registry(
    "task",
    "headscan_lab.evaluation.likelihood_tasks",
    "headscan_lab.evaluation.sentence_tasks",
    "headscan_lab.evaluation.finetuning",
    "headscan_lab.evaluation.similarity",
)
"""All tasks by name."""


def tasks_for(subject: Evaluated, names: list[str] | None = None) -> list[str]:
    """Return the tasks to do: those named, or all that the folder holds and the model can do.

    Raises:
        BadInput: for a task that is unknown, whose set is absent, or that the model cannot do.
    """
    if names is None:
        return [name for name, task in TASKS.items() if _is_done_by_default(subject, task)]
    for name in names:
        task = TASKS[name]
        if not _has_set(subject, task):
            raise BadInput(f"{subject.sets} holds no {task.folder}/.")
        if task.needs_head and not subject.has_head:
            raise BadInput(f"{name} needs a model with a head: recover one first.")
    return names


def _has_set(subject: Evaluated, task: type[Task]) -> bool:
    return not task.folder or (subject.sets / task.folder).is_dir()


def _is_done_by_default(subject: Evaluated, task: type[Task]) -> bool:
    possible = subject.has_head or not task.needs_head
    return _has_set(subject, task) and possible and not task.optional


def affordable_items(subject: Evaluated, tasks: int, name: str) -> int:
    """Return how many items of a set an evaluation of `tasks` tasks tries by default.

    Every task has an equal share of MULTIPLICATIONS.
    """
    table = embedding_table(subject.model)
    head = output_layer(subject.model)
    tables = {id(table), id(None if head is None else head.weight)}
    multiplications_a_token = sum(
        weight.numel()
        for weight in subject.model.parameters()
        if weight.ndim > 1 and id(weight) not in tables
    )
    if TASKS[name].needs_head:
        multiplications_a_token += table.numel()
    budget = MULTIPLICATIONS * (1 if subject.model.device.type == "cpu" else 100)
    items = budget / max(tasks, 1) / max(multiplications_a_token, 1) / TASKS[name].tokens
    return max(1, int(items))


def evaluate_task(subject: Evaluated, name: str) -> Numbers:
    """Return the numbers of one task.

    Raises:
        BadInput: as `tasks_for` does.
    """
    tasks_for(subject, [name])
    return TASKS[name]().numbers(subject)
