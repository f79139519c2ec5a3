"""The Gram matrix Σ x xᵀ of a stream of vectors, accumulated in float64, about a point where the
origin is far away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

# A symmetric matrix is kept as horizontal panels that begin at the diagonal. With k panels,
# (k+1)/(2k) of the products and of the memory of the full matrix are needed. Measured on 2,048 x
# 384 rows in float64, one thread: 10.1 ms for one full product, 6.8 ms for four panels, 6.6 ms for
# eight; more panels are too thin for the matrix unit.
PANELS = 4
# Σxxᵀ about the origin loses |mean|²/variance in the covariance: beyond this the products are taken
# about a vector.
FAR = 1e4


class Gram:
    """Σ x xᵀ over all rows x seen so far; shape [width, width], symmetric, float64.

    Where the first rows lie far from the origin for their spread (mean/deviation above 100), Σ(x −
    p)(x − p)ᵀ and Σ(x − p) are kept about one of them, the `pilot` p, so that the scatter about the
    mean keeps its digits (Chan, Golub and LeVeque 1983). Matrices with other pilots are moved to
    this one's when they are added, exactly but for rounding.

    Cost (k+1)/(2k)·2·rows·width² operations an update for k = 4 panels; memory 5 bytes·width². Up
    to `few` rows are kept as they are: 5·width/8 of them take as much.

    >>> g = Gram(2)
    >>> g.add(torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64))
    >>> g.dense()
    tensor([[1., 2.],
            [2., 5.]], dtype=torch.float64)
    >>> g.scatter()
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """

    def __init__(self, width: int, device: torch.device | str = "cpu", *, few: int = 0):
        self.width = width
        self.few = few
        cuts = [width * i // PANELS for i in range(PANELS + 1)]
        self._spans = [(a, b) for a, b in pairwise(cuts) if b > a]
        self.panels: list[Tensor] = []
        self.held: list[Tensor] = []  # rows, while there are no panels
        self.count = 0.0
        self.pilot: Tensor | None = None  # None: the origin
        self._centre: Tensor | None = None  # the pilot, where a tile was added about it
        self.sum = torch.zeros(width, dtype=torch.float64, device=device)  # Σ(x − pilot)
        if not few:
            self._open()

    def _open(self) -> None:
        self._flat, self.panels = self._empty(torch.float64)
        self._flat.zero_()
        rows = self.rows
        self.held = []
        self.count = 0.0
        self.add(rows)

    def _empty(self, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
        """Memory for panels in one piece, and the panels in it."""
        shapes = [(b - a, self.width - a) for a, b in self._spans]
        flat = self.sum.new_empty(sum(m * n for m, n in shapes), dtype=dtype)
        return flat, [
            part.view(m, n)
            for part, (m, n) in zip(flat.split([m * n for m, n in shapes]), shapes, strict=True)
        ]

    @property
    def rows(self) -> Tensor:
        return torch.cat([self.sum.new_zeros(0, self.width), *self.held])

    def add(self, rows: Tensor, total: Tensor | None = None, *, count: float | None = None) -> None:
        """Add rows of shape [n, width], float64; `total` is their sum [width], where it is known
        already, and `count` how many they are, where some are zero and stand for none (never about
        a pilot).
        """
        if not len(rows):
            return
        if not self.panels:
            self.held.append(rows.clone())
            self.count += len(rows)
            if self.count > self.few:
                self._open()
            return
        if not self.count:
            self.pilot = _pilot(rows)
        if self.pilot is not None:
            rows = rows - self.pilot
            total = None
        for panel, (a, b) in zip(self.panels, self._spans, strict=True):
            panel.addmm_(rows[:, a:b].T, rows[:, a:])
        self.sum += rows.sum(0) if total is None else total
        self.count += len(rows) if count is None else count

    def add_tile(self, rows: Tensor, centre: Tensor) -> list[Tensor]:
        """Add the products of rows x − centre [n, width], float32, of which zeros stand for none,
        and return the panels of their sum; `sum` and `count` are the caller's to add. Needs panels,
        which are first moved to the centre.
        """
        if self._centre is not centre:
            if (moved := self._from(centre, self.sum.device)) is not None:
                self._cross(self.sum, moved, self.count, 1.0)
                self.sum += self.count * moved
            self._centre = centre
            self.pilot = centre.double()
        flat, products = self._empty(rows.dtype)
        for product, (a, b) in zip(products, self._spans, strict=True):
            torch.mm(rows[:, a:b].T, rows[:, a:], out=product)
        self._flat += flat
        return products

    def combine(self, other: "Gram", sign: float = 1.0) -> None:
        """Add (or, with sign -1, take away) another Gram matrix of the same width."""
        device = self.sum.device
        if not other.panels and sign == 1.0:
            self.add(other.rows.to(device))
            return
        if not self.panels:
            self._open()
        if not other.panels:
            other = other.copy()
            other._open()
        if not self.count and other.pilot is not None:
            self.pilot = other.pilot.to(device)
            self._centre = None
        theirs = other.sum.to(device)
        moved = other._from(self.pilot, device)
        for mine, panel in zip(self.panels, other.panels, strict=True):
            mine.add_(panel.to(device), alpha=sign)
        if moved is not None:  # x − p = (x − q) + (q − p)
            self._cross(theirs, moved, other.count, sign)
            theirs = theirs + other.count * moved
        self.sum.add_(theirs, alpha=sign)
        self.count += sign * other.count

    def _from(self, pilot: Tensor | None, device: torch.device) -> Tensor | None:
        mine = torch.zeros_like(self.sum) if self.pilot is None else self.pilot
        apart = mine.to(device) - (0.0 if pilot is None else pilot)
        return (
            apart if (self.pilot is not None or pilot is not None) and bool(apart.any()) else None
        )

    def _cross(self, total: Tensor, moved: Tensor, count: float, sign: float) -> None:
        half = sign * (total + (0.5 * count) * moved)
        for panel, (a, b) in zip(self.panels, self._spans, strict=True):
            panel.addr_(half[a:b], moved[a:]).addr_(moved[a:b], half[a:])

    def copy(self) -> Self:
        new = type(self)(self.width, self.sum.device, few=0 if self.panels else self.few)
        new.combine(self)
        return new

    def diagonal(self) -> Tensor:
        """Σ x², by coordinate [width], about the origin."""
        if not self.panels:
            return self.rows.square().sum(0)
        squares = torch.cat([panel.diagonal() for panel in self.panels])
        return (
            squares
            if self.pilot is None
            else squares + (2 * self.sum + self.count * self.pilot) * self.pilot
        )

    def dense(self) -> Tensor:
        """The full symmetric matrix Σ x xᵀ [width, width], about the origin."""
        full = self.full(self.panels)
        if self.pilot is not None:
            cross = torch.outer(self.sum + 0.5 * self.count * self.pilot, self.pilot)
            full += cross + cross.T
        return full

    def scatter(self) -> Tensor:
        """Σ (x − mean)(x − mean)ᵀ [width, width], about the mean of the rows."""
        if not self.panels:
            rows = self.rows - (self.rows.mean(0) if self.held else 0.0)
            return rows.T @ rows
        return self.full(self.panels).addr_(self.sum, self.sum, alpha=-1 / max(self.count, 1.0))

    def full(self, panels: Sequence[Tensor]) -> Tensor:
        """The symmetric matrix [width, width], float64, of which these are the panels; without any,
        that of the rows.
        """
        if not panels:
            return self.rows.T @ self.rows
        full = torch.zeros(self.width, self.width, dtype=torch.float64, device=self.sum.device)
        for panel, (a, b) in zip(panels, self._spans, strict=True):
            full[a:b, a:] = panel
            full[b:, a:b] = panel[:, b - a :].T
        return full

    def state(self) -> dict[str, Tensor]:
        if not self.panels:
            return {"rows": self.rows}
        state = {"count": torch.tensor(self.count, dtype=torch.float64), "sum": self.sum}
        state |= {} if self.pilot is None else {"pilot": self.pilot}
        return state | {str(i): panel for i, panel in enumerate(self.panels)}

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        if "rows" in state:
            width = state["rows"].shape[1]
            new = cls(width, state["rows"].device, few=max(len(state["rows"]), 5 * width // 8))
            new.held = [state["rows"].clone()]
            new.count = float(len(state["rows"]))
            return new
        new = cls(len(state["sum"]), state["sum"].device)
        new.count = float(state["count"])
        new.sum = state["sum"].clone()
        new.pilot = state["pilot"].clone() if "pilot" in state else None
        for i, panel in enumerate(new.panels):
            panel.copy_(state[str(i)])
        return new


def _pilot(rows: Tensor) -> Tensor | None:
    """Of rows [n, width] far from the origin the one nearest to their mean; None (the origin) for
    others.
    """
    mean = rows.mean(0)
    if float(torch.linalg.vector_norm(rows)) ** 2 > 2 * len(rows) * float(
        mean @ mean
    ):  # one reading settles most
        return None
    distances = (rows - mean).square().sum(1)
    return (
        rows[int(distances.argmin())].clone()
        if bool(mean @ mean > FAR * distances.mean())
        else None
    )


@dataclass(frozen=True)
class CrossSums:
    """What the debiased dependence of x [n, p] on y [n, q] needs (leading dimensions are batches);
    a = ‖x‖², b = ‖y‖².

    `count` n, `xy` Σxyᵀ [p, q], `x` Σx, `y` Σy, `a` Σa, `b` Σb, `ab` Σab, `xb` Σxb [p], `ya` Σya
    [q].
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
    """The unbiased estimate of the Hilbert-Schmidt independence criterion of linear kernels, from
    one pass; n ≥ 4.

    Song et al. (2012) leave the diagonals out of the Gram matrices K = XXᵀ and L = YYᵀ, with K̃ and
    L̃ what is left:

        HSIC₁ = [tr K̃L̃ + (1ᵀK̃1)(1ᵀL̃1)/((n − 1)(n − 2)) − 2/(n − 2) · 1ᵀK̃L̃1] / (n(n − 3)).

    None of the three needs a matrix of tokens by tokens. With a = diag K, b = diag L, s = Σx, t =
    Σy, A = Σxyᵀ:

        tr K̃L̃   = Σᵢⱼ (xᵢ·xⱼ)(yᵢ·yⱼ) − Σ aᵢbᵢ = ‖A‖² − Σab,
        1ᵀK̃1    = ‖s‖² − Σa, and (K̃1)ᵢ = xᵢ·s − aᵢ, so
        1ᵀK̃L̃1   = Σ (xᵢ·s − aᵢ)(yᵢ·t − bᵢ) = sᵀAt − s·Σxb − t·Σya + Σab.

    A shift of all x adds rᵢ + rⱼ to every entry of K off the diagonal, which U-centring takes away
    again: the value does not depend on the origin, so sums about any point near the mean do, and
    keep their digits.
    """
    n = sums.count
    trace = sums.xy.square().sum((-2, -1)) - sums.ab
    whole_x = sums.x.square().sum(-1) - sums.a
    whole_y = sums.y.square().sum(-1) - sums.b
    bent = (sums.x * (sums.xy @ sums.y[..., None])[..., 0]).sum(-1)
    joined = bent - (sums.x * sums.xb).sum(-1) - (sums.y * sums.ya).sum(-1) + sums.ab
    found: Tensor = trace + whole_x * whole_y / ((n - 1) * (n - 2)) - 2 / (n - 2) * joined
    return found / (n * (n - 3))


