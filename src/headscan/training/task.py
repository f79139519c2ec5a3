"""What a trained model can do: an evaluation task is one class in one file of `headscan.training.tasks`, or of a plug-in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.model.pooling import Pooling
from headscan.model.tables import embedding_table, output_layer
from headscan.run import BadInput, Registry
from headscan.training.scores import Scores
from headscan.training.sentences import sentence_vectors

__all__ = ["TASKS", "Evaluated", "Labelled", "Scores", "Task", "affordable_items", "evaluate_task", "tasks_for"]

Labelled = tuple[list[str], npt.NDArray[np.int64]]
"""Sentences, and the class of each."""


@dataclass(frozen=True)
class Evaluated:
    """What a task is tried on: a model with its tokenizer, the folder of the evaluation sets, items a set at most.

    pooling: how the model's folder says that sentence vectors are made (then with special tokens); None: it says nothing,
    and the mean over the sentence's own tokens is taken.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    sets: Path
    limit: int | None = None
    pooling: Pooling | None = None

    @property
    def context(self) -> int | None:
        """Tokens that the model takes at once."""
        return getattr(self.model.config, "max_position_embeddings", None)

    @property
    def has_head(self) -> bool:
        """Whether it gives probabilities of tokens."""
        return self.model.get_output_embeddings() is not None

    def vectors(self, sentences: list[str]) -> npt.NDArray[np.float32]:
        """Sentence vectors of the first `limit` sentences."""
        return sentence_vectors(
            self.model, self.tokenizer, sentences[: self.limit], context=self.context, pooling=self.pooling or "mean",
            special=self.pooling is not None,
        )  # fmt: skip


class Task(ABC):
    """One thing to try. place: the folder below that of the sets which it reads, "" for none. tokens: about how many one
    more item of the limit takes. needs_head: whether a headless body cannot do it."""

    place: ClassVar[str] = ""
    tokens: ClassVar[int] = 60
    needs_head: ClassVar[bool] = False

    def labelled(self, given: Evaluated) -> tuple[Labelled, Labelled] | None:
        """Sentences with classes, to train on and to test on, where the task has them: it can then be fine-tuned."""
        return None

    @abstractmethod
    def scores(self, given: Evaluated) -> Scores:
        """The numbers of one model."""


MULTIPLICATIONS = 1.2e13
"""What an evaluation may take unasked: three to six minutes of two cores or one (measured: 3 to 6e10 a second)."""

TASKS: Registry[type[Task]] = Registry("task", "headscan.training.tasks")
"""All tasks by name."""


def tasks_for(given: Evaluated, names: list[str] | None = None) -> list[str]:
    """The tasks to do: those named, or all that the folder holds and the model can do.

    Raises BadInput for a task that is unknown, whose set is not there, or that the model cannot do.
    """
    if names is None:
        return [
            name
            for name, task in TASKS.items()
            if (not task.place or (given.sets / task.place).is_dir()) and (given.has_head or not task.needs_head)
        ]
    for name in names:
        task = TASKS[name]
        if task.place and not (given.sets / task.place).is_dir():
            raise BadInput(f"{given.sets} holds no {task.place}/.")
        if task.needs_head and not given.has_head:
            raise BadInput(f"{name} needs a model with a head: recover one first.")
    return names


def affordable_items(given: Evaluated, tasks: int, name: str) -> int:
    """Items of a set that a default evaluation of so many tasks tries: what its share of some minutes has room for."""
    table, head = embedding_table(given.model), output_layer(given.model)
    apart = {id(table), id(None if head is None else head.weight)}
    body = sum(weight.numel() for weight in given.model.parameters() if weight.ndim > 1 and id(weight) not in apart)
    body += table.numel() if TASKS[name].needs_head else 0
    budget = MULTIPLICATIONS * (1 if given.model.device.type == "cpu" else 100)
    return max(1, int(budget / max(tasks, 1) / max(body, 1) / TASKS[name].tokens))


def evaluate_task(given: Evaluated, name: str) -> Scores:
    """The numbers of one task."""
    (only,) = tasks_for(given, [name])
    return TASKS[only]().scores(given)
