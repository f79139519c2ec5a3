"""Sums of directions by parts, which the length of their mean is made of."""

from collections.abc import Iterator
from functools import partial
from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, device_of, prefixed, unprefixed
from headscan.statistics.blocks import Blocks
from headscan.statistics.tally import BLOCKS, SiteBatch, Tally

CHUNK = 512
"""Tokens at a time on a CPU: in float64 they stay in the cache, and no memory is allocated anew."""


class PartSums(Accumulator):
    """Σx/‖x‖ of one site, cut by cells, by documents, and by the terms of the states; exact,
    float64.

    Each of at most 16 blocks of consecutive windows is a `Tally` of `cells` [cells, d] (disjoint
    sets of tokens), their `tokens` [cells], `sources` [sources, d] (each term of the states,
    divided by their norm) and `constants` [constants] (sums of the weights of vectors that are the
    same for all tokens). `documents`: at most 16 groups of consecutive documents, each with `unit`
    [d] and `tokens`. Memory 8·16·(cells + sources + 1)·d bytes.
    """

    def __init__(
        self,
        width: int,
        *,
        cells: int,
        sources: int = 0,
        constants: int = 0,
        device: torch.device | str = "cpu",
    ):
        self.width = width
        self.cells = cells
        self.sources = sources
        self.constants = constants
        self.device = torch.device(device)
        block_shapes = {
            "cells": (cells, width),
            "tokens": (cells,),
            "sources": (sources, width),
            "constants": (constants,),
        }
        document_shapes = {"unit": (width,), "tokens": ()}
        self.blocks: Blocks[Tally] = Blocks(BLOCKS, partial(Tally, block_shapes, self.device))
        self.documents: Blocks[Tally] = Blocks(BLOCKS, partial(Tally, document_shapes, self.device))

    def update(self, batch: SiteBatch, cells: Tensor) -> None:
        """Add a batch [B, T, d], each token to its cell, int64 [B, T]."""
        states = batch.counted
        length = states.shape[1]
        vectors = states.flatten(0, 1)
        inverse_norms = torch.where(batch.norms > 0, 1 / batch.norms, 0.0).flatten()
        cell = cells.to(states.device).flatten()

        documents = batch.documents
        if documents is None:
            documents = torch.zeros_like(batch.ids)
        numbers, document = documents.unique(return_inverse=True)
        document = document.to(states.device).flatten()
        document_sums = inverse_norms.new_zeros(len(numbers), self.width)

        chunk = CHUNK if states.device.type == "cpu" else len(vectors)
        for tally, rows in self.runs(batch.windows):
            start = rows.start * length
            stop = rows.stop * length
            cell_sums = torch.zeros_like(tally["cells"])
            for chunk_start in range(start, stop, chunk):
                part = slice(chunk_start, min(chunk_start + chunk, stop))
                unit = vectors[part].double() * inverse_norms[part, None]
                cell_sums.index_add_(0, cell[part], unit)
                if len(numbers) > 1:
                    document_sums.index_add_(0, document[part], unit)
            tally["cells"] += cell_sums
            tally["tokens"] += torch.bincount(cell[start:stop], minlength=self.cells)
            if len(numbers) == 1:
                document_sums += cell_sums.sum(0)

        if batch.documents is not None:
            counts = torch.bincount(document)
            self._add_documents(numbers.tolist(), document_sums, counts)

    def _add_documents(self, numbers: list[int], sums: Tensor, counts: Tensor) -> None:
        """Add the sums [n, d] and the token counts [n] of documents with ascending numbers."""
        self.documents.index(numbers[-1])  # coarsening happens once
        for number, unit, count in zip(numbers, sums, counts, strict=True):
            tally = self.documents[number]
            tally["unit"] += unit
            tally["tokens"] += count

    def runs(self, windows: list[int]) -> Iterator[tuple[Tally, slice]]:
        """Yield the tallies of a batch of consecutive windows, each with the rows that belong to
        it.
        """
        for tally, rows in self.blocks.runs(windows):
            yield tally, slice(rows[0], rows[-1] + 1)

    def merge(self, other: "PartSums") -> None:
        self.blocks.merge(other.blocks)
        self.documents.merge(other.documents)

    def state(self) -> dict[str, Tensor]:
        state = {
            "width": torch.tensor(self.width),
            "cells": torch.tensor(self.cells),
            "sources": torch.tensor(self.sources),
            "constants": torch.tensor(self.constants),
        }
        state |= prefixed("blocks", self.blocks.state())
        state |= prefixed("documents", self.documents.state())
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        sums = cls(
            int(state["width"]),
            cells=int(state["cells"]),
            sources=int(state["sources"]),
            constants=int(state["constants"]),
            device=device_of(state),
        )
        sums.blocks = sums.blocks.restored(unprefixed("blocks", state))
        sums.documents = sums.documents.restored(unprefixed("documents", state))
        return sums
