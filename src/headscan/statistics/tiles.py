"""Second moments from float32 products of tiles about a centre, summed in float64, with what the
products lose measured.

Every eighth tile is summed in float64, too. Along vectors r of random signs the mean of ‖Er‖² is
‖E‖² of the error E of the sum (Girard 1989, Hutchinson 1990), be it rounding or fewer bits than
were asked for; `errors.rounding` says what that is to a number.
"""

from typing import Self

import torch
from torch import Tensor

from headscan.statistics.accumulator import Accumulator
from headscan.statistics.clusters import Pieces
from headscan.statistics.gram import Gram

WIDE = 256  # dimensions from which on float32 products pay: narrower sites are summed in float64
# tokens of a tile on a processor; measured at 384 and 768 dimensions: fewer cost a fifth more for
# what is done once
TILE = 2048
# one tile of EVERY is checked, along so many vectors; a far mean has more than that of the energy
EVERY = 8
SIGNS = 4
FAR = 0.99


class Tiles(Accumulator):
    """How a site's tiles are multiplied, and what that lost.

    centre [width]: the point that products are taken about, float32, None before there is one.
    tiles: how many there were; tokens: how many were read. Of the checked tiles, less what float64
    makes of them: products [width, SIGNS], along `signs`, and sums [2·width + 4], their
    `token_sums`; checked [2]: their tokens, and their Σ‖x − centre‖².
    """

    arguments = ("width",)
    fields = ("tiles", "tokens", "products", "sums", "checked")

    def __init__(self, width: int, device: torch.device | str = "cpu"):
        self.width = width
        self.tiles = 0
        self.tokens = 0
        self.products = torch.zeros(width, SIGNS, dtype=torch.float64, device=device)
        self.sums = self.products.new_zeros(2 * width + 4)
        self.checked = self.products.new_zeros(2)
        self.centre: Tensor | None = None
        draws = torch.randint(
            0, 2, (width, SIGNS), generator=torch.Generator().manual_seed(width), dtype=torch.int64
        )
        self.signs = (2 * draws - 1).to(self.products)

    def begin(self, total: Tensor, scalars: Tensor, dtype: torch.dtype) -> bool:
        """Take the mean of what was summed so far, Σx [width] and the scalars of `token_sums`, as
        the centre; False if it is far. States of 16 bits keep the origin unless the mean has half
        of their energy: products about it are exact in float32.
        """
        mean = total / scalars[0].clamp_min(1)
        share = float(scalars[0] * (mean @ mean) / scalars[3].clamp_min(1e-300))
        self.centre = (
            torch.zeros_like(mean).float() if dtype.itemsize <= 2 and share <= 0.5 else mean.float()
        )
        return share <= FAR

    def add(self, gram: Gram, cut: Pieces) -> None:
        """Add the products of a tile's ordinary tokens, float32 about the centre."""
        assert self.centre is not None
        products = gram.add_tile(cut.rows.flatten(0, 1), self.centre)
        if self.tiles % EVERY == 0:
            exact = Pieces.of(cut.states, cut.documents, cut.cells)
            rows = exact.rows.sub_(self.centre).flatten(0, 1)
            rows.index_fill_(0, cut.apart, 0.0)
            along = rows @ self.signs
            self.products += gram.full(products) @ self.signs - rows.T @ along
            self.sums += cut.ordinary.sum(0) - exact.ordinary.sum(0)
            self.checked += torch.stack([exact.ordinary[:, -4].sum(), along.square().sum() / SIGNS])
        self.tiles += 1

    def merge(self, other: "Tiles") -> None:
        super().merge(other)
        self.centre = other.centre if self.centre is None else self.centre

    def state(self) -> dict[str, Tensor]:
        return super().state() | ({} if self.centre is None else {"centre": self.centre})

    def filled(self, state: dict[str, Tensor]) -> Self:
        super().filled(state)
        self.centre = state["centre"].clone() if "centre" in state else None
        return self
