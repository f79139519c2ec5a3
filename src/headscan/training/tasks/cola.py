"""CoLA: is a sentence grammatical?"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headscan.training.sentences import probe
from headscan.training.task import TASKS, Evaluated, Labelled, Scores, Task
from headscan.training.tasks._lines import lines

__all__ = ["Cola", "read_cola"]


def read_cola(path: str | Path) -> tuple[list[str], npt.NDArray[np.int64]]:
    """(sentences, 1 for acceptable) of a CoLA .tsv: source, label, author's mark, sentence."""
    rows = [line.split("\t") for line in lines(path)]
    return [row[3] for row in rows], np.array([int(row[1]) for row in rows])


def sources(path: str | Path) -> list[str]:
    """The publication that each sentence of a CoLA .tsv is from."""
    return [line.split("\t")[0] for line in lines(path)]


@TASKS.register("cola")
class Cola(Task):
    """A linear probe on sentence vectors, trained on cola/in_domain_train.tsv, tested on in_domain_dev.tsv."""

    place: ClassVar[str] = "cola"

    def labelled(self, given: Evaluated) -> tuple[Labelled, Labelled]:
        """The sentences of both parts."""
        train, dev = (read_cola(given.sets / "cola" / f"in_domain_{part}.tsv") for part in ("train", "dev"))
        return train, dev

    def scores(self, given: Evaluated) -> Scores:
        """Accuracy and Matthews' correlation; sentences of one publication err together."""
        (x, y), (z, w) = ((given.vectors(texts), labels[: given.limit]) for texts, labels in self.labelled(given))
        return probe(x, y, z, w, groups=sources(given.sets / "cola" / "in_domain_dev.tsv")[: given.limit])
