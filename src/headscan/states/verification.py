"""Whether stored states are a model's own: at which site, in which order, precision and scale."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.model import Lens
from headscan.model.framed import framed
from headscan.run import BadInput, DataFrame, Result, Row, dataframe
from headscan.states.source import VectorSource
from headscan.states.stored import StoredSource, stored_source

TOKENS = 1024
"""So many stored vectors are compared."""

IN_ORDER = 0.9
"""In an order that explains a dump this share of its vectors has its own state as the nearest."""

TIE = 1e-3
"""Cosines that differ by less are equal: one token at one position may come several times."""

OWN = 0.02
"""Below this residual states are the model's own (a convention, not calibrated)."""

RELATED = 0.4
"""Below this residual they are those of the model in fewer bits, or of a near relative (a
convention, too).
"""

LEAST_VECTORS = 32

Verdict = Literal["own", "related", "foreign"]

PRECISIONS = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}
"""From the narrowest on."""

Rows = Float[Tensor, "n width"]


@dataclass(frozen=True)
class Match:
    """How well the states of one site explain stored vectors.

    Attributes:
        site: of the model.
        order: in words.
        in_order: share of the vectors whose own state is the nearest one in this order.
        scale: the stored vectors over the states.
        residual: what the scaled states leave of the vectors about their mean; 1 where they explain
            nothing.
    """

    site: str
    order: str
    in_order: float
    scale: float
    residual: float

    @property
    def verdict(self) -> Verdict:
        """Return whether the vectors are the model's own, a relative's, or foreign."""
        if self.in_order < IN_ORDER or self.residual > RELATED:
            return "foreign"
        return "own" if self.residual < OWN else "related"


@dataclass(frozen=True, kw_only=True, repr=False)
class VerificationResult(Result):
    """What explains stored states, site by site.

    Attributes:
        dump: the stored states.
        rows: for each stored site the site of the model that explains it best, the order of its
            vectors, the precision and scale that they are stored in, what is left (`residual`), the
            next best site of the model, and the verdict.
        tokens: vectors of each site that were compared.
    """

    kind: ClassVar[str] = "verification"
    dump: str
    rows: list[Row]
    tokens: int

    def frame(self) -> DataFrame:
        """Return a table with one row for each stored site."""
        return dataframe(list(self.rows))

    @property
    def sentence(self) -> str:
        """Return the answer for all sites."""
        verdicts = [row.text("verdict") for row in self.rows]
        model = self.models[0].name
        foreign = verdicts.count("foreign")
        if not foreign:
            kind = "those of" if set(verdicts) == {"own"} else "those of a near relative of"
            return f"The states in {self.dump} are {kind} {model}."
        if foreign == len(verdicts):
            return f"The states in {self.dump} are not those of {model}."
        return f"{foreign} of {len(verdicts)} sites in {self.dump} are not those of {model}."


