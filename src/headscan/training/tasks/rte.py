"""RTE: does the second sentence follow from the first?"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headscan.run import BadInput
from headscan.training.sentences import probe_pairs
from headscan.training.task import TASKS, Evaluated, Scores, Task

__all__ = ["Entailment", "read_rte"]


def read_rte(path: str | Path) -> tuple[list[str], list[str], npt.NDArray[np.int64]]:
    """(premises, hypotheses, 1 for entailment) of a .tsv of GLUE's RTE: index, sentence1, sentence2, label."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        labels = np.array([int(row["label"] == "entailment") for row in rows])
        return [row["sentence1"] for row in rows], [row["sentence2"] for row in rows], labels
    except (OSError, KeyError, UnicodeDecodeError):
        raise BadInput(f"{path} is no .tsv with the columns sentence1, sentence2 and label.") from None


@TASKS.register("rte")
class Entailment(Task):
    """A probe on pairs of sentence vectors, trained on rte/train.tsv, tested on dev.tsv (on the Hub: nyu-mll/glue, rte)."""

    place: ClassVar[str] = "rte"

    def scores(self, given: Evaluated) -> Scores:
        """Accuracy, Matthews' correlation, and the share of the largest class."""
        return probe_pairs(
            given.vectors,
            *(read_rte(given.sets / "rte" / f"{part}.tsv") for part in ("train", "dev")),
            limit=given.limit,
        )
