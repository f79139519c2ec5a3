"""Batches of windows, and their deterministic shares for many processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscan.text.windows import Window

__all__ = ["Batch", "batches"]


class Batch(NamedTuple):
    """A batch: its number, its windows' indices [b], their token ids and these tokens' documents [b, context], int64; where
    they were asked for, where these tokens end."""

    number: int
    indices: NDArray[np.int64]
    ids: NDArray[np.int64]
    documents: NDArray[np.int64]
    ends: NDArray[np.int64] | None = None


def batches(windows: Iterable[Window], size: int, *, process: int = 0, processes: int = 1) -> Iterator[Batch]:
    """Group windows into batches, and keep those of one process.

    Batch k holds the windows k * size ... (k + 1) * size - 1 (the last one may hold fewer) and belongs to process
    k mod `processes`. So the same batches exist whatever the number of processes, and also when the windows
    start at a multiple of `size`.

    Args:
        windows: in order, as `Windows` gives them.
        size: windows a batch, at least 1.
        process: the number of this process, from 0.
        processes: how many share the work.

    >>> row = np.arange(2)
    >>> [batch.indices.tolist() for batch in batches([Window(i, row, row) for i in range(5)], 2, process=0, processes=2)]
    [[0, 1], [4]]
    """
    if size < 1 or not 0 <= process < processes:
        raise ValueError("A batch has at least one window, and processes are numbered from 0.")
    held: list[Window] = []

    def batch() -> Batch:
        indices = np.array([window.index for window in held], dtype=np.int64)
        documents = np.stack([window.documents for window in held])
        ends = [window.ends for window in held if window.ends is not None]
        ids = np.stack([window.ids for window in held])
        return Batch(held[0].index // size, indices, ids, documents, np.stack(ends) if ends else None)

    for window in windows:
        if held and window.index // size != held[0].index // size:
            yield batch()
            held = []
        if window.index // size % processes == process:
            held.append(window)
    if held:
        yield batch()
