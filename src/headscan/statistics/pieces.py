"""A batch of windows cut into pieces of documents, with the sums that averages over tokens need."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from headscan.statistics.sinks import CELLS
from headscan.statistics.transfer import sent_together

SHORT = 128
"""Tokens of a stretch, which must be short: each is multiplied by the weights of all its pieces."""

CHUNK = 512
"""Tokens that are squared at a time on a CPU, so that they stay in the cache."""


def token_sums(rows: Tensor, norms: Tensor) -> Tensor:
    """Return what each of n tokens [n, d] adds to the sums that averages are made of [n, 2d + 4].

    The columns are x/‖x‖, x, 1, whether x is zero, ‖x‖, ‖x‖².
    """
    return torch.cat([rows / _divisors(norms)[:, None], rows, _token_scalars(norms)], dim=1)


def _divisors(norms: Tensor) -> Tensor:
    """Return what vectors with these norms are divided by to become directions."""
    return norms.clamp_min(torch.finfo(norms.dtype).tiny)


def _token_scalars(norms: Tensor) -> Tensor:
    """Return the last four columns of the `token_sums` of n tokens [n, 4]."""
    zeros = (norms == 0).double()
    return torch.stack([torch.ones_like(norms), zeros, norms, norms.square()], dim=1)


@dataclass(frozen=True)
class Pieces:
    """B windows of T tokens, cut into stretches and these into n pieces of documents.

    A stretch is `SHORT` tokens of a window, or a window whose length is no multiple of that. The m
    tokens that are not ordinary are kept apart from the pieces.

    Attributes:
        states: the windows [B, T, d], in any precision.
        documents: the number of each token's document [B, T].
        cells: the index in `CELLS` of each token [B, T].
        norms: the length of each token's vector [B, T], on the CPU.
        apart: the indices of the tokens that are not ordinary among the B·T, cell by cell [m], on
            the states' device.
        rows: the ordinary tokens, zeros in place of the others [B, T, d]; in float64, or in float32
            about the centre.
        vectors: the vectors of the tokens apart [m, d], in any precision.
        inverse_norms: 1/‖x‖ of the tokens that are no sinks, else 0 [B·T].
        values: the `token_sums` of the ordinary tokens of each piece (some have none), then those
            of each token apart [n + m, 2d + 4].
        cell_sums: the `token_sums` of the tokens of each of `CELLS` [4, 2d + 4].
        first: the index of the first token of each of the `values` [n + m].
        cell: the cell of each of the `values` [n + m].
        centre: the point [d] that `rows` are about; None: the origin.
    """

    states: Tensor
    documents: Tensor
    cells: Tensor
    norms: Tensor
    apart: Tensor
    rows: Tensor
    vectors: Tensor
    inverse_norms: Tensor
    values: Tensor
    cell_sums: Tensor
    first: Tensor
    cell: Tensor
    centre: Tensor | None = None

    @classmethod
    def of(
        cls,
        states: Tensor,
        documents: Tensor,
        cells: Tensor,
        norms: Tensor | None = None,
        centre: Tensor | None = None,
    ) -> Self:
        """Cut windows whose documents, cells and norms are on the CPU.

        With a centre [d] and `norms` [B, T], the rows are in float32.
        """
        flat_cells = cells.flatten()
        apart = _not_ordinary(flat_cells)
        if centre is None or norms is None:
            rows = states.to(torch.float64, copy=True, memory_format=torch.contiguous_format)
            if norms is None or rows.device.type == "cpu":
                norms = torch.linalg.vector_norm(rows, dim=-1)
        else:
            rows = (states - centre).contiguous()
        if norms.dtype == torch.float64:
            apart_norms = norms.flatten()[apart]
        else:
            apart_states = states.flatten(0, 1)[apart].double()
            apart_norms = torch.linalg.vector_norm(apart_states, dim=-1)

        length = cells.shape[1]
        size = SHORT if length % SHORT == 0 else length
        pieces = _document_masks(documents.reshape(-1, size))
        stretches = len(pieces)
        masks = [torch.ones_like(pieces[:, :1])]  # stretches, whatever the documents
        if pieces.shape[1] > 1:
            masks.append(pieces)
        weights = _Weights.of(norms.reshape(-1, size), cells.reshape(-1, size), masks)
        apart_cells = flat_cells[apart]
        apart_on_device, divisors, members, scalars, totals, table = sent_together(
            [
                apart,
                torch.stack([_divisors(apart_norms), torch.ones_like(apart_norms)], dim=1),
                _members(stretches, len(weights.totals), apart_cells),
                torch.cat([weights.totals[:, 2:], _token_scalars(apart_norms)]),
                weights.totals[:, :2],
                weights.table.to(rows.dtype),
            ],
            states.device,
        )
        source = rows if centre is None else states
        vectors = source.flatten(0, 1)[apart_on_device]
        rows.flatten(0, 1).index_fill_(0, apart_on_device, 0.0)
        *piece_weights, inverse_norms = table.split(weights.sizes)
        sums = _weighted(rows.view(stretches, size, -1), piece_weights)
        values = rows.new_empty(len(scalars), 2 * states.shape[2] + 4, dtype=torch.float64)
        values[:, -4:] = scalars
        of_pieces, of_apart = values[:, :-4].unflatten(1, sums.shape[1:]).tensor_split([len(sums)])
        torch.div(vectors[:, None], divisors[:, :, None], out=of_apart)
        if centre is None:
            of_pieces.copy_(sums)
        else:
            torch.addcmul(sums, totals[:, :, None], centre, out=of_pieces)

        first_in_stretch = pieces.long().argmax(2)
        first = (first_in_stretch + size * torch.arange(stretches)[:, None]).flatten()
        return cls(
            states=states,
            documents=documents,
            cells=cells,
            norms=norms,
            apart=apart_on_device,
            rows=rows,
            vectors=vectors,
            inverse_norms=inverse_norms,
            values=values[-len(first) - len(apart) :],
            cell_sums=members @ values,
            first=torch.cat([first, apart]),
            cell=torch.cat([torch.zeros_like(first), apart_cells]),
            centre=centre,
        )

    @property
    def apart_by_cell(self) -> list[Tensor]:
        """The `vectors` of each of `CELLS` but the ordinary one."""
        counts = self.cell.bincount(minlength=len(CELLS)).tolist()
        return list(self.vectors.split(counts[1:]))

    def add_squared_unit(self, total: Tensor) -> None:
        """Add Σx²/‖x‖² of the tokens that are no sinks, by coordinate [d], to a float64 total."""
        on_cpu = self.rows.device.type == "cpu"
        if not on_cpu:
            directions = self.states.flatten(0, 1) * self.inverse_norms[:, None]
            norms = torch.linalg.vector_norm(directions, dim=0, dtype=total.dtype)
            total.addcmul_(norms, norms)
            return
        converted = self.centre is None
        rows = (self.rows if converted else self.states).flatten(0, 1)
        weights = self.inverse_norms.square()
        sums: list[Tensor] = []
        for x, part in zip(rows.split(CHUNK), weights.split(CHUNK), strict=True):
            sums.append((part[None] @ x.to(part.dtype).square())[0])
        if converted:  # `rows` has zeros in place of the first tokens
            first_tokens = self.values[self.cell == CELLS.index("first"), : rows.shape[1]]
            sums.append(first_tokens.square().sum(0))
        total += torch.stack(sums).sum(0, dtype=torch.float64)


def _not_ordinary(cells: Tensor) -> Tensor:
    """Return the indices of the tokens that are not ordinary, cell by cell."""
    indices = cells.nonzero().flatten()
    return indices[cells[indices].argsort(stable=True)]


def _document_masks(documents: Tensor) -> Tensor:
    """Return the tokens of each piece of each stretch, bool [N, pieces, size].

    `documents` [N, size] are the numbers of the tokens' documents. There are as many pieces as the
    stretch with most of them has; the others have empty ones.
    """
    changes = (documents[:, 1:] != documents[:, :-1]).cumsum(1)
    piece = torch.nn.functional.pad(changes, (1, 0))
    numbers = torch.arange(int(piece.max()) + 1)
    masks: Tensor = piece[:, None] == numbers[:, None]
    return masks


@dataclass(frozen=True)
class _Weights:
    """The weights that tokens have in the sums of pieces, on the CPU.

    Attributes:
        table: 1/‖x‖ and 1 for the ordinary tokens of each piece of each mask, else 0 [N, P, 2,
            size], then 1/‖x‖ of the tokens that are no sinks, else 0 [N, size]; flat.
        sizes: the lengths of these parts.
        totals: the sums of both, and of the four scalars of `token_sums`, of each piece of each
            mask [n, 6], float64.
    """

    table: Tensor
    sizes: list[int]
    totals: Tensor

    @classmethod
    def of(cls, norms: Tensor, cells: Tensor, masks: Sequence[Tensor]) -> Self:
        """Return the weights for norms and cells [N, size] and masks [N, P, size]."""
        ordinary = (cells == 0).to(norms.dtype)
        not_sink = (cells < 2).to(norms.dtype)
        inverse = norms.reciprocal().nan_to_num(posinf=0.0) * not_sink  # 0 without a direction
        ordinary_inverse = inverse * ordinary
        token_weights = torch.stack([ordinary_inverse, ordinary], dim=1)[:, None]

        counts = ordinary.double()
        zeros = counts - ordinary_inverse.sign()
        lengths = (norms * ordinary).double()
        scalars = torch.stack([counts, zeros, lengths, lengths.square()], dim=-1)

        parts = []
        totals = []
        for mask in masks:
            members = mask.to(norms.dtype)
            piece_weights = members[:, :, None] * token_weights
            weight_sums = piece_weights.sum(-1, dtype=torch.float64)
            scalar_sums = members.double() @ scalars
            parts.append(piece_weights.flatten())
            totals.append(torch.cat([weight_sums, scalar_sums], dim=-1).flatten(0, 1))
        parts.append(inverse.flatten())
        return cls(torch.cat(parts), [len(part) for part in parts], torch.cat(totals))


def _members(stretches: int, sums: int, cells: Tensor) -> Tensor:
    """Return which rows make up each of `CELLS`, 1 or 0, float64 [4, sums + m].

    The first rows are `sums`, of which the first `stretches` are those of the ordinary tokens; then
    come those of m tokens with these `cells`.
    """
    members = torch.zeros(len(CELLS), sums + len(cells), dtype=torch.float64)
    members[0, :stretches] = 1.0
    members[cells, torch.arange(sums, sums + len(cells))] = 1.0
    return members


def _weighted(rows: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Return Σx/‖x‖ and Σx of the rows [N, size, d] of all pieces of all masks [n, 2, d]."""
    stretches, size, width = rows.shape
    pieces = [len(weight) // (2 * size) for weight in weights]
    sums = rows.new_empty(sum(pieces), 2, width)
    for weight, target in zip(weights, sums.split(pieces), strict=True):
        out = target.view(stretches, -1, width)
        torch.bmm(weight.view(stretches, -1, size), rows, out=out)
    return sums
