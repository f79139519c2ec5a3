"""The anatomy of a cone: how much of the squared length of the mean unit state comes from which
part.

The average cosine of n states is, up to the diagonal, |m|² with m the mean of x/‖x‖. Let m be a sum
of parts aᵢ: then
|m|² = Σ aᵢ·m, exactly, and aᵢ·m/|m|² is the share of part i. A share may be negative: that part takes away from the cone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Cost, Probe, ProbeData, ProbeSetup
from headscan.measures.streams import Followed, Plan
from headscan.statistics import Accumulator, PartSums, SiteBatch
from headscan.statistics.uncertainty import Cells, Floats, StandardError

RANKS = (10, 50, 200, 1000)
"""Where bands of token frequency end, by the rank of a token in the text."""

COORDINATES = 8
"""How many coordinates have a share of their own; the rest is one part."""


def rank_bands(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The band of each token id [V] by its rank in the text: 0 for ranks 1 to 10, ..., 4 beyond
    1,000.

    >>> rank_bands(np.array([3, 9, 0]))[[1, 0]].tolist()
    [0, 0]
    """
    ranks = np.empty(len(counts), dtype=np.int64)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.searchsorted(np.array(RANKS), ranks, side="right")


def band_names() -> list[str]:
    """What the bands are called."""
    starts = [1, *(rank + 1 for rank in RANKS)]
    return [f"rank {low}-{high}" for low, high in zip(starts, RANKS, strict=False)] + [
        f"rank {starts[-1]}-"
    ]


