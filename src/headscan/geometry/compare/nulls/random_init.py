"""The first model with fresh random weights: what text and architecture alone make alike."""

from __future__ import annotations

from collections.abc import Iterator

from headscan.geometry.compare.null import NULLS, NullModel, NullTask, NullWords
from headscan.geometry.compare.prepared import Prepared

__all__ = ["RandomInit"]


@NULLS.register("random-init")
class RandomInit(NullModel):
    """The first model's architecture with weights drawn anew, against the second model as it is.

    Two models that read the same text share its tokens and positions, so untrained ones are alike, too, and a permutation
    rejects them. Given the second model, a first one whose weights are random is exchangeable with the draws: p is exact.
    """

    words = NullWords(
        title="Random weights",
        sentence="The first model with fresh random weights reads the same windows.",
        keeps="the tokens and positions that both read, and the first model's architecture",
    )

    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        """Nothing where the first model cannot be drawn anew (stored states, windows of another tokenizer)."""
        if task.redrawn is None:
            return
        x, y = (Prepared.of(rows, task.measures) for rows in (task.x, task.y))
        yield x, y
        for draw in range(task.draws):
            yield Prepared.of(task.redrawn(draw), task.measures), y
