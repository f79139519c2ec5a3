"""Prompts with some units taken away, evaluated many at once: what occlusion, Shapley and faithfulness are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.engine import Engine
from headscan.attribution.memory import MemoryPlan
from headscan.attribution.packed import Segment
from headscan.attribution.target import AttributionTarget
from headscan.attribution.units import Unit
from headscan.run import BadInput

__all__ = ["Coalitions"]

Subsets = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float32 | np.float64]
Group = tuple[list[int], int, int]
"""Rows that are computed from the same token on, the prefix they share with the prompt, and their length."""


@dataclass(repr=False)
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
    embeds: Float[Tensor, "T e"]
    units: Sequence[Unit]
    target: AttributionTarget
    substitute: Float[Tensor, "*T e"] | None
    plan: MemoryPlan
    cached: bool = True

    def __post_init__(self) -> None:
        positions = self.target.positions
        if self.cached and not self.engine.shares:
            self.original = self.engine.share(self.embeds, positions).float()
        else:
            with torch.inference_mode():
                self.original = self.engine.logits(self.embeds[None], positions)[0].float()
        self._first = np.array([unit.first for unit in self.units])
        self._owner = torch.zeros(len(self.embeds), dtype=torch.int64)
        for k, unit in enumerate(self.units):
            self._owner[list(unit.tokens)] = k

    def __repr__(self) -> str:
        return f"Coalitions({len(self.units)} units of {len(self.embeds)} tokens, {self.engine!r})"

    def values(self, keep: Subsets) -> Values:
        """The target [R, S] for each row of `keep` [R, n], True where a unit is there."""
        return self.read(keep, lambda logits: self.target.value(logits, self.original))

    def read(self, keep: Subsets, measure: Callable[[Tensor], Tensor]) -> Values:
        """What `measure` makes of the logits [B, S, V] of each row: [R, S, ...]."""
        keep = np.asarray(keep, dtype=bool)
        found: list[np.ndarray | None] = [None] * len(keep)
        for group in self._passes(self._segments(keep)):
            segments = [self._segment(keep[rows], prefix, length) for rows, prefix, length in group]
            with torch.inference_mode():
                for (rows, _, _), logits in zip(group, self.engine.each(segments), strict=True):
                    for row, value in zip(rows, measure(logits).cpu().numpy(), strict=True):
                        found[row] = value
        return np.stack([value for value in found if value is not None])

    def _segments(self, keep: Subsets) -> list[Group]:
        """The rows in groups.

        Rows are sorted by their first change, so that neighbours share most. Too many segments cost their starts, too
        few recompute what is known; a segment ends where the recomputed tokens cost more than another start.
        """
        lengths = keep @ np.array([len(unit.tokens) for unit in self.units]) if self.substitute is None else None
        last = min(self.target.positions)
        changes = np.where(keep.all(1), len(self.embeds), np.where(keep, len(self.embeds), self._first).min(1))
        # The token that is read must be computed, even where nothing before it changed.
        ceiling = last if lengths is None else np.maximum(np.minimum(last, lengths - 1), 0)
        prefixes = np.minimum(changes, ceiling) if self.engine.shares else np.zeros(len(keep), dtype=int)
        order = np.lexsort((prefixes, lengths)) if lengths is not None else np.argsort(prefixes, kind="stable")
        slack = self.plan.segment_slack if self.engine.packs else self.plan.slack
        most = self.plan.tokens if self.engine.packs else self.plan.rows * len(self.embeds)
        segments: list[Group] = []
        wasted = 0
        for row in order.tolist():
            length = int(lengths[row]) if lengths is not None else len(self.embeds)
            prefix = int(prefixes[row])
            rows, first, shared = segments[-1] if segments else ([], 0, -1)
            wasted += prefix - first
            full = (len(rows) + 1) * (length - first) > most
            if shared != length or wasted > slack or full:
                segments.append(([row], prefix, length))
                wasted = 0
            else:
                rows.append(row)
        return segments

    def _passes(self, segments: list[Group]) -> list[list[Group]]:
        """Segments that go through the model together."""
        if not self.engine.packs:
            return [[segment] for segment in segments]
        passes: list[list[Group]] = []
        room = 0
        for rows, prefix, length in segments:
            tokens = len(rows) * (length - prefix)
            if not passes or tokens > room:
                passes.append([])
                room = self.plan.tokens
            passes[-1].append((rows, prefix, length))
            room -= tokens
        return passes

    def _segment(self, keep: Subsets, prefix: int, length: int) -> Segment:
        there = torch.from_numpy(np.ascontiguousarray(keep))[:, self._owner]
        positions = tuple(self.target.positions)
        if self.substitute is not None:
            there = there[:, prefix:].to(self.embeds.device)
            absent = self.substitute if self.substitute.ndim == 1 else self.substitute[prefix:]
            return Segment(torch.where(there.unsqueeze(-1), self.embeds[prefix:], absent), prefix, positions)
        if length == 0 or not (
            self.engine.translates or (len(positions) == 1 and self.engine.causal) or self.engine.pools
        ):
            raise BadInput(
                "Tokens can be removed only before one prediction of a causal model, or of a sentence vector, and not all; "
                "use a substitute token instead."
            )
        where = there.nonzero()[:, 1].reshape(len(keep), length)[:, prefix:]
        fixed = self.engine.translates or self.engine.pools
        return Segment(self.embeds[where.to(self.embeds.device)], prefix, positions if fixed else (length - 1,))

    @property
    def everything(self) -> Subsets:
        """The row with every unit there, [n]."""
        return np.ones(len(self.units), dtype=bool)

    def without_each(self) -> Subsets:
        """One row a unit, that unit missing: [n, n]."""
        return ~np.eye(len(self.units), dtype=bool)
