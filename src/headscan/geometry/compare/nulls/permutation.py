"""Other windows of the same text: whole windows change places."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headscan.geometry.compare.null import NULLS, NullModel, NullTask, NullWords
from headscan.geometry.compare.prepared import Prepared

__all__ = ["Permutation"]


@NULLS.register("permutation")
class Permutation(NullModel):
    """The second model's windows in random order, position by position: exact where windows are exchangeable."""

    words = NullWords(
        title="Permuted windows",
        sentence="Each window of one model is held against another window of the other, position by position.",
        keeps="what is the same at a position of any window, and what hangs together inside a window",
    )

    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        """Two windows at least are needed."""
        x, y = (Prepared.of(rows, task.measures) for rows in (task.x, task.y))
        if y.windows < 2:
            return
        yield x, y
        for _ in range(task.draws):
            yield x, y.permuted(torch.randperm(y.windows, generator=task.generator))
