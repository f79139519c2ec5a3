"""SST-2: is a sentence friendly?"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headscan.training.sentences import probe
from headscan.training.task import TASKS, Evaluated, Labelled, Scores, Task
from headscan.training.tasks._lines import lines

__all__ = ["Sentiment", "read_sst2"]


def read_sst2(path: str | Path) -> tuple[list[str], npt.NDArray[np.int64]]:
    """(sentences, 1 for positive) of a file of lines "label sentence"."""
    rows = [line.split(" ", 1) for line in lines(path) if " " in line]
    return [row[1] for row in rows], np.array([int(row[0]) for row in rows])


@TASKS.register("sst2")
class Sentiment(Task):
    """A linear probe on sentence vectors, trained on sst2/stsa.binary.train, tested on stsa.binary.dev."""

    place: ClassVar[str] = "sst2"

    def labelled(self, given: Evaluated) -> tuple[Labelled, Labelled]:
        """The sentences of both parts."""
        train, dev = (read_sst2(given.sets / "sst2" / f"stsa.binary.{part}") for part in ("train", "dev"))
        return train, dev

    def scores(self, given: Evaluated) -> Scores:
        """Accuracy and Matthews' correlation."""
        (x, y), (z, w) = ((given.vectors(texts), labels[: given.limit]) for texts, labels in self.labelled(given))
        return probe(x, y, z, w)
