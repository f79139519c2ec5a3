"""STS-B: how alike are two sentences, in several languages?"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headscan.run import BadInput
from headscan.training.sentences import similarity_scores
from headscan.training.task import TASKS, Evaluated, Scores, Task

__all__ = ["Similarity", "read_stsb"]


def read_stsb(path: str | Path) -> tuple[list[str], list[str], npt.NDArray[np.float64]]:
    """(first sentences, second sentences, scores 0 to 5) of an STS-B .csv."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row[-3:] for row in csv.reader(file) if len(row) >= 3]
        return [row[0] for row in rows], [row[1] for row in rows], np.array([float(row[2]) for row in rows])
    except (OSError, ValueError):
        raise BadInput(f"{path} is no .csv of sentences, sentences and scores.") from None


@TASKS.register("stsb")
class Similarity(Task):
    """Spearman's correlation of cosines with human scores, for each stsb/stsb-LANGUAGE-test.csv."""

    place: ClassVar[str] = "stsb"
    tokens: ClassVar[int] = 100  # a pair in each language

    def scores(self, given: Evaluated) -> Scores:
        """One correlation a language."""
        found: Scores = {}
        for path in sorted((given.sets / "stsb").glob("stsb-*-test.csv")):
            one, other, gold = read_stsb(path)
            language = path.stem.split("-")[1]
            found |= similarity_scores(
                f"spearman {language}", given.vectors(one), given.vectors(other), gold[: given.limit]
            )
        return found