@dataclass(frozen=True)
class Layout:
    """The windows that rows lie in, one after another.

    Attributes:
        starts: the first row of each window.
        lengths: the rows of each window.
        window: the window of each row.
        position: the position of each row in its window.
    """

    starts: Int[Tensor, " windows"]
    lengths: Int[Tensor, " windows"]
    window: Int[Tensor, " n"]
    position: Int[Tensor, " n"]

    @classmethod
    def of(cls, lengths: list[int]) -> "Layout":
        """Return the layout of windows of these lengths.

        >>> Layout.of([2, 3]).position.tolist()
        [0, 1, 0, 1, 2]
        """
        sizes = torch.tensor(lengths)
        starts = sizes.cumsum(0) - sizes
        window = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        return cls(starts, sizes, window, torch.arange(len(window)) - starts[window])

    def shifted(self, shift: int) -> Int[Tensor, " n"]:
        """Return for each row the row so many positions later in its window; −1 outside."""
        later = self.position + shift
        inside = (later >= 0) & (later < self.lengths[self.window])
        return torch.where(inside, self.starts[self.window] + later, -1)

    def permuted(self, nearest: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Return for each row that of its position in the window that most of the `nearest` rows of
        its window are in, of the same length; −1 without one.
        """
        indices = torch.full_like(nearest, -1)
        for number, (start, length) in enumerate(
            zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
        ):
            own = slice(start, start + length)
            votes = self.window[nearest[own]]
            other = int(votes.mode().values)
            if other != number and int(self.lengths[other]) == length:
                indices[own] = self.starts[other] + self.position[own]
            elif other == number:
                indices[own] = torch.arange(start, start + length)
        return indices


ORDERS = {
    0: "as the tokens",
    1: "one token early",
    -1: "one token late",
    2: "two tokens early",
    -2: "two tokens late",
}
"""The orders of vectors beside their tokens, by the positions at which their own states lie."""

PERMUTED = "windows in another order"


def verified_rows(lens: Lens, dump: str, field: str | None) -> tuple[list[Row], int]:
    """Return a row for each site of stored states, and how many vectors were compared.

    Raises BadInput for what are no stored states, for states without token ids, and for too few.
    """
    source = stored_source(dump, field=field)
    if not isinstance(source, StoredSource):
        raise BadInput(f"--verify takes stored states, and {dump} holds none.")
    if not source.vocabulary:
        raise BadInput(
            f"{source.name} holds no token ids: store token_ids beside the vectors, so that the "
            "model can read the same tokens."
        )
    stored, ids = _beginning(source)
    count = next(iter(stored.values())).shape[0]
    if count < LEAST_VECTORS:
        raise BadInput(f"{source.name} holds {count} vectors, too few to verify.")
    widths = {rows.shape[1] for rows in stored.values()}
    candidates = [site for site in lens.sites if lens.width(site) in widths]
    states = _states(framed(lens, source.vectors.frame), ids, candidates)
    layout = Layout.of([len(row) for batch in ids for row in batch])
    return [_row(site, rows, states, layout) for site, rows in stored.items()], count


def _beginning(source: VectorSource) -> tuple[dict[str, Rows], list[Int[Tensor, "B T"]]]:
    """Return the first vectors of each site, and their token ids batch by batch."""
    sites = [site for site in source.sites if not source.pooled(site)]
    parts: dict[str, list[Tensor]] = {site: [] for site in sites}
    ids = []
    count = 0

    def collect(site: str, rows: Tensor) -> None:
        parts[site].append(rows.flatten(0, 1))

    for batch in source.batches():
        if count >= TOKENS:
            break
        source.visit(batch, tuple(parts), collect)
        ids.append(torch.from_numpy(np.ascontiguousarray(batch.ids)))
        count += batch.ids.size
    return {site: torch.cat(rows).double() for site, rows in parts.items()}, ids


def _states(lens: Lens, ids: list[Int[Tensor, "B T"]], sites: list[str]) -> dict[str, Rows]:
    """Return the model's own states of the same tokens."""
    parts: dict[str, list[Tensor]] = {site: [] for site in sites}

    def take(site: str, states: Tensor) -> None:
        parts[site].append(states.flatten(0, 1).detach().float().cpu())

    for batch in ids:
        lens.run(batch.to(lens.device), sites=sites, each=take)
    return {site: torch.cat(rows) for site, rows in parts.items()}


def _row(site: str, rows: Rows, states: Mapping[str, Tensor], layout: Layout) -> Row:
    """Return what explains the stored vectors of a site."""
    matches = [
        match_of(name, rows, own.double(), layout)
        for name, own in states.items()
        if own.shape == rows.shape
    ]
    cells: dict[str, object] = {"site": site, "precision": precision_of(rows)}
    if not matches:
        return Row(cells | {"nearest": None, "verdict": "foreign"})
    # A site in whose order nothing stands is no candidate, whatever its residual.
    ranked = sorted(matches, key=lambda match: (match.in_order < IN_ORDER, match.residual))
    best = ranked[0]
    cells |= {
        "nearest": best.site,
        "order": best.order,
        "in_order": best.in_order,
        "scale": best.scale,
        "residual": best.residual,
        "verdict": best.verdict,
    }
    if len(ranked) > 1:
        cells |= {"next": ranked[1].site, "next_residual": ranked[1].residual}
    return Row(cells)


def precision_of(rows: Rows) -> str:
    """Return the narrowest type in which all numbers can be stored.

    >>> precision_of(torch.tensor([[1.0, 0.1]]).bfloat16().double())
    'bfloat16'
    """
    for name, dtype in PRECISIONS.items():
        if torch.equal(rows.float().to(dtype).double(), rows):
            return name
    return "float64"


def match_of(site: str, rows: Rows, states: Rows, layout: Layout) -> Match:
    """Return how well the states of a site explain stored vectors [n, width]."""
    cosines = _directions(rows) @ _directions(states).T
    largest, nearest = cosines.max(1)
    orders = {name: layout.shifted(shift) for shift, name in ORDERS.items()}
    orders[PERMUTED] = layout.permuted(nearest)
    best_order = ORDERS[0]
    best_share = -1.0
    for name, indices in orders.items():
        known = indices >= 0
        own = cosines[known, indices[known]]
        is_largest = own >= largest[known] - TIE
        share = float(is_largest.double().mean()) if len(own) else 0.0
        if share > best_share + TIE:
            best_order = name
            best_share = share

    indices = orders[best_order]
    known = indices >= 0
    x = rows[known] - rows[known].mean(0)
    y = states[indices[known]]
    y = y - y.mean(0)
    energy = float((y * y).sum())
    scale = float((x * y).sum()) / energy if energy > 0 else 0.0
    norm = float(x.norm())
    residual = float((x - scale * y).norm()) / norm if norm > 0 else 1.0
    return Match(site, best_order, best_share, scale, residual)


def _directions(rows: Rows) -> Rows:
    """Return the directions of rows from their mean."""
    return torch.nn.functional.normalize(rows - rows.mean(0), dim=1)
