"""Prompts with some units taken away, evaluated many at once: what occlusion, Shapley and faithfulness are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headscan.attribution.engine import Engine
from headscan.attribution.memory import Plan
from headscan.attribution.target import Target
from headscan.attribution.units import Unit
from headscan.errors import BadInput

__all__ = ["Coalitions"]


@dataclass
class Coalitions:
    """The value of the target when only some units of a prompt are there.

    Attributes:
        engine: the model.
        embeds: the prompt [T, e].
        units: which tokens go together.
        target: what is read.
        substitute: [e] or [T, e], what stands where a unit is missing; None: its tokens are left out altogether, and
            what follows moves up.
        plan: micro-batches.
        cached: share the keys and values of the prompt's first tokens between rows.
    """

    engine: Engine
    embeds: Tensor
    units: Sequence[Unit]
    target: Target
    substitute: Tensor | None
    plan: Plan
    cached: bool = True

    def __post_init__(self) -> None:
        if self.cached and not self.engine.shares:
            self.engine.share(self.embeds)
        positions = self.target.positions
        with torch.no_grad():
            self.original = self.engine.logits(self.embeds[None], positions)[0].float()
        self._first = np.array([unit.first for unit in self.units])
        self._owner = torch.zeros(len(self.embeds), dtype=torch.int64)
        for k, unit in enumerate(self.units):
            self._owner[list(unit.tokens)] = k

    def values(self, keep: np.ndarray) -> np.ndarray:
        """The target [R, S] for each row of `keep` [R, n], True where a unit is there."""
        return self.read(keep, lambda logits: self.target.value(logits, self.original))

    def read(self, keep: np.ndarray, measure: Callable[[Tensor], Tensor]) -> np.ndarray:
        """What `measure` makes of the logits [B, S, V] of each row: [R, S, ...]."""
        found: list[np.ndarray | None] = [None] * len(keep)
        for rows, prefix, length in self._batches(np.asarray(keep, dtype=bool)):
            embeds, positions = self._rows(keep[rows], prefix, length)
            with torch.no_grad():
                made = measure(self.engine.logits(embeds, positions, prefix)).cpu().numpy()
            for row, value in zip(rows, made, strict=True):
                found[row] = value
        return np.stack([value for value in found if value is not None])

    def _batches(self, keep: np.ndarray) -> list[tuple[list[int], int, int]]:
        """Rows that go through the model together, the prefix they share with the prompt, and their length.

        Rows are sorted by their first change, so that neighbours share most. Too many batches cost their starts, too
        few recompute what is known; a batch ends where the recomputed tokens cost more than another start.
        """
        lengths = keep @ np.array([len(unit.tokens) for unit in self.units]) if self.substitute is None else None
        last = min(self.target.positions)
        changes = np.where(keep.all(1), len(self.embeds), np.where(keep, len(self.embeds), self._first).min(1))
        # The token that is read must be computed, even where nothing before it changed.
        ceiling = last if lengths is None else np.maximum(np.minimum(last, lengths - 1), 0)
        prefixes = np.minimum(changes, ceiling) if self.engine.shares else np.zeros(len(keep), dtype=int)
        order = np.lexsort((prefixes, lengths)) if lengths is not None else np.argsort(prefixes, kind="stable")
        batches: list[tuple[list[int], int, int]] = []
        wasted = 0
        for row in order.tolist():
            length = int(lengths[row]) if lengths is not None else len(self.embeds)
            prefix = int(prefixes[row])
            rows, first, shared = batches[-1] if batches else ([], 0, -1)
            wasted += prefix - first
            full = (len(rows) + 1) * (length - first) > self.plan.rows * len(self.embeds)
            if shared != length or wasted > self.plan.slack or full:
                batches.append(([row], prefix, length))
                wasted = 0
            else:
                rows.append(row)
        return batches

    def _rows(self, keep: np.ndarray, prefix: int, length: int) -> tuple[Tensor, list[int]]:
        there = torch.from_numpy(np.ascontiguousarray(keep))[:, self._owner]
        positions = self.target.positions
        if self.substitute is not None:
            there = there[:, prefix:].to(self.embeds.device)
            absent = self.substitute if self.substitute.ndim == 1 else self.substitute[prefix:]
            return torch.where(there.unsqueeze(-1), self.embeds[prefix:], absent), positions
        if length == 0 or len(positions) > 1 or not self.engine.causal:
            raise BadInput(
                "Tokens can be removed only before one prediction of a causal model, and not all of them; "
                "use a substitute token instead."
            )
        where = there.nonzero()[:, 1].reshape(len(keep), length)[:, prefix:]
        return self.embeds[where.to(self.embeds.device)], [length - 1]

    @property
    def everything(self) -> np.ndarray:
        """The row with every unit there, [n]."""
        return np.ones(len(self.units), dtype=bool)

    def without_each(self) -> np.ndarray:
        """One row a unit, that unit missing: [n, n]."""
        return ~np.eye(len(self.units), dtype=bool)