class CrossMoments:
    """Σxyᵀ of every pair of sites of two different models, Σxxᵀ of every site, and the sums that
    debiasing needs.

    `models[u]` is the model of site u, `pilots[u]` [dᵤ] a point near its vectors, about which all
    sums are taken. Products of a batch are taken in the precision of its rows (float32 at least)
    and summed in float64; of float32 rows an entry errs by about 10⁻⁷·‖xᵢ‖‖yⱼ‖. Equal vectors have
    equal moments bit for bit.

    Cost: 2·dᵤ·dᵥ operations a token and pair; memory 8·Σdᵤdᵥ bytes.

    >>> moments = CrossMoments([0, 1], [torch.zeros(2), torch.zeros(3)])
    >>> moments.update([torch.ones(4, 2), torch.ones(4, 3)])
    >>> moments.count, moments.cross[0, 1].tolist()
    (4.0, [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]])
    """

    def __init__(self, models: Sequence[int], pilots: Sequence[Tensor]):
        self.models = list(models)
        self.pilots = list(pilots)
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
        about = [
            _precise(x) - pilot.to(_precise(x).dtype)
            for x, pilot in zip(rows, self.pilots, strict=True)
        ]
        lengths = torch.stack(
            [torch.linalg.vector_norm(x, dim=1).double().square() for x in about], dim=1
        )
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
        """What `unbiased_hsic` takes of two sites (of different models, the first one's first; or
        of one and itself).
        """
        return CrossSums(
            self.count,
            self.cross[u, v],
            self.total[u],
            self.total[v],
            self.square[u],
            self.square[v],
            self.squares[u, v],
            self.bent[u][:, v],
            self.bent[v][:, u],
        )

    def covariance(self, u: int, v: int) -> Tensor:
        """Σ(x − x̄)(y − ȳ)ᵀ/(n − 1) [dᵤ, dᵥ]."""
        centred = self.cross[u, v] - torch.outer(self.total[u], self.total[v]) / max(
            self.count, 1.0
        )
        return centred / max(self.count - 1, 1.0)


def _precise(rows: Tensor) -> Tensor:
    return rows if rows.dtype == torch.float64 else rows.float()
