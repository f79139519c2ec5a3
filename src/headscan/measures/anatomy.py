"""The anatomy of a cone: the share of each part in the squared length of the mean unit state.

The average cosine of n states is, up to the diagonal, |m|² with m the mean of x/‖x‖. Let m be a
sum of parts aᵢ: then |m|² = Σ aᵢ·m, exactly, and aᵢ·m/|m|² is the share of part i. A share may be
negative: that part takes away from the cone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Cost, Probe, ProbeData, ProbeSetup
from headscan.measures.streams import Followed, Plan, StreamPoint
from headscan.statistics import Accumulator, PartSums, SiteBatch, Tally
from headscan.statistics.uncertainty import Cells, Floats, StandardError

RANKS = (10, 50, 200, 1000)
"""The last ranks of the bands of token frequency, by the rank of a token in the text."""

COORDINATES = 8
"""The number of coordinates with a share of their own; the others are one part together."""


def rank_bands(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the band of each token id [V] by its rank in the text.

    The band is 0 for ranks 1 to 10, ..., 4 beyond 1,000.

    >>> rank_bands(np.array([3, 9, 0]))[[1, 0]].tolist()
    [0, 0]
    """
    ranks = np.empty(len(counts), dtype=np.int64)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.searchsorted(np.array(RANKS), ranks, side="right")


def band_names() -> list[str]:
    """Return the names of the bands of token frequency."""
    starts = [1, *(rank + 1 for rank in RANKS)]
    names = [f"rank {low}-{high}" for low, high in zip(starts, RANKS, strict=False)]
    return [*names, f"rank {starts[-1]}-"]


