"""A real text that every machine with Python has: the sources of its standard library."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from headscan.ntp import SoftLabels
from headscan.text.counts import count
from headscan.text.source import Counting


def characters(limit: int) -> str:
    """The first `limit` characters of the library's .py files in sorted order, tests and packages
    left out.
    """
    parts = []
    size = 0
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "test", "tests", "idlelib"} & set(path.parts):
            continue
        text = path.read_text(errors="ignore")
        parts.append(text)
        size += len(text)
        if size >= limit:
            break
    return "".join(parts)[:limit]


def tokens(text: str, vocabulary: int, words: bool = False) -> np.ndarray:
    """Characters or words as ids by falling frequency; the rarer ones beyond `vocabulary` are left
    out.
    """
    units = (
        np.array(re.findall(r"\w+|[^\w\s]", text))
        if words
        else np.frombuffer(text.encode("utf-32-le"), np.uint32)
    )
    _, inverse, counts = np.unique(units, return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(-counts, kind="stable"))
    ids = rank[inverse]
    return ids[ids < vocabulary]


def labels(ids: np.ndarray, order: int, vocabulary: int, most: int | None = None) -> SoftLabels:
    """Soft labels of the contexts of `order`, or of the `most` frequent of them."""
    counts = count([ids], vocabulary, Counting(order=order))
    matrix: sp.csr_matrix = counts.matrix()
    if most is not None and matrix.shape[0] > most:
        matrix = matrix[np.sort(np.argsort(-counts.occurrences, kind="stable")[:most])]
    return SoftLabels.of(matrix)
