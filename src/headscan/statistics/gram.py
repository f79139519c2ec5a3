"""The Gram matrix Σ x xᵀ of a stream of vectors, accumulated in float64, about a point where the
origin is far away.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor

PANELS = 4
"""Horizontal panels, beginning at the diagonal, that a symmetric matrix is stored as.

With k panels, (k+1)/(2k) of the products and of the memory of the full matrix are needed. Measured
on 2,048 x 384 rows in float64, one thread: 10.1 ms for one full product, 6.8 ms for four panels,
6.6 ms for eight; more panels are too thin for the matrix unit.
"""

FAR = 1e4
"""|mean|²/variance beyond which products are taken about a vector of the data.

Σxxᵀ about the origin loses as many digits of the covariance as this ratio has.
"""

WAITING = 64
"""Rows that at least may wait for others (`Gram.add_few`)."""


class Gram:
    """Σ x xᵀ over all rows x seen so far; shape [width, width], symmetric, float64.

    Where the first rows lie far from the origin for their spread (mean/deviation above 100), Σ(x −
    p)(x − p)ᵀ and Σ(x − p) are kept about one of them, the `pilot` p, so that the scatter about the
    mean keeps its digits (Chan, Golub and LeVeque 1983). Matrices with other pilots are moved to
    this one's when they are added, exactly but for rounding.

    Cost (k+1)/(2k)·2·rows·width² operations an update for k = 4 panels; memory 5 bytes·width². Up
    to `few` rows are stored as they are: 5·width/8 of them take as much memory as the panels.

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
        self._spans = panel_spans(width)
        self.panels: list[Tensor] = []
        self.held: list[Tensor] = []  # rows, while there are no panels
        self.waiting: list[Tensor] = []  # rows that are in no number yet, where there are panels
        self.count = 0.0
        self.pilot: Tensor | None = None  # None: the origin
        self._centre: Tensor | None = None  # the pilot, where a tile was added about it
        self.sum = torch.zeros(width, dtype=torch.float64, device=device)  # Σ(x − pilot)
        if not few:
            self._open()

    def _open(self) -> None:
        """Make the panels, and add the rows that were stored until now."""
        self._flat, self.panels = self._empty(torch.float64)
        self._flat.zero_()
        rows = self.rows
        self.held = []
        self.count = 0.0
        self.add(rows)

    def _empty(self, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
        """Return memory for the panels in one piece, and the panels in it."""
        shapes = [(end - start, self.width - start) for start, end in self._spans]
        sizes = [height * width for height, width in shapes]
        flat = self.sum.new_empty(sum(sizes), dtype=dtype)
        pieces = flat.split(sizes)
        return flat, [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    @property
    def rows(self) -> Tensor:
        """The rows that are stored while there are no panels [n, width]."""
        return torch.cat([self.sum.new_zeros(0, self.width), *self.held])

    def add(self, rows: Tensor, total: Tensor | None = None, *, count: float | None = None) -> None:
        """Add rows of shape [n, width], float64.

        `total` is their sum [width], where it is known already. `count` is their number, where some
        rows are zero and are not to be counted (never about a pilot).
        """
        if not len(rows):
            return
        if not self.panels:
            self._hold([rows.clone()])
            return

        if not self.count:
            self.pilot = _pilot(rows)
        if self.pilot is not None:
            rows = rows - self.pilot
            total = None
        for panel, (start, end) in zip(self.panels, self._spans, strict=True):
            panel.addmm_(rows[:, start:end].T, rows[:, start:])
        self.sum += rows.sum(0) if total is None else total
        self.count += len(rows) if count is None else count

    def add_few(self, rows: Tensor) -> None:
        """Add rows of shape [n, width], in any precision, that are few beside the dimensions.

        They are not copied. Where there are panels, they wait for others: a product of many takes
        the time of one of few. From 512 dimensions on, those that wait take at most a fifth of the
        panels' memory.
        """
        if self.panels:
            self.waiting.append(rows)
            if sum(len(part) for part in self.waiting) > waiting_rows(self.width):
                self._settle()
        else:
            self._hold([rows])

    def _hold(self, pieces: Sequence[Tensor]) -> None:
        """Store rows as they are, as long as they are few."""
        self.held += pieces
        self.count += sum(map(len, pieces))
        if self.count > self.few:
            self._open()

    def _settle(self) -> None:
        """Add the rows that wait."""
        if self.waiting:
            rows = torch.cat(self.waiting).double()
            self.waiting = []
            self.add(rows)

    def add_tile(self, rows: Tensor, centre: Tensor) -> list[Tensor]:
        """Add the products of rows x − centre [n, width], in float32 or 16 bits, and return the
        panels of their sum, in float32.

        Rows of zeros are not counted. The caller adds to `sum` and `count`. The matrix must have
        panels, which are first moved to the centre.
        """
        if self._centre is not centre:
            shift = self._pilot_vector(self.sum.device) - centre
            self._add_shift(self.sum, shift, self.count, 1.0)
            self.sum += self.count * shift
            self._centre = centre
            self.pilot = centre.double()

        flat, products = self._empty(torch.float32)
        for product, (start, end) in zip(products, self._spans, strict=True):
            if rows.dtype == torch.float32:
                torch.mm(rows[:, start:end].T, rows[:, start:], out=product)
            else:
                half_product(rows[:, start:end].T, rows[:, start:], product)
        self._flat += flat
        return products

    def combine(self, other: "Gram", sign: float = 1.0) -> None:
        """Add (or, with sign -1, subtract) another Gram matrix of the same width."""
        device = self.sum.device
        if not other.panels and sign == 1.0:
            if self.panels:
                self.add(other.rows.to(device))
            else:
                self._hold([rows.to(device) for rows in other.held])
        elif not self.count and sign == 1.0:
            self._copy(other)
        else:
            self._combine_panels(other, sign)
        if other.waiting:
            rows = torch.cat(other.waiting).double()
            few = Gram(self.width, rows.device, few=len(rows))
            few.add(rows)
            self.combine(few, sign)

    def _combine_panels(self, other: "Gram", sign: float) -> None:
        device = self.sum.device
        if not self.panels:
            self._open()
        if not other.panels:
            other = other.copy()
            other._open()
        if not self.count and other.pilot is not None:
            self.pilot = other.pilot.to(device)
            self._centre = None

        other_sum = other.sum.to(device)
        shift = other._shift_from(self, device)
        for panel, other_panel in zip(self.panels, other.panels, strict=True):
            panel.add_(other_panel.to(device), alpha=sign)
        if shift is not None:
            self._add_shift(other_sum, shift, other.count, sign)
            other_sum = other_sum + other.count * shift
        self.sum.add_(other_sum, alpha=sign)
        self.count += sign * other.count

    def _copy(self, other: "Gram") -> None:
        """Take the sums of another matrix, which has panels, in place of none."""
        self._flat, self.panels = self._empty(torch.float64)
        self._flat.copy_(other._flat)
        self.sum.copy_(other.sum)
        self.count = other.count
        self.pilot = None if other.pilot is None else other.pilot.to(self.sum.device)
        self._centre = other._centre

    def _pilot_vector(self, device: torch.device) -> Tensor:
        pilot = torch.zeros_like(self.sum) if self.pilot is None else self.pilot
        return pilot.to(device)

    def _shift_from(self, target: "Gram", device: torch.device) -> Tensor | None:
        """Return this matrix's pilot less that of another one; None where they agree."""
        if self.pilot is None and target.pilot is None:
            return None
        if self._centre is not None and self._centre is target._centre:
            return None  # known without a number read from a device
        shift = self._pilot_vector(device) - target._pilot_vector(device)
        return shift if bool(shift.any()) else None

    def _add_shift(self, total: Tensor, shift: Tensor, count: float, sign: float) -> None:
        """Add what moving `count` vectors y = x − q to another pilot p adds to Σ(x − p)(x − p)ᵀ.

        With the shift s = q − p, x − p = y + s, and Σ(y + s)(y + s)ᵀ = Σyyᵀ + hsᵀ + shᵀ, where h =
        Σy + ½·count·s.
        """
        half = sign * (total + (0.5 * count) * shift)
        for panel, (start, end) in zip(self.panels, self._spans, strict=True):
            panel.addr_(half[start:end], shift[start:])
            panel.addr_(shift[start:end], half[start:])

    def copy(self) -> Self:
        """Return an independent copy."""
        copy = type(self)(self.width, self.sum.device, few=0 if self.panels else self.few)
        copy.combine(self)
        return copy

    def diagonal(self) -> Tensor:
        """Return Σ x², by coordinate [width], about the origin."""
        self._settle()
        if not self.panels:
            return self.rows.square().sum(0)
        squares = torch.cat([panel.diagonal() for panel in self.panels])
        if self.pilot is None:
            return squares
        return squares + (2 * self.sum + self.count * self.pilot) * self.pilot

    def dense(self) -> Tensor:
        """Return the full symmetric matrix Σ x xᵀ [width, width], about the origin."""
        self._settle()
        full = self.full(self.panels)
        if self.pilot is not None:
            cross = torch.outer(self.sum + 0.5 * self.count * self.pilot, self.pilot)
            full += cross + cross.T
        return full

    def scatter(self) -> Tensor:
        """Return Σ (x − mean)(x − mean)ᵀ [width, width], about the mean of the rows."""
        self._settle()
        if not self.panels:
            rows = self.rows - (self.rows.mean(0) if self.held else 0.0)
            return rows.T @ rows
        full = self.full(self.panels)
        mean = self.sum / max(self.count, 1.0)
        return full.addmm_(self.sum[:, None], mean[None], alpha=-1)

    def full(self, panels: Sequence[Tensor]) -> Tensor:
        """Return the symmetric matrix [width, width], float64, that consists of these panels.

        Without panels, return the matrix of the stored rows.
        """
        if not panels:
            return self.rows.T @ self.rows
        full = torch.zeros(self.width, self.width, dtype=torch.float64, device=self.sum.device)
        for panel, (start, end) in zip(panels, self._spans, strict=True):
            full[start:end, start:] = panel
            full[end:, start:end] = panel[:, end - start :].T
        return full

    def state(self) -> dict[str, Tensor]:
        """Return the rows where they are stored as they are, else count, sum, pilot, panels and the
        rows that wait.
        """
        if not self.panels:
            return {"rows": self.rows}
        state = {"count": torch.tensor(self.count, dtype=torch.float64), "sum": self.sum}
        if self.pilot is not None:
            state["pilot"] = self.pilot
        for i, panel in enumerate(self.panels):
            state[str(i)] = panel
        if self.waiting:
            state["waiting"] = torch.cat(self.waiting).double()
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        """Return the matrix with this state."""
        if "rows" in state:
            rows = state["rows"]
            width = rows.shape[1]
            gram = cls(width, rows.device, few=max(len(rows), 5 * width // 8))
            gram.held = [rows.clone()]
            gram.count = float(len(rows))
            return gram

        gram = cls(len(state["sum"]), state["sum"].device)
        gram.count = float(state["count"])
        gram.sum = state["sum"].clone()
        gram.pilot = state["pilot"].clone() if "pilot" in state else None
        for i, panel in enumerate(gram.panels):
            panel.copy_(state[str(i)])
        if "waiting" in state:
            gram.waiting = [state["waiting"].clone()]
        return gram


def waiting_rows(width: int) -> int:
    """Return how many rows may wait for others (`Gram.add_few`)."""
    return max(WAITING, width // 8)


def panel_spans(width: int) -> list[tuple[int, int]]:
    """Return the rows, from start to end, of each panel."""
    cuts = [width * i // PANELS for i in range(PANELS + 1)]
    return [(start, end) for start, end in pairwise(cuts) if end > start]


def products_of(rows: Tensor) -> Tensor:
    """Return the products of all pairs of rows [n, d] as a symmetric matrix [n, n].

    >>> products_of(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    tensor([[5., 2.],
            [2., 1.]])
    """
    products = rows.new_empty(len(rows), len(rows))
    for start, end in panel_spans(len(rows)):
        torch.mm(rows[start:end], rows[start:].T, out=products[start:end, start:])
        products[end:, start:end] = products[start:end, end:].T
    return products


def half_product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the product of matrices of 16-bit numbers, summed in float32, in `out` if given.

    Raises RuntimeError or TypeError where the device or torch has no such product.
    """
    product: Tensor = torch.mm(left, right, out_dtype=torch.float32, out=out)
    return product


def _pilot(rows: Tensor) -> Tensor | None:
    """Return the row nearest to the mean if rows [n, width] are far from the origin, else None."""
    mean = rows.mean(0)
    mean_square = mean @ mean
    # One number read from the device settles most cases.
    square_sum = torch.linalg.vector_norm(rows).square()
    if bool(square_sum > 2 * len(rows) * mean_square):
        return None
    distances = (rows - mean).square().sum(1)
    if not bool(mean_square > FAR * distances.mean()):
        return None
    return rows[int(distances.argmin())].clone()
