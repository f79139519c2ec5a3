"""Judging pairs of sentences: a probe on their vectors, for RTE and for a task of its kind made from STS-B."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from headscan.errors import BadInput

__all__ = ["pair_features", "paraphrases", "read_rte"]

SAME, OTHER = 4.0, 2.0  # STS-B scores: from here on the same statement; up to here another


def pair_features(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Vectors [n, d] twice to features [n, 4d]: both, the size of their difference, and their product.

    >>> pair_features(np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])).tolist()
    [[1.0, 2.0, 3.0, -1.0, 2.0, 3.0, 3.0, -2.0]]
    """
    return np.concatenate([one, other, np.abs(one - other), one * other], axis=1)


def paraphrases(
    one: list[str], other: list[str], scores: np.ndarray
) -> tuple[list[str], list[str], np.ndarray]:  # fmt: skip
    """From STS-B's graded pairs to yes and no, as in RTE: 1 where the second sentence says what the first does (a score
    of 4 and more), 0 where it does not (2 and less); what lies between is left out.

    >>> paraphrases(["a", "b", "c"], ["d", "e", "f"], np.array([5, 3, 0]))[2].tolist()
    [1, 0]
    """
    kept = (scores >= SAME) | (scores <= OTHER)
    chosen = np.flatnonzero(kept)
    return [one[i] for i in chosen], [other[i] for i in chosen], (scores[kept] >= SAME).astype(int)


def read_rte(path: str | Path) -> tuple[list[str], list[str], np.ndarray]:
    """(premises, hypotheses, 1 for entailment) of a .tsv of GLUE's RTE: index, sentence1, sentence2, label."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        labels = np.array([int(row["label"] == "entailment") for row in rows])
        return [row["sentence1"] for row in rows], [row["sentence2"] for row in rows], labels
    except (OSError, KeyError, UnicodeDecodeError):
        raise BadInput(f"{path} is no .tsv with the columns sentence1, sentence2 and label.") from None