def position_bands(positions: int, skip_first: int = 0) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the band of each position from `skip_first` on, and the bands' names.

    The bands are 0, 1, 2-3, 4-7, ...

    >>> position_bands(6)[0].tolist(), position_bands(6)[1]
    ([0, 1, 2, 2, 3, 3], ['position 0', 'position 1', 'position 2-3', 'position 4-5'])
    """
    positions_read = np.arange(skip_first, positions)
    bands = np.array([int(position).bit_length() for position in positions_read], dtype=np.int64)
    bands = bands - bands[0]
    names = []
    for band in range(bands[-1] + 1):
        members = positions_read[bands == band]
        if len(members) == 1:
            names.append(f"position {members[0]}")
        else:
            names.append(f"position {members[0]}-{members[-1]}")
    return bands, names


@dataclass(frozen=True)
class Shares:
    """The sums of a site by C blocks of the text, and the shares of parts in the mean.

    Attributes:
        units: the sum of all unit states of each block [C, d].
        tokens: the number of tokens of each block [C].
        drawn: whether each block holds at least one document. Another text would then have other
            blocks; they are no stretches of one running text.
    """

    units: Floats
    tokens: Floats
    drawn: bool = False

    @property
    def total(self) -> Floats:
        """The sum of all unit states, Σx/‖x‖ [d]."""
        total: Floats = self.units.sum(0)
        return total

    @property
    def square(self) -> float:
        """The squared length of the sum of all unit states."""
        return float(self.total @ self.total)

    def of(
        self, kind: str, names: Sequence[str], sums: Floats, tokens: Floats | None = None
    ) -> Iterator[Cells]:
        """Yield the rows of K parts whose sums by blocks are [C, K, d].

        `tokens` [K] are the numbers of the parts' tokens, where the parts are sets of tokens.
        """
        along_mean = sums @ self.total
        part_sums = sums.sum(0)
        yield from self._rows(kind, names, along_mean, self.units @ part_sums.T, tokens)

    def of_coordinates(self, coordinates: Sequence[int]) -> Iterator[Cells]:
        """Yield the rows of these coordinates, and of all others together."""
        total = self.total
        products = self.units[:, coordinates] * total[coordinates]
        remaining = self.units @ total - products.sum(1)
        along_mean = np.column_stack([products, remaining])
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
        """Yield a row for each part from two products by blocks [C, K].

        `along_mean` is a_c·m of each block's part with the total, `along_part` u_c·a of each
        block's sum with the part's total. The derivative of the share by each block gives the
        error.
        """
        square = self.square
        n = float(self.tokens.sum())
        shares = along_mean.sum(0) / square
        block_squares = (self.units @ self.total)[:, None]
        slope = (along_mean + along_part - 2 * shares * block_squares) / square
        error = StandardError.of_documents if self.drawn else StandardError.of_text
        for k, name in enumerate(names):
            deviation = error(n * slope[:, k], self.tokens)
            row = _share_row(kind, name, float(shares[k]), deviation)
            if tokens is not None:
                row["tokens"] = float(tokens[k] / n)
            yield row

    def of_documents(self, names: Sequence[str], units: Floats, tokens: Floats) -> Iterator[Cells]:
        """Yield the rows of groups of documents, with their unit sums [G, d] and tokens [G].

        The interval of a group covers the choice of the other documents.
        """
        total = units.sum(0)
        square = float(units.sum(0) @ units.sum(0))
        n = float(tokens.sum())
        for g, name in enumerate(names):
            share = float(units[g] @ total) / square
            slope = (units @ units[g] - 2 * share * (units @ total)) / square
            is_other = np.arange(len(units)) != g
            deviation = StandardError.of_documents(n * slope[is_other], tokens[is_other])
            row = _share_row("document", name, share, deviation)
            row["tokens"] = float(tokens[g] / n)
            yield row


def _share_row(kind: str, part: str, share: float, deviation: StandardError | None) -> Cells:
    """Return the row of one part with its share and the interval of the share."""
    interval = None
    if deviation is not None:
        interval = list(deviation.interval(share, bounds=(None, None)))
    return {
        "kind": kind,
        "part": part,
        "share": share,
        "share_interval": interval,
        "interval": interval,
    }


@dataclass(frozen=True)
class SiteParts:
    """The sums of one site by C blocks, float64.

    Attributes:
        cells: the sums of unit states by band and position [C, bands·positions, d].
        tokens: the number of tokens in each cell [C, bands·positions].
        bands, positions: the names of the bands of frequency and of position.
        branches: the terms of the states [C, K, d], K = 0 where they are not known.
        names: the names of the terms.
        drawn: whether blocks are drawn (see `Shares`).
    """

    cells: Floats
    tokens: Floats
    bands: Sequence[str]
    positions: Sequence[str]
    branches: Floats
    names: Sequence[str]
    drawn: bool

    def rows(self) -> Iterator[Cells]:
        """Yield the rows of all kinds of parts; none where the mean unit state is zero."""
        shares = Shares(self.cells.sum(1), self.tokens.sum(1), self.drawn)
        if not shares.square > 0:
            return

        blocks, width = shares.units.shape
        grid = (blocks, len(self.bands), len(self.positions))
        cells = self.cells.reshape(*grid, width)
        tokens = self.tokens.sum(0).reshape(grid[1:])
        if self.names:
            rounding = shares.units - self.branches.sum(1)
            branches = np.concatenate([self.branches, rounding[:, None]], 1)
            yield from shares.of("branch", [*self.names, "rounding"], branches)
        if len(self.bands) > 1:
            yield from shares.of("band", self.bands, cells.sum(2), tokens.sum(1))
        yield from shares.of("position", self.positions, cells.sum(1), tokens.sum(0))
        largest_first = np.argsort(-(shares.total**2), kind="stable")
        yield from shares.of_coordinates(largest_first[: min(COORDINATES, width)].tolist())


class AnatomyProbe(Probe):
    """Shares of the cone by branch, token frequency, position, coordinate and document."""

    words = ProbeWords(
        name="anatomy",
        title="Anatomy of the cone",
        group="anatomy",
        sentence="Which parts cause the mean direction? Shares of its squared length by "
        "branch, token frequency, position, coordinate and document; those of one "
        "kind add up to 1, and a negative one reduces the cone.",
        literature="headscan; the sum over coordinates is Timkey and van Schijndel's (2021, "
        "arXiv:2109.04404)",
        position="Position 0 is counted separately.",
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
        points = {site: point for plan in self.plans for site, point in plan.points.items()}
        followed_sites = [site for site in setup.sites if site in points]
        products = sum(setup.width(site) * points[site].sources for site in followed_sites)
        source_width = sum(setup.width(source) for plan in self.plans for source in plan.sources)
        operations = 2.0 * products * (setup.tokens or 0)
        return Cost(operations, 4.0 * 2048 * source_width + 8.0 * 16 * products)

    def _plan_of(self, site: str) -> Plan | None:
        """Return the plan of the stream that the site is on, or None."""
        return next((plan for plan in self.plans if site in plan.points), None)

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        stacks = () if setup.source.lens is None else setup.source.lens.stacks
        stack_plans = [Plan.of(setup.lens, stack, setup.sites) for stack in stacks]
        self.plans = [plan for plan in stack_plans if plan is not None]
        self.followed = [Followed(plan, torch.device(setup.device)) for plan in self.plans]

        counts = setup.counts
        if counts is None:
            self.bands = torch.from_numpy(rank_bands(np.zeros(0, dtype=np.int64)))
            self.band_names = ["all tokens"]
        else:
            self.bands = torch.from_numpy(rank_bands(counts))
            self.band_names = band_names()
        positions, self.position_names = position_bands(setup.context, setup.skip_first)
        self.positions = torch.from_numpy(positions)

        cells = len(self.band_names) * len(self.position_names)
        accumulators: dict[str, Accumulator] = {}
        for site in setup.sites:
            plan = self._plan_of(site)
            point = StreamPoint(0, 0) if plan is None else plan.points[site]
            accumulators[site] = PartSums(
                setup.width(site),
                cells=cells,
                sources=point.sources,
                constants=point.factors,
                device=setup.device,
            )
        return accumulators

    def passing(self, _setup: ProbeSetup) -> tuple[str, ...]:
        return tuple(site for plan in self.plans for site in plan.passing)

    def see(self, _setup: ProbeSetup, batch: SiteBatch) -> None:
        for followed in self.followed:
            if batch.site in followed.plan.passing:
                followed.see(batch)

    def update(
        self, _setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch
    ) -> None:
        assert isinstance(accumulator, PartSums)
        cells = self.positions[: batch.ids.shape[1]].expand(batch.ids.shape)
        if len(self.bands):
            cells = cells + len(self.position_names) * self.bands[batch.ids.cpu()]
        accumulator.update(batch, cells)
        for followed in self.followed:
            if key not in followed.plan.points:
                continue
            followed.keep(accumulator, batch)
            if key == followed.plan.last:
                followed.settle()

    def rows(self, _setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for site in data.clouds:
            sums = data.own[site]
            assert isinstance(sums, PartSums)
            parts = [*self._parts(site, sums).rows(), *_documents(sums)]
            if not parts:
                parts = [{"kind": "branch", "part": "", "share": None}]
                parts[0]["notes"] = ["there is no cone: the mean of the unit states is zero"]
            elif all(row["kind"] != "branch" for row in parts):
                parts[0]["notes"] = ["no shares by branch: what the site is a sum of is not known"]
            rows += [{"site": site, **row} for row in parts]
        return rows

    def _parts(self, site: str, sums: PartSums) -> SiteParts:
        """Return the sums of a site, with the terms of its states where they are known."""
        blocks = sums.blocks.parts()
        cells = torch.stack([block["cells"] for block in blocks])
        tokens = torch.stack([block["tokens"] for block in blocks])
        plan = self._plan_of(site)
        kind = site.rsplit(".", 1)[-1].split("_")[0]
        if plan is not None:
            names, branches = _stream_terms(plan, site, blocks)
        elif kind in ("attention", "cross", "mlp", "mixer"):
            names = [site]
            branches = cells.sum(1)[:, None].cpu().numpy()
        else:
            names = []
            branches = np.zeros((len(blocks), 0, sums.width))
        last_group = max((number for number, _ in sums.documents.items()), default=0)
        documents = 1 + sums.documents.size * last_group
        return SiteParts(
            cells=cells.cpu().numpy(),
            tokens=tokens.cpu().numpy(),
            bands=self.band_names,
            positions=self.position_names,
            branches=branches,
            names=names,
            drawn=documents >= len(blocks),
        )


def _stream_terms(
    plan: Plan, site: str, blocks: Sequence[Tally]
) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return the names of the terms of a stream's states, and their sums by blocks [C, K, d]."""
    sources = torch.stack([block["sources"].cpu() for block in blocks])
    constants = torch.stack([block["constants"].cpu() for block in blocks])
    terms, biases = plan.carried(site, sources, constants)
    names = list(plan.sources[: terms.shape[-2]])
    if not biases.shape[-2]:
        return names, terms.numpy()

    names.append(f"{plan.prefix}norm biases")
    bias_sum = biases.sum(-2, keepdim=True)
    return names, np.concatenate([terms.numpy(), bias_sum.numpy()], axis=1)


def _documents(sums: PartSums) -> list[Cells]:
    """Return the rows of groups of documents; none where the mean unit state is zero."""
    groups = sums.documents.items()
    if not groups:
        return []

    units = np.array([group["unit"].cpu().numpy() for _, group in groups])
    tokens = np.array([float(group["tokens"]) for _, group in groups])
    if not float(np.square(units.sum(0)).sum()) > 0:
        return []
    size = sums.documents.size
    if size == 1:
        names = [f"document {number}" for number, _ in groups]
    else:
        starts = [number * size for number, _ in groups]
        names = [f"documents {start}-{start + size - 1}" for start in starts]
    return list(Shares(units, tokens).of_documents(names, units, tokens))
