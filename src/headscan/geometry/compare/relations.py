"""How each sampled token stands to each other at all sites of a model, laid out so that windows can change places fast."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

__all__ = ["Relations"]

FEW = 20  # one entry in so many at most is not zero: then those alone are looked up
AT_ONCE = 1024  # pairs of windows: what is gathered of them stays in the cache


@dataclass(frozen=True, eq=False)
class Relations:
    """`blocks` [S, windows², m²]: of each site the table of all tokens by all tokens, at length 1, cut by pairs of windows.

    Whole windows change places, so a draw moves blocks of m², not entries; of symmetric tables half of the pairs will do.

    >>> tables = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(0))
    >>> x = Relations.of(tables, 3)
    >>> order = torch.tensor([2, 0, 1])
    >>> moved = tables.reshape(2, 3, 2, 3, 2)[:, order][:, :, :, order].reshape(2, 6, 6)
    >>> torch.allclose(x.products(x, order), x.products(Relations.of(moved, 3)), atol=1e-6)
    True
    """

    blocks: Tensor
    windows: int

    @classmethod
    def of(cls, tables: Tensor, windows: int) -> Self:
        """Of tables [S, n, n], n tokens in `windows` equal runs."""
        unit = tables / torch.linalg.vector_norm(tables, dim=(1, 2), keepdim=True)
        cut = unit.unflatten(2, (windows, -1)).unflatten(1, (windows, -1)).transpose(2, 3)
        return cls(cut.flatten(1, 2).flatten(2), windows)

    @cached_property
    def symmetric(self) -> bool:
        """Whether every table equals its transpose."""
        size = round(self.blocks.shape[2] ** 0.5)
        cut = self.blocks.unflatten(2, (size, size)).unflatten(1, (self.windows, self.windows))
        return torch.equal(cut, cut.permute(0, 2, 1, 4, 3))

    @cached_property
    def _whole(self) -> tuple[Tensor, Tensor]:
        """Every pair of windows [2, windows²], and the blocks."""
        return torch.cartesian_prod(*[torch.arange(self.windows)] * 2).T, self.blocks

    @cached_property
    def _halves(self) -> tuple[Tensor, Tensor]:
        """Each two windows once [2, pairs], and their blocks [S, pairs, m²], which stand for both."""
        pairs = torch.triu_indices(self.windows, self.windows)
        twice = torch.where(pairs[0] == pairs[1], 1.0, 2.0).to(self.blocks)
        return pairs, self.blocks.index_select(1, self._place(pairs).to(self.blocks.device)) * twice[:, None]

    @cached_property
    def _entries(self) -> tuple[Tensor, Tensor, Tensor, list[int]] | None:
        """Where most entries are zero the others: pair and place in its block [entries], values, and how many a site."""
        found = self.blocks.nonzero()
        if FEW * len(found) > self.blocks.numel():
            return None
        site, pair, place = found.unbind(1)
        values = self.blocks[site, pair, place]
        return pair, place, values, torch.bincount(site, minlength=len(self.blocks)).tolist()

    @cached_property
    def _by_entry(self) -> Tensor:
        """The tables side by side [entries of a table, S]."""
        return self.blocks.flatten(1).T.contiguous()

    def _place(self, pairs: Tensor) -> Tensor:
        return pairs[0] * self.windows + pairs[1]

    def products(self, other: Relations, order: Tensor | None = None) -> Tensor:
        """The sums of products entry by entry [S, T], float64, the other's windows in this order [windows]."""
        if self._entries is not None:
            pair, place, values, counts = self._entries
            if order is not None:
                pair = self._place(order[torch.stack([pair // self.windows, pair % self.windows])])
            rows = other._by_entry.index_select(0, pair * self.blocks.shape[2] + place) * values[:, None]
            return torch.stack([part.sum(0, dtype=torch.float64) for part in rows.split(counts)])
        pairs, blocks = self._halves if self.symmetric and other.symmetric else self._whole
        taken = self._place(pairs if order is None else order[pairs]).to(blocks.device)
        found = blocks.new_zeros(len(blocks), len(other.blocks), dtype=torch.float64)
        for own, some in zip(blocks.split(AT_ONCE, 1), taken.split(AT_ONCE), strict=True):
            found += own.flatten(1) @ other.blocks.index_select(1, some).flatten(1).T
        return found

    def cosines(self, other: Relations) -> Tensor:
        """The cosines of all pairs of tables [S, T], all of it in float64: of equal ones 1 to its last digits."""
        products = self.blocks.new_zeros(len(self.blocks), len(other.blocks), dtype=torch.float64)
        lengths = [torch.zeros_like(products[:, 0]), torch.zeros_like(products[0])]
        for one, two in zip(self.blocks.split(AT_ONCE, 1), other.blocks.split(AT_ONCE, 1), strict=True):
            x, y = one.flatten(1).double(), two.flatten(1).double()
            products += x @ y.T
            lengths[0] += x.square().sum(1)
            lengths[1] += y.square().sum(1)
        found: Tensor = products / torch.outer(*lengths).sqrt()
        return found

    def by_windows(self, other: Relations | None = None) -> Tensor:
        """The sums of products of each pair of windows, float64: with another's tables [S, T, windows, windows], of each
        table with itself [S, windows, windows]."""
        size = (self.windows, self.windows)
        if other is None:
            found = self.blocks.square().sum(-1)
        else:
            found = torch.bmm(self.blocks.transpose(0, 1), other.blocks.permute(1, 2, 0)).permute(1, 2, 0)
        cut: Tensor = found.double().unflatten(-1, size)
        return cut
