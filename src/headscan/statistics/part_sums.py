"""Sums of unit states by parts: what the length of their mean is made of."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator, Blocks
from headscan.statistics.tally import SiteBatch, Tally

BLOCKS = 16
NEAR = 512  # tokens at a time on a CPU: in float64 they stay in the cache, and no memory is asked for anew


class PartSums(Accumulator):
    """Σx/‖x‖ of one site, cut by cells, by documents, and by what the states are sums of; exact, float64.

    Each of at most 16 blocks of consecutive windows is a `Tally` of `cells` [cells, d] (disjoint sets of tokens), their `tokens`
    [cells], `sources` [sources, d] (each term of the states, divided by their norm) and `constants` [constants] (sums of the
    weights of vectors that are the same for all tokens). `documents`: at most 16 groups of consecutive documents, each with
    `unit` [d] and `tokens`. Memory 8·16·(cells + sources + 1)·d bytes.
    """

    arguments, fields = ("width", "cells", "sources", "constants"), ("blocks", "documents")

    def __init__(
        self, width: int, *, cells: int, sources: int = 0, constants: int = 0, device: torch.device | str = "cpu"
    ):
        self.width, self.cells, self.sources, self.constants = width, cells, sources, constants
        self.device = torch.device(device)
        self.blocks: Blocks[Tally] = Blocks(BLOCKS, self._zero)
        self.documents: Blocks[Tally] = Blocks(BLOCKS, self._document)

    def _zero(self) -> Tally:
        shapes = {"cells": (self.cells, self.width), "tokens": (self.cells,)}
        shapes |= {"sources": (self.sources, self.width), "constants": (self.constants,)}
        return Tally(shapes, self.device)

    def _document(self) -> Tally:
        return Tally({"unit": (self.width,), "tokens": ()}, self.device)

    def update(self, batch: SiteBatch, cells: Tensor) -> None:
        """Add a batch [B, T, d], each token to its cell, int64 [B, T]."""
        states, scale = batch.counted, torch.where(batch.norms > 0, 1 / batch.norms, 0.0).flatten()
        documents = torch.zeros_like(batch.ids) if batch.documents is None else batch.documents
        numbers, place = (one.to(states.device) for one in documents.unique(return_inverse=True))
        place, chosen = place.flatten(), cells.to(states.device).flatten()
        groups = scale.new_zeros(len(numbers), self.width)
        length, flat = states.shape[1], states.flatten(0, 1)
        near = NEAR if states.device.type == "cpu" else len(flat)
        for tally, rows in self.runs(batch.windows):
            whole = torch.zeros_like(tally["cells"])
            for start in range(rows.start * length, rows.stop * length, near):
                part = slice(start, min(start + near, rows.stop * length))
                unit = flat[part].double() * scale[part, None]
                whole.index_add_(0, chosen[part], unit)
                if len(numbers) > 1:
                    groups.index_add_(0, place[part], unit)
            tally["cells"] += whole
            tally["tokens"] += torch.bincount(chosen[rows.start * length : rows.stop * length], minlength=self.cells)
            if len(numbers) == 1:
                groups += whole.sum(0)
        if batch.documents is not None:
            self.documents.index(int(numbers[-1]))
            for number, one, count in zip(numbers.tolist(), groups, torch.bincount(place), strict=True):
                tally = self.documents[number]
                tally["unit"] += one
                tally["tokens"] += count

    def runs(self, windows: list[int]) -> Iterator[tuple[Tally, slice]]:
        """The rows of a batch of consecutive windows that belong to one block, and its tally."""
        for tally, members in self.blocks.runs(windows):
            yield tally, slice(members[0], members[-1] + 1)