def position_bands(positions: int, skip_first: int = 0) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The band of each position from `skip_first` on, and the bands' names: 0, 1, 2-3, 4-7, ...

    >>> position_bands(6)[0].tolist(), position_bands(6)[1]
    ([0, 1, 2, 2, 3, 3], ['position 0', 'position 1', 'position 2-3', 'position 4-5'])
    """
    positions_read = np.arange(skip_first, positions)
    bands = np.array([int(position).bit_length() for position in positions_read], dtype=np.int64)
    bands = bands - bands[0]
    names = []
    for band in range(bands[-1] + 1):
        members = positions_read[bands == band]
        names.append(
            f"position {members[0]}"
            if len(members) == 1
            else f"position {members[0]}-{members[-1]}"
        )
    return bands, names


@dataclass(frozen=True)
class Shares:
    """The sums of a site by blocks of the text: of all unit states [C, d], and how many tokens they
    are of [C]; `drawn` where blocks hold a document and more, so that another text would have other
    ones, and are no stretches of a running text.
    """

    units: Floats
    tokens: Floats
    drawn: bool = False

    @property
    def total(self) -> Floats:
        """Σx/‖x‖ [d]."""
        total: Floats = self.units.sum(0)
        return total

    @property
    def square(self) -> float:
        return float(self.total @ self.total)

    def of(
        self, kind: str, names: Sequence[str], sums: Floats, tokens: Floats | None = None
    ) -> Iterator[Cells]:
        """The rows of parts whose sums by blocks are [C, K, d]; `tokens` [K] are the parts' own,
        where they are of tokens.
        """
        along_mean = sums @ self.total
        part_sums = sums.sum(0)
        yield from self._rows(kind, names, along_mean, self.units @ part_sums.T, tokens)

    def of_coordinates(self, coordinates: Sequence[int]) -> Iterator[Cells]:
        """The rows of the coordinates `chosen`, and of all others together."""
        total = self.total
        products = self.units[:, coordinates] * total[coordinates]
        along_mean = np.column_stack([products, self.units @ total - products.sum(1)])
        names = [*(f"coordinate {k}" for k in coordinates), "other coordinates"]
        yield from self._rows("coordinate", names, along_mean, along_mean, None)

    def _rows(
        self,
        kind: str,
        names: Sequence[str],
        along_mean: Floats,
        along_part: Floats,
        tokens: Floats | None,
    ) -> Iterator[Cells]:
        """From Σ_c a·m and Σ u·a of each block [C, K]: the share, and by its derivative what each
        block adds to its error.
        """
        square = self.square
        n = float(self.tokens.sum())
        shares = along_mean.sum(0) / square
        slope = (along_mean + along_part - 2 * shares * (self.units @ self.total)[:, None]) / square
        error = StandardError.of_documents if self.drawn else StandardError.of_text
        for k, name in enumerate(names):
            deviation = error(n * slope[:, k], self.tokens)
            share = float(shares[k])
            interval = (
                None if deviation is None else list(deviation.interval(share, bounds=(None, None)))
            )
            row: Cells = {
                "kind": kind,
                "part": name,
                "share": share,
                "share_interval": interval,
                "interval": interval,
            }
            yield row if tokens is None else row | {"tokens": float(tokens[k] / n)}

    def of_documents(self, names: Sequence[str], units: Floats, tokens: Floats) -> Iterator[Cells]:
        """The rows of groups of documents, units [G, d]; the interval is over what the other
        documents might have been.
        """
        total = units.sum(0)
        square = float(units.sum(0) @ units.sum(0))
        n = float(tokens.sum())
        for g, name in enumerate(names):
            share = float(units[g] @ total) / square
            slope = (units @ units[g] - 2 * share * (units @ total)) / square
            is_other = np.arange(len(units)) != g
            deviation = StandardError.of_documents(n * slope[is_other], tokens[is_other])
            interval = (
                None if deviation is None else list(deviation.interval(share, bounds=(None, None)))
            )
            yield {
                "kind": "document",
                "part": name,
                "share": share,
                "share_interval": interval,
                "interval": interval,
                "tokens": float(tokens[g] / n),
            }


@dataclass(frozen=True)
class SiteParts:
    """One site's sums by blocks, float64: `cells` [C, bands·positions, d] with their `tokens`, and
    `branches` [C, K, d] by name, or none; the names of bands and positions; whether blocks are
    drawn (see `Shares`).
    """

    cells: Floats
    tokens: Floats
    bands: Sequence[str]
    positions: Sequence[str]
    branches: Floats
    names: Sequence[str]
    drawn: bool

    def rows(self) -> Iterator[Cells]:
        shares = Shares(self.cells.sum(1), self.tokens.sum(1), self.drawn)
        blocks, width = shares.units.shape
        if not shares.square > 0:
            return
        grid = (blocks, len(self.bands), len(self.positions))
        cells = self.cells.reshape(*grid, width)
        tokens = self.tokens.sum(0).reshape(grid[1:])
        coordinates = np.argsort(-(shares.total**2), kind="stable")[
            : min(COORDINATES, width)
        ].tolist()
        if self.names:
            rounding = shares.units - self.branches.sum(1)
            yield from shares.of(
                "branch",
                [*self.names, "rounding"],
                np.concatenate([self.branches, rounding[:, None]], 1),
            )
        if len(self.bands) > 1:
            yield from shares.of("band", self.bands, cells.sum(2), tokens.sum(1))
        yield from shares.of("position", self.positions, cells.sum(1), tokens.sum(0))
        yield from shares.of_coordinates(coordinates)


class AnatomyProbe(Probe):
    """Who builds the cone, and who takes it away."""

    words = ProbeWords(
        name="anatomy",
        title="Anatomy of the cone",
        group="anatomy",
        sentence="Of what is the mean direction made? Shares of its squared length by branch, "
        "token frequency, position, coordinate and document; those of one kind add up to "
        "1, and a negative one takes away from the cone.",
        literature="headscan; the sum over coordinates is Timkey and van Schijndel's (2021, "
        "arXiv:2109.04404)",
        position="Position 0 has a share of its own.",
        docs="anatomy.md",
        function="headscan.measures.anatomy.Shares",
        order=1,
        picture="own",
        fields={
            "share": Field(
                "share of the cone",
                "What the part adds to the squared length of the mean unit state.",
                "aᵢ·m/|m|², m = Σaᵢ = mean x/‖x‖",
                interval="three blocks of text are needed, of a document three others",
            ),
            "tokens": Field(
                "share of the tokens",
                "How many of the tokens are in the part.",
                "nᵢ/n",
                range=(0, 1),
                interval="a count",
            ),
        },
    )

    passes = 2  # the first for the counts of tokens, which needs no model
    needs = "vectors"

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.followed: list[Followed] = []
        self.bands = torch.zeros(0, dtype=torch.int64)
        self.band_names = ["all tokens"]
        self.positions = torch.zeros(0, dtype=torch.int64)
        self.position_names = [""]

    def cost(self, setup: ProbeSetup) -> Cost:
        points = {site: point for plan in self.plans for site, point in plan.places.items()}
        sites = [(setup.width(site), points[site]) for site in setup.sites if site in points]
        products = sum(width * point.sources for width, point in sites)
        source_width = sum(setup.width(source) for plan in self.plans for source in plan.sources)
        return Cost(
            2.0 * products * (setup.tokens or 0), 4.0 * 2048 * source_width + 8.0 * 16 * products
        )

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        stacks = () if setup.source.lens is None else setup.source.lens.stacks
        self.plans = [
            plan
            for stack in stacks
            if (plan := Plan.of(setup.lens, stack, setup.sites)) is not None
        ]
        self.followed = [Followed(plan, torch.device(setup.device)) for plan in self.plans]
        counts = setup.counts
        self.bands = torch.from_numpy(
            rank_bands(counts if counts is not None else np.zeros(0, dtype=np.int64))
        )
        self.band_names = ["all tokens"] if counts is None else band_names()
        positions, self.position_names = position_bands(setup.context, setup.skip_first)
        self.positions = torch.from_numpy(positions)
        cells = len(self.band_names) * len(self.position_names)
        accumulators: dict[str, Accumulator] = {}
        for site in setup.sites:
            point = next((plan.places[site] for plan in self.plans if site in plan.places), None)
            sources, constants = (0, 0) if point is None else (point.sources, point.factors)
            sizes = {"cells": cells, "sources": sources, "constants": constants}
            accumulators[site] = PartSums(setup.width(site), **sizes, device=setup.device)
        return accumulators

    def passing(self, setup: ProbeSetup) -> tuple[str, ...]:
        return tuple(site for plan in self.plans for site in plan.passing)

    def see(self, setup: ProbeSetup, batch: SiteBatch) -> None:
        for followed in self.followed:
            if batch.site in followed.plan.passing:
                followed.see(batch)

    def update(
        self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch
    ) -> None:
        assert isinstance(accumulator, PartSums)
        cells = self.positions[: batch.ids.shape[1]].expand(batch.ids.shape)
        if len(self.bands):
            cells = cells + len(self.position_names) * self.bands[batch.ids.cpu()]
        accumulator.update(batch, cells)
        for followed in self.followed:
            if key in followed.plan.places:
                followed.keep(accumulator, batch)
                if key == followed.plan.last:
                    followed.settle()

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for site in data.clouds:
            sums = data.own[site]
            assert isinstance(sums, PartSums)
            parts = [*self._parts(site, sums).rows(), *_documents(sums)]
            if parts and not any(row["kind"] == "branch" for row in parts):
                parts[0] |= {
                    "notes": ["no shares by branch: what the site is a sum of is not known"]
                }
            rows += [{"site": site, **row} for row in parts]
            if not parts:
                notes = ["there is no cone: the mean of the unit states is zero"]
                rows.append(
                    {"site": site, "kind": "branch", "part": "", "share": None, "notes": notes}
                )
        return rows

    def _parts(self, site: str, sums: PartSums) -> SiteParts:
        blocks = sums.blocks.parts()
        cells, tokens = (
            torch.stack([block[name] for block in blocks]) for name in ("cells", "tokens")
        )
        branches = np.zeros((len(blocks), 0, sums.width))
        names = list[str]()
        for plan in self.plans:
            if site in plan.places:
                stacked = [
                    torch.stack([block[name].cpu() for block in blocks])
                    for name in ("sources", "constants")
                ]
                terms, biases = plan.carried(site, *stacked)
                names = list(plan.sources[: terms.shape[-2]])
                branches = terms.numpy()
                if biases.shape[-2]:
                    names.append(f"{plan.prefix}norm biases")
                    branches = np.concatenate(
                        [branches, biases.sum(-2, keepdim=True).numpy()], axis=1
                    )
        kind = site.rsplit(".", 1)[-1].split("_")[0]
        if kind in ("attention", "cross", "mlp", "mixer") and site not in {
            stream_site for plan in self.plans for stream_site in plan.places
        }:
            names = [site]
            branches = cells.sum(1)[:, None].cpu().numpy()
        held_cells = cells.cpu().numpy()
        held_tokens = tokens.cpu().numpy()
        documents = 1 + sums.documents.size * max((k for k, _ in sums.documents.items()), default=0)
        drawn = documents >= len(blocks)
        return SiteParts(
            held_cells, held_tokens, self.band_names, self.position_names, branches, names, drawn
        )


def _documents(sums: PartSums) -> list[Cells]:
    groups = sums.documents.items()
    size = sums.documents.size
    units = np.array([group["unit"].cpu().numpy() for _, group in groups]).reshape(len(groups), -1)
    tokens = np.array([float(group["tokens"]) for _, group in groups])
    if not len(groups) or not float(np.square(units.sum(0)).sum()) > 0:
        return []
    names = [
        f"document {k * size}" if size == 1 else f"documents {k * size}-{k * size + size - 1}"
        for k, _ in groups
    ]
    return list(Shares(units, tokens).of_documents(names, units, tokens))
