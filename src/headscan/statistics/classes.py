"""Statistics by class, whatever the class is: the token itself, the token that follows, a whole
context.
"""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.statistics.accumulator import Accumulator


class ClassSums(Accumulator):
    """Count, Σx, Σx/‖x‖, Σ‖x‖² and the number of zero vectors of every class seen so far, float64.

    The table grows with the classes that occur; a batch costs one `index_add_` of n rows. With
    `limit`, at most that many classes are kept: those whose numbers have the smallest hash, so that
    the choice is the same in every part of a stream and independent of the vectors. Memory: 16
    bytes·width a class.

    >>> sums = ClassSums(2)
    >>> sums.update(torch.tensor([7, 3, 7]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))
    >>> sums.labels.tolist(), sums.counts.tolist(), sums.means().tolist(), sums.units[0].tolist()
    ([3, 7], [1, 2], [[0.0, 2.0], [2.0, 0.0]], [0.0, 1.0])
    """

    arguments = ("width", "limit")
    fields = ("_labels", "_scalars", "_vectors")

    def __init__(self, width: int, *, limit: int | None = None, device: torch.device | str = "cpu"):
        self.width = width
        self.limit = limit
        self.device = torch.device(device)
        self._size = 0
        self._bound = 2**62
        self._labels = torch.zeros(0, dtype=torch.int64, device=device)
        self._scalars = torch.zeros(0, 3, dtype=torch.float64, device=device)  # count, zeros, Σ‖x‖²
        self._vectors = torch.zeros(0, 2, width, dtype=torch.float64, device=device)  # Σx, Σx/‖x‖
        self._order = self._labels[:0]  # of the labels, for searching

    def __len__(self) -> int:
        self._trim()
        return self._size

    # All in the order of the labels, not of their first occurrence: a resumed run adds them up in
    # the same order.

    def _sorted(self, table: str, *column: int) -> Tensor:
        self._trim()
        rows: Tensor = getattr(self, table)[(slice(self._size), *column)]
        return rows[self._order]

    @property
    def labels(self) -> Tensor:
        return self._sorted("_labels")

    @property
    def counts(self) -> Tensor:
        return self._sorted("_scalars", 0).long()

    @property
    def zeros(self) -> Tensor:
        return self._sorted("_scalars", 1).long()

    @property
    def squares(self) -> Tensor:
        return self._sorted("_scalars", 2)

    @property
    def sums(self) -> Tensor:
        return self._sorted("_vectors", 0)

    @property
    def units(self) -> Tensor:
        return self._sorted("_vectors", 1)

    def means(self) -> Tensor:
        """The mean of each class [C, width]."""
        return self.sums / self.counts[:, None]

    def update(self, labels: Tensor, rows: Tensor) -> None:
        """Add rows [n, width] of the classes [n]; labels below zero are left out."""
        labels = labels.to(self.device)
        rows = rows.detach().to(device=self.device, dtype=torch.float64)
        norms = torch.linalg.vector_norm(rows, dim=-1)
        units = rows * torch.where(norms > 0, 1 / norms, 0.0)[:, None]
        self.add(labels, norms, rows, units)

    def add(self, labels: Tensor, norms: Tensor, rows: Tensor, units: Tensor) -> None:
        kept = labels >= 0 if self.limit is None else (labels >= 0) & (_hash(labels) < self._bound)
        if not bool(kept.all()):
            labels = labels[kept]
            norms = norms[kept]
            rows = rows[kept]
            units = units[kept]
        if not len(labels):
            return
        own, inverse = torch.unique(labels, return_inverse=True)
        at = self._places(own)[inverse]
        scalars = torch.stack(
            [torch.ones_like(norms), (norms == 0).double(), norms.square()], dim=-1
        )
        self._scalars.index_add_(0, at, scalars)
        self._vectors[:, 0].index_add_(0, at, rows)
        self._vectors[:, 1].index_add_(0, at, units)
        # To trim is to copy the table: only when it is a quarter too large, and when somebody
        # looks.
        if self.limit is not None and self._size >= self.limit + self.limit // 4:
            self._trim()

    def _places(self, labels: Tensor) -> Tensor:
        mine = self._labels[: self._size][self._order]
        at = torch.searchsorted(mine, labels).clamp(max=max(len(mine) - 1, 0))
        known = mine[at] == labels if len(mine) else torch.zeros_like(labels, dtype=torch.bool)
        new = labels[~known]
        places = torch.empty_like(labels)
        places[known] = self._order[at[known]] if len(mine) else at[known]
        places[~known] = torch.arange(self._size, self._size + len(new), device=self.device)
        self._reserve(self._size + len(new))
        self._labels[self._size : self._size + len(new)] = new
        self._size += len(new)
        if len(new):
            self._order = torch.argsort(self._labels[: self._size])
        return places

    def _reserve(self, size: int) -> None:
        room = len(self._labels)
        if size <= room:
            return
        more = max(size, 2 * room, 256) - room
        self._labels = torch.cat([self._labels, self._labels.new_zeros(more)])
        self._scalars = torch.cat([self._scalars, self._scalars.new_zeros(more, 3)])
        self._vectors = torch.cat([self._vectors, self._vectors.new_zeros(more, 2, self.width)])

    def _trim(self) -> None:
        if self.limit is None or self._size <= self.limit:
            return
        hashes = _hash(self._labels[: self._size])
        kept = torch.argsort(hashes)[: self.limit]
        self._bound = int(hashes[kept[-1]]) + 1
        for table in (self._labels, self._scalars, self._vectors):
            table[: self.limit] = table[kept]
            table[self.limit : self._size] = 0
        self._size, self._order = self.limit, torch.argsort(self._labels[: self.limit])

    def merge(self, other: "ClassSums") -> None:
        kept = _hash(other.labels) < self._bound
        labels = other.labels[kept].to(self.device)
        if len(labels):
            at = self._places(labels)
            self._scalars.index_add_(0, at, other._sorted("_scalars")[kept].to(self.device))
            self._vectors.index_add_(0, at, other._sorted("_vectors")[kept].to(self.device))

    def without(self, part: "ClassSums") -> "ClassSums":
        """These sums less a part of them: of the classes kept here, what `part` has of them is
        taken away.
        """
        new = self.restore(self.state())
        known = torch.isin(part.labels.to(self.device), new.labels)
        at = new._places(part.labels.to(self.device)[known])
        new._scalars.index_add_(0, at, part._sorted("_scalars")[known].to(self.device), alpha=-1)
        new._vectors.index_add_(0, at, part._sorted("_vectors")[known].to(self.device), alpha=-1)
        return new

    def state(self) -> dict[str, Tensor]:
        tables = {name: self._sorted(name) for name in self.fields}
        return {
            name: tensor for name, tensor in super().state().items() if name in self.arguments
        } | tables

    def filled(self, state: dict[str, Tensor]) -> Self:
        new = super().filled(state)
        new._size = len(new._labels)
        new._order = torch.arange(new._size, device=new.device)
        return new


