"""Second moments within and between the sites of several models that saw the same tokens, in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator

__all__ = ["CrossMoments", "CrossSums", "unbiased_hsic"]


@dataclass(frozen=True)
class CrossSums:
    """What the debiased dependence of x [n, p] on y [n, q] needs (leading dimensions are batches); a = ‖x‖², b = ‖y‖².

    `count` n, `xy` Σxyᵀ [p, q], `x` Σx, `y` Σy, `a` Σa, `b` Σb, `ab` Σab, `xb` Σxb [p], `ya` Σya [q].
    """

    count: float
    xy: Tensor
    x: Tensor
    y: Tensor
    a: Tensor
    b: Tensor
    ab: Tensor
    xb: Tensor
    ya: Tensor


def unbiased_hsic(sums: CrossSums) -> Tensor:
    """The unbiased estimate of the Hilbert-Schmidt independence criterion of linear kernels, from one pass; n ≥ 4.

    Song et al. (2012) leave the diagonals out of the Gram matrices K = XXᵀ and L = YYᵀ, with K̃ and L̃ what is left:

        HSIC₁ = [tr K̃L̃ + (1ᵀK̃1)(1ᵀL̃1)/((n − 1)(n − 2)) − 2/(n − 2) · 1ᵀK̃L̃1] / (n(n − 3)).

    None of the three needs a matrix of tokens by tokens. With a = diag K, b = diag L, s = Σx, t = Σy, A = Σxyᵀ:

        tr K̃L̃   = Σᵢⱼ (xᵢ·xⱼ)(yᵢ·yⱼ) − Σ aᵢbᵢ = ‖A‖² − Σab,
        1ᵀK̃1    = ‖s‖² − Σa, and (K̃1)ᵢ = xᵢ·s − aᵢ, so
        1ᵀK̃L̃1   = Σ (xᵢ·s − aᵢ)(yᵢ·t − bᵢ) = sᵀAt − s·Σxb − t·Σya + Σab.

    A shift of all x adds rᵢ + rⱼ to every entry of K off the diagonal, which U-centring takes away again: the value does
    not depend on the origin, so sums about any point near the mean do, and keep their digits.

    >>> x = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    >>> one, two = torch.tensor([0.0]), torch.tensor(4.0)
    >>> round(float(unbiased_hsic(CrossSums(4, x.T @ x, one, one, two, two, two, one, one))), 3)
    2.667
    """
    n = sums.count
    trace = sums.xy.square().sum((-2, -1)) - sums.ab
    whole_x, whole_y = sums.x.square().sum(-1) - sums.a, sums.y.square().sum(-1) - sums.b
    bent = (sums.x * (sums.xy @ sums.y[..., None])[..., 0]).sum(-1)
    joined = bent - (sums.x * sums.xb).sum(-1) - (sums.y * sums.ya).sum(-1) + sums.ab
    found: Tensor = trace + whole_x * whole_y / ((n - 1) * (n - 2)) - 2 / (n - 2) * joined
    return found / (n * (n - 3))


class CrossMoments(Accumulator):
    """Σxyᵀ of every pair of sites of two different models, Σxxᵀ of every site, and what debiasing needs beside them.

    `models[u]` is the model of site u, `pilots[u]` [dᵤ] a point near its vectors, about which all sums are taken: parts
    of a text can be merged where they have the same pilots. Products of a batch are taken in the precision of its rows
    (float32 at least) and summed in float64: of float32 rows an entry errs by about 10⁻⁷·‖xᵢ‖‖yⱼ‖, at random.
    The product of a site with itself is taken as that of two sites is, so equal vectors have equal moments bit for bit.

    Cost: 2·dᵤ·dᵥ operations a token and pair; memory 8·Σdᵤdᵥ bytes.

    >>> moments = CrossMoments([0, 1], [torch.zeros(2), torch.zeros(3)])
    >>> moments.update([torch.ones(4, 2), torch.ones(4, 3)])
    >>> moments.count, moments.cross[0, 1].tolist()
    (4.0, [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]])
    """

    def __init__(self, models: Sequence[int], pilots: Sequence[Tensor]):
        self.models, self.pilots = list(models), list(pilots)
        self.count = 0.0
        number = range(len(pilots))
        pairs = [(u, v) for u in number for v in number if u == v or models[u] < models[v]]
        zero = pilots[0].new_zeros(0, dtype=torch.float64)
        self.total = [zero.new_zeros(len(pilot)) for pilot in pilots]
        self.cross = {(u, v): zero.new_zeros(len(pilots[u]), len(pilots[v])) for u, v in pairs}
        self.square = zero.new_zeros(len(pilots))
        self.squares = zero.new_zeros(len(pilots), len(pilots))  # Σ aᵤaᵥ
        self.bent = [zero.new_zeros(len(pilot), len(pilots)) for pilot in pilots]  # Σ xᵤaᵥ

    def update(self, rows: Sequence[Tensor]) -> None:
        """Add the same n tokens at every site: rows [n, dᵤ], in the order of the sites."""
        about = [_precise(x) - pilot.to(_precise(x).dtype) for x, pilot in zip(rows, self.pilots, strict=True)]
        lengths = torch.stack([torch.linalg.vector_norm(x, dim=1).double().square() for x in about], dim=1)
        self.count += len(lengths)
        self.square += lengths.sum(0)
        self.squares += lengths.T @ lengths
        for u, x in enumerate(about):
            self.total[u] += x.sum(0, dtype=torch.float64)
            self.bent[u] += x.T @ lengths.to(x.dtype)
        for (u, v), held in self.cross.items():
            kind = torch.promote_types(about[u].dtype, about[v].dtype)
            held += about[u].to(kind).T @ about[v].to(kind)

    def pair(self, u: int, v: int) -> CrossSums:
        """What `unbiased_hsic` takes of two sites (of different models, the first one's first; or of one and itself)."""
        return CrossSums(
            self.count, self.cross[u, v], self.total[u], self.total[v], self.square[u], self.square[v],
            self.squares[u, v], self.bent[u][:, v], self.bent[v][:, u],
        )  # fmt: skip

    def covariance(self, u: int, v: int) -> Tensor:
        """Σ(x − x̄)(y − ȳ)ᵀ/(n − 1) [dᵤ, dᵥ]."""
        centred = self.cross[u, v] - torch.outer(self.total[u], self.total[v]) / max(self.count, 1.0)
        found: Tensor = centred / max(self.count - 1, 1.0)
        return found

    def merge(self, other: CrossMoments) -> None:
        """Add the moments of other tokens about the same pilots."""
        if self.models != other.models or not all(map(torch.equal, self.pilots, other.pilots)):
            raise ValueError("cross-moments about different pilots do not add")
        self.count += other.count
        self.square += other.square
        self.squares += other.squares
        for mine, theirs in zip((*self.total, *self.bent), (*other.total, *other.bent), strict=True):
            mine += theirs
        for pair, held in self.cross.items():
            held += other.cross[pair]

    def state(self) -> dict[str, Tensor]:
        """Tensors `count`, `models`, `square`, `squares`; `pilot.U`, `total.U`, `bent.U`; `cross.U.V`."""
        state = {"count": torch.tensor(self.count, dtype=torch.float64), "models": torch.tensor(self.models)}
        state |= {"square": self.square, "squares": self.squares}
        for u, pilot in enumerate(self.pilots):
            state |= {f"pilot.{u}": pilot, f"total.{u}": self.total[u], f"bent.{u}": self.bent[u]}
        return state | {f"cross.{u}.{v}": held for (u, v), held in self.cross.items()}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """The inverse of `state`."""
        models = state["models"].tolist()
        new = cls(models, [state[f"pilot.{u}"] for u in range(len(models))])
        new.count = float(state["count"])
        new.square, new.squares = state["square"].clone(), state["squares"].clone()
        new.total = [state[f"total.{u}"].clone() for u in range(len(models))]
        new.bent = [state[f"bent.{u}"].clone() for u in range(len(models))]
        new.cross = {(u, v): state[f"cross.{u}.{v}"].clone() for u, v in new.cross}
        return new


def _precise(rows: Tensor) -> Tensor:
    """Rows in float32 or float64."""
    return rows if rows.dtype == torch.float64 else rows.float()
