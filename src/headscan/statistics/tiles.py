"""Second moments from float32 products of tiles about a centre, summed in float64, with the error
of the products measured.

Every eighth tile is summed in float64, too. Along vectors r of random signs the mean of ‖Er‖² is
‖E‖² of the error E of the sum (Girard 1989, Hutchinson 1990), whether the error is rounding or
comes from fewer bits than were asked for; `errors.rounding` converts it to errors of measures.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Self

import torch
from torch import Tensor

from headscan.statistics import gram
from headscan.statistics.accumulator import Accumulator, device_of
from headscan.statistics.pieces import Pieces

WIDE = 256
"""Dimensions from which on float32 products pay: narrower sites are summed in float64."""

TILE = 2048
"""Tokens of a tile on a CPU.

Measured at 384 and 768 dimensions: with fewer, the steps that are done once a tile cost a fifth
more.
"""

EVERY = 8
"""One tile of `EVERY` is checked, along `SIGNS` vectors."""

SIGNS = 4

FAR = 0.99
"""Share of the energy in the mean beyond which tiles are not used."""

TRIED = 64
"""Tokens, and coordinates, whose products are compared with float64 before the first tile."""

COARSE = 1e-6
"""Error of these products, as a share of the energy, beyond which tiles are not used.

Products in float32 have 1e-8; TF32 has 6e-5.
"""


@cache
def float64_pays(device: torch.device) -> bool:
    """Return whether a device takes at most twice as long for products in float64 as in float32.

    It is tried, in milliseconds. Where it is so (data-centre GPUs), tiles with their checks cost
    more than sums in float64. A CPU is never so: it takes twice as long.
    """
    if device.type == "cpu":
        return False
    rows = torch.ones(8192, 1024, device=device)
    return _seconds(rows.double()) <= 2 * _seconds(rows)


@cache
def half_pays(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a device multiplies 16-bit rows with float32 sums in less time than float32
    rows, and as exactly.

    It is tried, in milliseconds: GPUs with matrix units for 16 bits do. A CPU is not tried, so that
    its numbers do not depend on its kind.
    """
    if device.type == "cpu" or dtype.itemsize != 2:
        return False
    draws = torch.randn(TILE, 1024, generator=torch.Generator().manual_seed(0))
    return _half_pays(draws.to(device, dtype))


def _half_pays(rows: Tensor) -> bool:
    try:
        products = rows.new_empty(TRIED, rows.shape[1], dtype=torch.float32)
        gram.half_product(rows[:, :TRIED].T, rows, products)
        seconds = _seconds(rows, gram.half_product)
    except (RuntimeError, TypeError):
        return False
    exact = rows[:, :TRIED].double().T @ rows.double()
    error = torch.linalg.vector_norm(products - exact) / torch.linalg.vector_norm(exact)
    return float(error) <= COARSE and seconds < _seconds(rows.float())


