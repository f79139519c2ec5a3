"""Paraphrases: a task of RTE's kind, made from STS-B, whose data are free."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headscan.training.sentences import probe_pairs
from headscan.training.task import TASKS, Evaluated, Scores, Task
from headscan.training.tasks.stsb import read_stsb

__all__ = ["Paraphrase", "paraphrases"]

SAME, OTHER = 4.0, 2.0  # STS-B scores: from here on the same statement; up to here another


def paraphrases(
    one: list[str], other: list[str], scores: npt.NDArray[np.floating | np.integer]
) -> tuple[list[str], list[str], npt.NDArray[np.int64]]:
    """From STS-B's graded pairs to yes and no, as in RTE: 1 where the second sentence says what the first does (a score
    of 4 and more), 0 where it does not (2 and less); what lies between is left out.

    >>> paraphrases(["a", "b", "c"], ["d", "e", "f"], np.array([5, 3, 0]))[2].tolist()
    [1, 0]
    """
    kept = (scores >= SAME) | (scores <= OTHER)
    chosen = np.flatnonzero(kept)
    return [one[i] for i in chosen], [other[i] for i in chosen], (scores[kept] >= SAME).astype(int)


@TASKS.register("paraphrase")
class Paraphrase(Task):
    """Does the second sentence of an STS-B pair say what the first does? From stsb/stsb-en-{dev,test}.csv."""

    place: ClassVar[str] = "stsb"

    def scores(self, given: Evaluated) -> Scores:
        """Accuracy, Matthews' correlation, and the share of the largest class."""
        parts = [paraphrases(*read_stsb(given.sets / "stsb" / f"stsb-en-{part}.csv")) for part in ("dev", "test")]
        return probe_pairs(given.vectors, *parts, limit=given.limit)
