"""The value of a target when only some units of a prompt are present.

Occlusion and faithfulness are made of it. Many prompts are evaluated at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.engine import Engine, MemoryPlan
from headscan.attribution.packed import Segment
from headscan.attribution.target import AttributionTarget
from headscan.attribution.units import Unit
from headscan.run import BadInput

Subsets = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float32 | np.float64]


@dataclass
class RowGroup:
    """Rows that are computed from the same token on.

    Attributes:
        rows: their numbers.
        prefix: the tokens that they share with the prompt.
        length: the tokens of each row, the shared ones included.
    """

    rows: list[int]
    prefix: int
    length: int

    @property
    def tokens(self) -> int:
        """The tokens that are computed."""
        return len(self.rows) * (self.length - self.prefix)


@dataclass(repr=False)
class Coalitions:
    """The value of the target when only some units of a prompt are present.

    Attributes:
        substitute: what stands for an absent unit; None: its tokens are left out altogether, and
            what follows moves up.
        packed: whether rows may share the keys and values of the prompt's first tokens.
        original: the logits of the whole prompt [S, V].
    """

    engine: Engine
    embeds: Float[Tensor, "T e"]
    units: Sequence[Unit]
    target: AttributionTarget
    substitute: Float[Tensor, "*T e"] | None
    plan: MemoryPlan
    packed: bool = True

    def __post_init__(self) -> None:
        positions = self.target.positions
        if self.packed and not self.engine.packs:
            self.original = self.engine.share(self.embeds, positions).float()
        else:
            with torch.inference_mode():
                self.original = self.engine.logits(self.embeds[None], positions)[0].float()
        self._unit_starts = np.array([unit.tokens[0] for unit in self.units])
        self._unit_lengths = np.array([len(unit.tokens) for unit in self.units])
        self._unit_of_token = torch.zeros(len(self.embeds), dtype=torch.int64)
        for index, unit in enumerate(self.units):
            self._unit_of_token[list(unit.tokens)] = index

    @property
    def everything(self) -> Subsets:
        """The subset [n] of all units."""
        return np.ones(len(self.units), dtype=bool)

    def without_each(self) -> Subsets:
        """Return the subsets [n, n] that lack one unit each."""
        return ~np.eye(len(self.units), dtype=bool)

    def values(self, present: Subsets) -> Values:
        """Return the target [R, S] for each row of `present` [R, n], True where a unit is."""
        return self.read(present, lambda logits: self.target.value(logits, self.original))

    def read(self, present: Subsets, measure: Callable[[Tensor], Tensor]) -> Values:
        """Return what `measure` makes of the logits [B, S, V] of each row: [R, S, ...]."""
        present = np.asarray(present, dtype=bool)
        values: list[np.ndarray | None] = [None] * len(present)
        for groups in self._passes(self._groups(present)):
            segments = [self._segment(present[group.rows], group) for group in groups]
            with torch.inference_mode():
                for group, logits in zip(groups, self.engine.each(segments), strict=True):
                    group_values = measure(logits).cpu().numpy()
                    for row, value in zip(group.rows, group_values, strict=True):
                        values[row] = value
        return np.stack([value for value in values if value is not None])

    def _groups(self, present: Subsets) -> list[RowGroup]:
        """Return the rows in groups that share a prefix.

        Rows are sorted by their first change, so that neighbours share most. Too many groups cost
        their starts, too few recompute what is known; a group ends where the recomputed tokens cost
        more than another start.
        """
        lengths = self._row_lengths(present)
        prefixes = self._row_prefixes(present, lengths)
        largest_group = self.plan.tokens
        if not self.engine.packs:
            largest_group = self.plan.rows * len(self.embeds)
        groups: list[RowGroup] = []
        wasted_tokens = 0
        for row in np.lexsort((prefixes, lengths)).tolist():
            prefix = int(prefixes[row])
            length = int(lengths[row])
            group = groups[-1] if groups else RowGroup([], 0, -1)
            wasted_tokens += prefix - group.prefix
            tokens = (len(group.rows) + 1) * (length - group.prefix)
            is_full = wasted_tokens > self.plan.slack or tokens > largest_group
            if group.length != length or is_full:
                groups.append(RowGroup([row], prefix, length))
                wasted_tokens = 0
            else:
                group.rows.append(row)
        return groups

    def _row_lengths(self, present: Subsets) -> npt.NDArray[np.int64]:
        """Return the tokens of each row."""
        if self.substitute is None:
            return np.asarray(present @ self._unit_lengths)
        return np.full(len(present), len(self.embeds))

    def _row_prefixes(
        self, present: Subsets, lengths: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return how many first tokens each row shares with the prompt.

        The token that is read must be computed, even where nothing before it changed.
        """
        if not self.engine.packs:
            return np.zeros(len(present), dtype=int)
        first_changes = np.where(present, len(self.embeds), self._unit_starts).min(1)
        first_changes = np.where(present.all(1), len(self.embeds), first_changes)
        first_read = min(self.target.positions)
        if self.substitute is None:
            return np.minimum(first_changes, np.maximum(np.minimum(first_read, lengths - 1), 0))
        return np.minimum(first_changes, first_read)

    def _passes(self, groups: list[RowGroup]) -> list[list[RowGroup]]:
        """Return the groups in lists that go through the model together."""
        if not self.engine.packs:
            return [[group] for group in groups]
        passes: list[list[RowGroup]] = []
        free_tokens = 0
        for group in groups:
            if not passes or group.tokens > free_tokens:
                passes.append([])
                free_tokens = self.plan.tokens
            passes[-1].append(group)
            free_tokens -= group.tokens
        return passes

    def _segment(self, present: Subsets, group: RowGroup) -> Segment:
        """Return the embeddings of a group's rows, behind the prefix that they share."""
        is_present = torch.from_numpy(np.ascontiguousarray(present))[:, self._unit_of_token]
        positions = tuple(self.target.positions)
        prefix = group.prefix
        if self.substitute is not None:
            is_present = is_present[:, prefix:].to(self.embeds.device)
            absent = self.substitute if self.substitute.ndim == 1 else self.substitute[prefix:]
            rows = torch.where(is_present.unsqueeze(-1), self.embeds[prefix:], absent)
            return Segment(rows, prefix, positions)
        self._check_removal(group.length)
        tokens = is_present.nonzero()[:, 1].reshape(len(present), group.length)
        if not self.engine.pools:
            positions = (group.length - 1,)
        tokens = tokens[:, prefix:].to(self.embeds.device)
        return Segment(self.embeds[tokens], prefix, positions)

    def _check_removal(self, length: int) -> None:
        """Raise BadInput where tokens cannot be left out."""
        reads_last = len(self.target.steps) == 1 and self.engine.causal
        if length == 0 or not (self.engine.pools or reads_last):
            raise BadInput(
                "Tokens can be removed only before one prediction of a causal model, or of a "
                "sentence vector, and not all; use a substitute token instead."
            )