def _seconds(rows: Tensor, multiply: Callable[[Tensor, Tensor], Tensor] = torch.mm) -> float:
    """Return the seconds of the fastest of three products XᵀX."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        float(multiply(rows.T, rows)[0, 0])  # reading a number waits for the device
        seconds.append(time.perf_counter() - start)
    return min(seconds)


class Tiles(Accumulator):
    """The centre of a site's tiles, and the error of their products as far as it was measured.

    Attributes:
        centre: the point that products are taken about, float32 [width]; None before there is one.
        about_origin: whether it is the origin.
        tiles: number of tiles added.
        tokens: number of tokens read.
        signs: the random vectors [width, SIGNS].
        products: error of the checked tiles' Gram matrix along `signs`: the float32 products less
            those in float64 [width, SIGNS].
        sums: error of the checked tiles' `token_sums` [2·width + 4].
        checked: number of tokens in the checked tiles, and their Σ‖x − centre‖² [2].
    """

    def __init__(self, width: int, device: torch.device | str = "cpu"):
        self.width = width
        self.tiles = 0
        self.tokens = 0
        self.products = torch.zeros(width, SIGNS, dtype=torch.float64, device=device)
        self.sums = self.products.new_zeros(2 * width + 4)
        self.checked = self.products.new_zeros(2)
        self.centre: Tensor | None = None
        self.about_origin = False
        generator = torch.Generator().manual_seed(width)
        bits = torch.randint(0, 2, (width, SIGNS), generator=generator, dtype=torch.int64)
        self.signs = (2 * bits - 1).to(self.products)

    def begin(self, total: Tensor, scalars: Tensor, rows: Tensor) -> bool:
        """Set the centre to the mean of the vectors summed so far.

        Return False if it is too far, or if products of the first `rows` [n, width], which come
        next, are coarser than float32's. `total` is Σx [width], `scalars` the last four of
        `token_sums`. States of 16 bits keep the origin as the centre unless the mean has half of
        their energy: products about the origin are exact in float32.
        """
        mean = total / scalars[0].clamp_min(1)
        share = float(scalars[0] * (mean @ mean) / scalars[3].clamp_min(1e-300))
        self.about_origin = rows.dtype.itemsize <= 2 and share <= 0.5
        if self.about_origin:
            self.centre = torch.zeros_like(mean).float()
        else:
            self.centre = mean.float()
        return share <= FAR and self._error(rows[:TRIED] - self.centre) <= COARSE

    def _error(self, rows: Tensor) -> float:
        """Return the error of float32 products of rows [n, width], as a share of their energy."""
        few = rows[:, :TRIED]
        exact = rows.double()
        products = (few.T @ rows).double() @ self.signs
        error = products - exact[:, :TRIED].T @ (exact @ self.signs)
        energy = torch.linalg.vector_norm(exact) * torch.linalg.vector_norm(exact[:, :TRIED])
        return float(torch.linalg.vector_norm(error) / SIGNS**0.5 / energy.clamp_min(1e-300))

    def add(self, sums: gram.Gram, pieces: Pieces) -> None:
        """Add the products of a tile's ordinary tokens about the centre, summed in float32."""
        assert self.centre is not None
        rows = pieces.rows.flatten(0, 1)
        if self.about_origin and half_pays(rows.device, pieces.states.dtype):
            rows = rows.to(pieces.states.dtype)  # exact: they are the states, or zeros
        products = sums.add_tile(rows, self.centre)
        if self.tiles % EVERY == 0:
            exact = Pieces.of(pieces.states, pieces.documents, pieces.cells, pieces.norms)
            exact_rows = exact.rows.sub_(self.centre).flatten(0, 1)
            exact_rows.index_fill_(0, pieces.apart, 0.0)
            projections = exact_rows @ self.signs
            self.products += sums.full(products) @ self.signs - exact_rows.T @ projections
            self.sums += pieces.cell_sums[0] - exact.cell_sums[0]
            tokens = exact.cell_sums[0, -4]
            energy = projections.square().sum() / SIGNS
            self.checked += torch.stack([tokens, energy])
        self.tiles += 1

    def merge(self, other: "Tiles") -> None:
        self.tiles += other.tiles
        self.tokens += other.tokens
        self.products += other.products.to(self.products.device)
        self.sums += other.sums.to(self.sums.device)
        self.checked += other.checked.to(self.checked.device)
        if self.centre is None:
            self.centre = other.centre
            self.about_origin = other.about_origin

    def state(self) -> dict[str, Tensor]:
        state = {
            "width": torch.tensor(self.width),
            "tiles": torch.tensor(self.tiles),
            "tokens": torch.tensor(self.tokens),
            "products": self.products,
            "sums": self.sums,
            "checked": self.checked,
        }
        if self.centre is not None:
            state["centre"] = self.centre
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        tiles = cls(int(state["width"]), device_of(state))
        tiles.tiles = int(state["tiles"])
        tiles.tokens = int(state["tokens"])
        tiles.products = state["products"].clone()
        tiles.sums = state["sums"].clone()
        tiles.checked = state["checked"].clone()
        if "centre" in state:
            tiles.centre = state["centre"].clone()
            tiles.about_origin = not bool(state["centre"].any())
        return tiles
