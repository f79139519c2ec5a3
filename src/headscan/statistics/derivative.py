"""The derivative of measures, and the one number a token that it gives, summed over pieces of documents.

A measure θ is a function of averages over tokens. To first order its error is the average of one number a token,
ψ(x) = a·x/‖x‖ + b·x + c‖x‖ + xᵀDx + …, the derivative of θ: a token's influence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import lazy

SKETCH = 32  # numbers that stand for a vector whose length is asked for


def token_sums(rows: Tensor, norms: Tensor) -> Tensor:
    """What each of n tokens [n, d] adds to the averages: x/‖x‖, x, 1, whether it is zero, ‖x‖, ‖x‖² [n, 2d + 4]."""
    directed = rows * torch.where(norms > 0, 1 / norms, 0.0)[:, None]
    scalars = torch.stack([torch.ones_like(norms), (norms == 0).double(), norms, norms.square()], dim=1)
    return torch.cat([directed, rows, scalars], dim=1)


@dataclass(frozen=True)
class Pieces:
    """B windows of T tokens [B, T, d], cut into the pieces of documents that they hold.

    states: in any precision; documents [B, T], the number of each token's. aside [G − 1, B, T]: treatment 0 counts all
    tokens, treatment g all but those of its mask.

    The tokens that some treatment leaves out are few, and kept `apart`: their numbers [m] among the B·T, and `alone`
    [m, 2d + 4], the `token_sums` of each. rows: the ordinary others in float64, zeros in place of those apart; inverse
    [B, T]: their 1/‖x‖; ordinary [B, 2d + 4]: their `token_sums` by window.
    """

    states: Tensor
    documents: Tensor
    aside: Tensor
    apart: Tensor
    alone: Tensor
    rows: Tensor
    inverse: Tensor
    scalars: Tensor
    ordinary: Tensor

    @classmethod
    def of(cls, states: Tensor, documents: Tensor, aside: Tensor) -> Self:
        """Of the states alone."""
        rows = states.to(torch.float64, copy=True, memory_format=torch.contiguous_format)
        norms = torch.linalg.vector_norm(rows, dim=-1)
        apart = aside.flatten(1).any(0).nonzero().flatten()
        tokens, lengths, kept = rows.flatten(0, 1), norms.flatten(), torch.ones_like(norms)
        alone = token_sums(tokens[apart], lengths[apart])
        for each in (tokens, lengths, kept.flatten()):
            each.index_fill_(0, apart, 0.0)
        inverse = torch.where(norms > 0, 1 / norms, 0.0)
        directed = torch.bmm(torch.stack([inverse, kept], dim=1), rows).flatten(1)  # in one reading of the rows
        scalars = torch.stack([kept, kept - (norms > 0).double(), norms, norms.square()], dim=-1)
        ordinary = torch.cat([directed, scalars.sum(1)], dim=1)
        return cls(states, documents.cpu(), aside, apart, alone, rows, inverse, scalars, ordinary)

    @lazy
    def sums(self) -> Tensor:
        """`token_sums` of each window [B, 2d + 4], of all tokens."""
        return self.ordinary.index_add(0, self.apart // self.rows.shape[1], self.alone)

    @lazy
    def starts(self) -> list[int]:
        begins = torch.ones(self.documents.shape, dtype=torch.bool)
        begins[:, 1:] = self.documents[:, 1:] != self.documents[:, :-1]
        return [*begins.flatten().nonzero().flatten().tolist(), begins.numel()]

    @property
    def whole(self) -> bool:
        return len(self.starts) == len(self.rows) + 1

    @lazy
    def piece_sums(self) -> Tensor:
        """`token_sums` of the ordinary tokens of each piece [n, 2d + 4]."""
        if self.whole:
            return self.ordinary
        scalars, tokens = self.scalars.flatten(0, 1), self.rows.flatten(0, 1)
        weights = torch.stack([self.inverse.flatten(), scalars[:, 0]])
        spans = list(pairwise(self.starts))
        directed = torch.stack([weights[:, a:b] @ tokens[a:b] for a, b in spans]).flatten(1)
        return torch.cat([directed, torch.stack([scalars[a:b].sum(0) for a, b in spans])], dim=1)


@lru_cache(maxsize=8)
def _buckets(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    buckets = torch.arange(size)[torch.randperm(size, generator=generator)] % SKETCH
    return buckets, torch.randint(0, 2, (size,), generator=generator).double() * 2 - 1


def sketched(values: Tensor) -> Tensor:
    """Vectors [m, n] in 32 numbers each [m, 32], linear in them, whose mean squared length over draws of signs is ‖v‖².

    Each number is added with a random sign to one of 32 sums (count sketch: Charikar, Chen and Farach-Colton 2002); the
    squared length has a relative standard deviation of at most √(2/32), and of many independent vectors far less.
    """
    buckets, signs = (one.to(values.device) for one in _buckets(values.shape[1]))
    return values.new_zeros(len(values), SKETCH).index_add_(1, buckets, values * signs)


@dataclass(frozen=True)
class Derivative:
    """The derivative of J statistics by the averages over the tokens of G treatments.

    linear [G, J, 2d + 4]: by the averages of `token_sums`. matrix [G, S, k, k], float32: by the second moment of the tokens'
    coordinates (less `centre` [k]) in `basis` [d, k], for the S statistics numbered `spectral`; a basis [d, 0] stands for
    the coordinates themselves.

    Behind the J influences stand sketches of what a piece adds to Σx/‖x‖, to Σx and, with spectral statistics, to the second
    moment (`sketched`): the squared lengths of clusters' sketches say how noisy those averages are.
    """

    linear: Tensor
    spectral: Tensor
    matrix: Tensor
    basis: Tensor
    centre: Tensor

    @property
    def columns(self) -> int:
        """Numbers a piece: of each treatment, how many tokens, J influences and the sketches."""
        return self.linear.shape[0] * (1 + self.linear.shape[1] + SKETCH * (3 if len(self.spectral) else 2))

    @lazy
    def _matrix(self) -> Tensor:
        # float64: a float32 sum of k² terms would depend on how many pieces come together.
        return self.matrix.double()

    def of(self, cut: Pieces) -> tuple[Tensor, Tensor, Tensor]:
        """Of each piece the number of its window in the batch and of its document [n], and its numbers [n, columns], float64.

        Cost a token k·(d + k), d² where k = d, in float32, and a piece G·S·k².
        """
        first = torch.tensor(cut.starts[:-1])
        piece = torch.searchsorted(first[1:].to(cut.apart.device), cut.apart, right=True)  # of each token apart
        counted = torch.ones(len(self.linear), len(piece), dtype=torch.bool, device=piece.device)
        counted[1:] = ~cut.aside.flatten(1)[:, cut.apart]
        sums = cut.piece_sums.repeat(len(self.linear), 1, 1)
        for found, kept in zip(sums, counted, strict=True):
            found.index_add_(0, piece, cut.alone * kept[:, None])
        influence, width = sums @ self.linear.mT, cut.rows.shape[2]  # [G, n, J]
        lines = sums.flatten(0, 1)
        found = [sketched(lines[:, :width]), sketched(lines[:, width : 2 * width])]
        if len(self.spectral):
            quadratic, sketch = self._quadratic(cut, piece, counted)
            influence[:, :, self.spectral] += quadratic
            found.append(sketch.flatten(0, 1))
        sketches = torch.cat(found, dim=1).unflatten(0, influence.shape[:2])
        numbers = torch.cat([sums[:, :, -4, None], influence, sketches], dim=2).transpose(0, 1).flatten(1)
        return first // cut.documents.shape[1], cut.documents.flatten()[first], numbers

    def _quadratic(self, cut: Pieces, piece: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        """Σ zᵀDz and the sketch of Σ zzᵀ of each treatment and piece [G, n, S], [G, n, 32]; tokens apart, of these pieces and
        `counted` by some treatments [G, m], are added one by one."""
        flat, base = cut.states.flatten(0, 1), self.basis
        z = torch.addmm(-self.centre.float(), flat.float(), base) if base.shape[1] else (flat - self.centre).float()
        alone = z[cut.apart].double()
        z.index_fill_(0, cut.apart, 0.0)
        size, treatments, spans = z.shape[1], len(self.matrix), list(pairwise(cut.starts))
        found, sketches = [], []
        for some in range(0, len(spans), 64):
            part = spans[some : some + 64]
            if cut.whole:
                windows = z.unflatten(0, cut.documents.shape)[some : some + 64]
                gram = torch.bmm(windows.mT, windows).double().flatten(1)
            else:
                gram = torch.stack([z[a:b].T @ z[a:b] for a, b in part]).double().flatten(1)
            found.append(gram @ self._matrix.reshape(-1, size**2).T)
            sketches.append(sketched(gram))
        result = torch.cat(found).reshape(len(spans), treatments, -1).transpose(0, 1).contiguous()
        lengths = torch.cat(sketches).repeat(treatments, 1, 1)
        lone = [sketched((a[:, :, None] * a[:, None, :]).flatten(1)) for a in alone.split(max(1, 2**20 // size**2))]
        for g in range(treatments if len(alone) else 0):
            own = ((alone @ self._matrix[g]) * alone).sum(-1).T  # [S, m, k] to [m, S]
            result[g].index_add_(0, piece, own * counted[g][:, None])
            lengths[g].index_add_(0, piece, torch.cat(lone) * counted[g][:, None])
        return result, lengths