def _hash(labels: Tensor) -> Tensor:
    """A fixed mixing of whole numbers to [0, 2^61): multiply and fold, twice (constants of
    splitmix64, as signed).
    """
    mixed = labels * -7046029254386353131
    mixed = (mixed ^ (mixed >> 29)) * -4658895280553007687
    return (mixed ^ (mixed >> 32)) & (2**61 - 1)


# ---- Neural collapse, from the means and variances of classes: one family of measures for whoever has classes.
#
# With class means μ_c, their unweighted mean μ̄, offsets v_c = μ_c − μ̄, directions v̂_c =
# v_c/‖v_c‖ and variances s_c = E‖x − μ_c‖² within a class:
#
# | name | formula | collapsed | after |
# |---|---|---|---|
# | `cdnv` (NC1) | mean over pairs c ≠ c' of (s_c + s_c')/(2‖μ_c − μ_c'‖²) | 0 | Galanti et al.
# 2022, arXiv:2112.15121 |
# | `interference` (NC2) | mean over pairs of cos(v_c, v_c') | −1/(C − 1) | Papyan et al. 2020,
# arXiv:2008.08186 |
# | `spread` (GNC2) | sd/|mean| of log 1/‖v̂_c − v̂_c'‖ over pairs | 0 | Liu et al. 2023,
# arXiv:2303.06484; Wu and Papyan 2024 |
#
# A class of n vectors has a mean that is off by s_c/n itself, so that few vectors a class make
# `cdnv` look smaller.

_ROWS = ("pairs", "cdnv", "apart", "kernel", "kernel_squared", "all", "cosine")


