"""Each window turned by itself: no common frame is left."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headscan.geometry.compare.null import NULLS, NullModel, NullTask, NullWords
from headscan.geometry.compare.prepared import Prepared

__all__ = ["RotatedWindows"]


@NULLS.register("rotation")
class RotatedWindows(NullModel):
    """The second model's windows, each turned by a random rotation of its own, on 16 principal components.

    One rotation of all tokens would change none of the measures. One of each window keeps all lengths and all angles
    between tokens of a window, and takes away what different windows say of one another.
    """

    words = NullWords(
        title="Rotated windows",
        sentence="Each window of one model is turned by a random rotation of its own.",
        keeps="all lengths, and all angles between tokens of the same window",
    )

    def pairs(self, task: NullTask) -> Iterator[tuple[Prepared, Prepared]]:
        """Two windows at least are needed."""
        x, y = (Prepared.of(rows, {}) for rows in (task.x, task.y))
        if y.windows < 2:
            return
        first = Prepared.on(x.windows, x.coordinates, list(x.coordinates), task.measures)
        yield first, Prepared.on(y.windows, y.coordinates, list(y.coordinates), task.measures)
        for _ in range(task.draws):
            turned = _turned(y.coordinates.unflatten(1, (y.windows, -1)), task.generator).flatten(1, 2)
            yield first, Prepared.on(y.windows, turned, list(turned), task.measures)


def _turned(windows: Tensor, generator: torch.Generator) -> Tensor:
    """Rows [S, windows, m, k], each window by a rotation from the uniform distribution (Mezzadri 2007)."""
    size = windows.shape[-1]
    normal = torch.randn(windows.shape[1], size, size, generator=generator, dtype=windows.dtype)
    q, r = torch.linalg.qr(normal)
    turned: Tensor = windows @ (q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :])
    return turned