@dataclass(frozen=True)
class PairMeasures:
    """What pairs of classes say; None where no pair can be asked. See the module for the formulas."""

    cdnv: float | None
    interference: float | None
    spread: float | None


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums over all ordered pairs of distinct classes, by the groups that both classes are in.

    The measures of the classes of some groups follow without another look at the classes, as a
    jackknife over groups needs.
    """

    table: Float[Tensor, "7 groups groups"]

    def of(self, chosen: Bool[Tensor, " groups"] | None = None) -> PairMeasures:
        """The measures over the classes of the chosen groups; of all by default."""
        part = self.table if chosen is None else self.table[:, chosen][:, :, chosen]
        sums = dict(zip(_ROWS, part.sum((1, 2)).tolist(), strict=True))
        pairs = sums["pairs"]
        kernels = sums["apart"]
        mean = sums["kernel"] / kernels if kernels else 0.0
        variance = max(0.0, sums["kernel_squared"] / kernels - mean**2) if kernels else 0.0
        return PairMeasures(
            cdnv=sums["cdnv"] / pairs if pairs else None,
            interference=sums["cosine"] / sums["all"] if sums["all"] else None,
            spread=variance**0.5 / abs(mean) if abs(mean) > 1e-12 else None,
        )


def pair_sums(
    means: Float[Tensor, "classes width"],
    variances: Float[Tensor, " classes"],
    *,
    groups: Int[Tensor, " classes"] | None = None,
    count: int = 1,
    block: int = 1024,
) -> PairSums:
    """Sums over all pairs of classes, in blocks, from the means μ_c and variances s_c, float64.

    `groups`: the group of each class, 0 to count − 1. Pairs whose means are equal (to 1e-12 of the
    largest ‖v_c‖²) have no cdnv, pairs of equal directions no kernel: they are left out. Cost
    O(C²d); memory O(C·(d + block)).

    >>> means = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    >>> found = pair_sums(means, torch.tensor([0.5, 1.5], dtype=torch.float64)).of()
    >>> found.cdnv, found.interference     # 2/(2·4); −1/(2 − 1)
    (0.25, -1.0)
    """
    c = len(means)
    offsets = means - means.mean(0)
    lengths = torch.linalg.vector_norm(offsets, dim=-1)
    unit = offsets / lengths.clamp(min=1e-300)[:, None]
    squares = offsets.square().sum(-1)
    groups = torch.zeros(c, dtype=torch.int64) if groups is None else groups
    member = torch.nn.functional.one_hot(groups, count).double().cpu()
    table = torch.zeros(len(_ROWS), count, count, dtype=torch.float64)
    for start in range(0, c, block):
        part = slice(start, start + block)
        other = torch.arange(c)[None, :] != torch.arange(start, min(start + block, c))[:, None]
        far = (squares[part, None] + squares[None, :] - 2 * offsets[part] @ offsets.T).cpu()
        use = other & (far > 1e-12 * squares.max().cpu())
        # What is left out is made harmless and adds zero: to pick entries by a mask would copy them
        # all.
        far.masked_fill_(~use, 1.0)
        ratio = (
            (variances[part, None] + variances[None, :]).cpu().div_(2 * far).masked_fill_(~use, 0.0)
        )
        cosines = (unit[part] @ unit.T).cpu().masked_fill_(~other, 0.0)
        apart = other & (cosines < 1 - 1e-12)
        # ‖a − b‖² = 2 − 2cos for unit vectors, and log(1/‖a − b‖) = −½ log ‖a − b‖².
        kernel = (2 - 2 * cosines).masked_fill_(~apart, 1.0).log_().mul_(-0.5)
        for row, found in enumerate((use, ratio, apart, kernel, kernel.square(), other, cosines)):
            table[row] += member[part].T @ (found.double() @ member)
    return PairSums(table)


def variation(values: Float[Tensor, " n"]) -> float | None:
    """The coefficient of variation, sd/|mean| (of the population); None where the mean is zero."""
    mean = float(values.mean())
    return float(values.std(correction=0)) / abs(mean) if abs(mean) > 1e-12 else None


def nearest_means(
    states: Float[Tensor, "n width"], means: Float[Tensor, "classes width"], *, block: int = 2048
) -> Int[Tensor, " n"]:
    """For each state the class whose mean is nearest (NC4 asks whether the head says the same). O(n
    C d).
    """
    squares = means.square().sum(-1)
    return torch.cat(
        [(squares[None, :] - 2 * part @ means.T).argmin(1) for part in states.split(block)]
    )
