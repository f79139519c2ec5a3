"""Outliers of a site: sink tokens, the coordinates that make them, and coordinates that make the
cone.

Rogue dimensions: the mean cosine over pairs is a sum over dimensions, A = Σ_d CC_d with
CC_d = E[x_d·y_d/(‖x‖‖y‖)] (Timkey and van Schijndel 2021, arXiv:2109.04404). Over all ordered pairs
of n distinct vectors CC_d = ((Σû_d)² − Σû_d²)/(n(n − 1)): exact in O(nd), where the published code
samples pairs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.measures.cone import top_direction_share
from headscan.measures.measure import WITHOUT_FIRST, Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup, over_blocks, tally_row
from headscan.measures.spectrum import effective_rank
from headscan.statistics import Accumulator, Cloud, DirectionTally, SiteStatistics, Tally
from headscan.statistics.sinks import FACTOR
from headscan.statistics.uncertainty import Cells, Floats, number

NO_CONE = "the average cosine is not above 0.001"
UNDER_3 = "fewer than three sampled vectors"
LEAST_CONE = 1e-3
"""The average cosine must be above this number for shares of it to be defined."""
TOPS = (1, 3, 5)
"""The numbers of largest contributions that are looked at."""
AGREEMENT_ROWS = 1000  # sampled rows whose pairs are compared


def contributions(tokens: float, unit: Floats, square: Floats) -> Floats | None:
    """Return CC_d of each dimension [d], signed; they add up to the average cosine.

    `unit` is Σû and `square` Σû² [d]. None for fewer than two directions.

    >>> u = np.array([[0.6, 0.8], [0.6, -0.8]])
    >>> contributions(2, u.sum(0), (u**2).sum(0)).round(2).tolist()  # 0.36 − 0.64 = their cosine
    [0.36, -0.64]
    """
    return None if tokens < 2 else (unit**2 - square) / (tokens * (tokens - 1))


def _tally_contributions(tally: Tally) -> Floats | None:
    """Return the contributions of each dimension from a tally of directions."""
    unit = tally["unit"].cpu().numpy()
    square = tally["square"].cpu().numpy()
    return contributions(float(tally["tokens"]), unit, square)


def rogue(tally: Tally) -> dict[str, float | None]:
    """Return the shares of the largest one, three and five contributions in the average cosine, and
    how many dimensions make half of it.

    A share may exceed 1 where other dimensions contribute negatively. Undefined (None) where the
    average cosine is not above 1e-3: shares of nothing.
    """
    parts = _tally_contributions(tally)
    names = ("rogue_share_1", "rogue_share_3", "rogue_share_5", "rogue_half")
    values: dict[str, float | None] = dict.fromkeys(names)
    if parts is None or parts.sum() <= LEAST_CONE:
        return values
    running = np.cumsum(np.sort(parts)[::-1]) / parts.sum()
    for k in TOPS:
        values[f"rogue_share_{k}"] = float(running[min(k, len(running)) - 1])
    values["rogue_half"] = float(np.argmax(running >= 0.5) + 1)
    return values


@dataclass(frozen=True)
class RogueDimension:
    """A coordinate with its signed contribution CC_d to the average cosine, and its share.

    The share is None where the average cosine is too small.
    """

    dimension: int
    contribution: float
    share: float | None


def rogue_dimensions(tally: Tally, top: int = 5) -> list[RogueDimension]:
    """Return the dimensions that contribute most to the average cosine, largest first."""
    parts = _tally_contributions(tally)
    if parts is None:
        return []
    total = float(parts.sum())
    dimensions = []
    for index in np.argsort(-parts, kind="stable")[:top]:
        contribution = float(parts[index])
        share = None if total <= LEAST_CONE else contribution / total
        dimensions.append(RogueDimension(int(index), contribution, share))
    return dimensions


def agreement_without(rows: Floats, removed: npt.NDArray[np.int64]) -> float | None:
    """Return r² between the cosines of all pairs of rows with all dimensions, and with the
    `removed` ones set to zero; [0, 1].

    Low: the similarity of two tokens is decided by the removed dimensions. All n(n − 1)/2 pairs;
    cost O(n²d), memory O(n²). Rows that are zero, before or after, are left out. None for fewer
    than three rows or where one of the two sets of cosines is constant.

    >>> x = np.random.default_rng(0).standard_normal((50, 8)); x[:, 0] *= 100
    >>> bool(agreement_without(x, np.array([0])) < 0.1 < 0.9 < agreement_without(x, np.array([5])))
    True
    """
    one_block = np.zeros(len(rows), dtype=int)
    cells = agreements(rows, {"": removed}, one_block, one_block.astype(bool))
    return number(cells["agreement_"])


def agreements(
    rows: Floats,
    removed: Mapping[Any, npt.NDArray[np.int64]],
    blocks: npt.NDArray[np.int64],
    first: npt.NDArray[np.bool_],
) -> Cells:
    """Return `agreement_without` of several sets of dimensions, each as `agreement_KEY`.

    Each has its 95 % interval over blocks of text, with and without rows at position 0 (`blocks`,
    `first` [n]). The sums over pairs of groups are taken once.
    """
    rows = np.asarray(rows, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1)
    labels = 2 * np.asarray(blocks) + np.asarray(first)
    cells: Cells = {}
    for key, dimensions in removed.items():
        cut = rows.copy()
        cut[:, dimensions] = 0.0
        cut_lengths = np.linalg.norm(cut, axis=1)
        nonzero = (lengths > 0) & (cut_lengths > 0)
        groups, inverse = np.unique(labels[nonzero], return_inverse=True)
        sizes = np.bincount(inverse, minlength=len(groups))

        # torch's products, not numpy's: they obey torch.set_num_threads (see Cloud).
        full_units = rows[nonzero] / lengths[nonzero, None]
        cut_units = cut[nonzero] / cut_lengths[nonzero, None]
        members = range(len(groups))
        sums = _pair_sums(
            [torch.from_numpy(full_units[inverse == group]) for group in members],
            [torch.from_numpy(cut_units[inverse == group]) for group in members],
        )
        squared_r = partial(_squared_correlation, sums)
        cells |= over_blocks(f"agreement_{key}", groups, sizes, (0.0, 1.0), squared_r)
    return cells


def _pair_sums(full: Sequence[Tensor], cut: Sequence[Tensor]) -> Floats:
    """Return the sums over pairs of rows of each pair of groups [groups, groups, 6].

    With a the cosine of a pair in full and b that of the cut rows they are: the number of pairs,
    Σa, Σb, Σa², Σb², Σab. Each pair of rows counts once.
    """
    sums = np.zeros((len(full), len(full), 6))
    for i in range(len(full)):
        for j in range(i, len(full)):
            a = full[i] @ full[j].T
            b = cut[i] @ cut[j].T
            if i == j:
                rows, columns = torch.triu_indices(len(a), len(a), 1)
                a = a[rows, columns]
                b = b[rows, columns]
            a = a.flatten()
            b = b.flatten()
            products = (a.sum(), b.sum(), a @ a, b @ b, a @ b)
            sums[i, j] = [len(a), *(float(product) for product in products)]
    return sums


def _squared_correlation(sums: Floats, groups: npt.NDArray[np.bool_]) -> float | None:
    """Return r² over all pairs of rows of these groups, from the sums of `_pair_sums`."""
    pairs, sum_a, sum_b, sum_aa, sum_bb, sum_ab = sums[np.ix_(groups, groups)].sum((0, 1))
    if pairs < 3:
        return None
    variance_a = sum_aa / pairs - (sum_a / pairs) ** 2
    variance_b = sum_bb / pairs - (sum_b / pairs) ** 2
    covariance = sum_ab / pairs - sum_a * sum_b / pairs**2
    if variance_a < 1e-15 or variance_b < 1e-15:
        return None
    return float(np.clip(covariance**2 / (variance_a * variance_b), 0.0, 1.0))


MASSIVE = 1000.0
"""A coordinate's activations are massive from this multiple of the usual size on (Sun et al. 2024).
"""
ROGUE = 0.1
"""A coordinate is rogue where it makes at least this share of the average cosine."""
MOST = 10
"""The most coordinates that are named."""
RULE = f"Sink tokens: longer than {FACTOR:g} times the median of their window, site by site."
LISTED = 8  # positions and tokens of sinks that are listed
SINK_CELLS = ("sink", "first_sink")


def outliers(
    statistics: SiteStatistics, cloud: Cloud, shown: Callable[[list[int]], list[str]] | None = None
) -> Cells:
    """Return the numbers of a site's sinks and outlying coordinates.

    `cloud` is that without sinks; `shown` turns ids into tokens.

    sinks, sink_share, sink_energy: their number, their share of the tokens and of Σ‖x‖².
    sink_length: their mean length over that of the others. sink_positions, sink_tokens: [[position,
    times], ...], [[token, times], ...], the eight most frequent. massive_coordinates: where the
    sinks' root mean square is at least 1,000 times the median coordinate's of the other tokens;
    massive_ratio: the largest such ratio, of any coordinate.

    Without sinks: rogue_coordinates, each with at least a tenth of the average cosine, rogue_share,
    what they make together, and what is left with these coordinates at zero:
    average_cosine_without_rogue (the sum of the other coordinates' contributions),
    top_direction_share_without_rogue, effective_rank_without_rogue. Where there are none, these are
    the numbers with all coordinates.

    Cost O(d²), and O(d³) where a coordinate of at most 256 is rogue.
    """
    sinks = [statistics.cell(cell) for cell in SINK_CELLS]
    count = sum(moments.count for moments in sinks)
    square = sum(moments.square for moments in sinks)
    norm = sum(moments.norm for moments in sinks)
    tokens = cloud.count + count
    sink_length = None
    if count and norm and cloud.count and cloud.norm_sum:
        sink_length = (norm / count) / (cloud.norm_sum / cloud.count)
    positions = statistics.sink_positions.most(LISTED)
    cells: Cells = {
        "sinks": int(count),
        "sink_share": count / tokens if tokens else 0.0,
        "sink_energy": square / (square + cloud.square_sum) if square else 0.0,
        "sink_length": sink_length,
        "sink_positions": [[position, times] for position, times in positions],
        "sink_tokens": _sink_tokens(statistics, shown),
    }
    return cells | _massive(statistics, cloud, count) | _rogue(statistics, cloud)


def _sink_tokens(
    statistics: SiteStatistics, shown: Callable[[list[int]], list[str]] | None
) -> list[list[str | int]]:
    """Return the most frequent sink tokens, as text where `shown` is known, with their counts."""
    most = statistics.sink_tokens.most(LISTED)
    tokens: Sequence[str | int] = [token_id for token_id, _ in most]
    if shown is not None and most:
        tokens = shown([token_id for token_id, _ in most])
    return [[token, times] for token, (_, times) in zip(tokens, most, strict=True)]


def _massive(statistics: SiteStatistics, cloud: Cloud, count: float) -> Cells:
    """Return the coordinates whose activations are massive in the sinks, and the largest ratio."""
    undefined: Cells = {"massive_coordinates": [], "massive_ratio": None}
    if not count or not cloud.count:
        return undefined
    usual = float(np.median(np.sqrt(cloud.variances + cloud.mean**2)))
    if not usual > 0:
        return undefined

    grams = [statistics.cell(cell).gram for cell in SINK_CELLS]
    diagonals = [gram.diagonal().cpu() for gram in grams if gram is not None]
    square_sums = torch.stack(diagonals).sum(0).numpy()
    ratios = np.sqrt(square_sums / count) / usual
    order = np.argsort(-ratios, kind="stable")[:MOST]
    massive = [int(k) for k in order if ratios[k] >= MASSIVE]
    return {"massive_coordinates": massive, "massive_ratio": float(ratios.max())}


def _rogue(statistics: SiteStatistics, cloud: Cloud) -> Cells:
    """Return the rogue coordinates, and what is left of the cone and the spectrum without them."""
    cells: Cells = {
        "rogue_coordinates": [],
        "rogue_share": None,
        "average_cosine_without_rogue": None,
        "top_direction_share_without_rogue": None,
        "effective_rank_without_rogue": None,
    }
    directions = cloud.count - cloud.zeros
    squares = statistics.squared_unit.cpu().numpy()
    parts = contributions(directions, cloud.unit_sum, squares)
    if parts is None or not parts.sum() > LEAST_CONE:
        return cells

    shares = parts / parts.sum()
    order = np.argsort(-shares, kind="stable")[:MOST]
    coordinates = [int(k) for k in order if shares[k] >= ROGUE]
    cells["rogue_coordinates"] = coordinates
    cells["rogue_share"] = float(shares[coordinates].sum())
    cells["average_cosine_without_rogue"] = float(np.delete(parts, coordinates).sum())
    if not coordinates:
        cells["top_direction_share_without_rogue"] = top_direction_share(cloud)
        cells["effective_rank_without_rogue"] = effective_rank(cloud)
        return cells
    remaining = cloud.without(coordinates)
    if remaining is not None:
        top_share, entropy = remaining
        cells["top_direction_share_without_rogue"] = top_share
        cells["effective_rank_without_rogue"] = float(np.exp(entropy))
    return cells


class RogueProbe(Probe):
    """The contributions of single coordinates to the average cosine."""

    needs = "vectors"
    words = ProbeWords(
        name="rogue",
        title="Rogue dimensions",
        group="cones",
        sentence="Do a few coordinates decide how similar two tokens look? What the largest 1, 3, "
        "5 of them add to the average cosine.",
        literature="Timkey and van Schijndel 2021, arXiv:2109.04404",
        position="Every number also without position 0 of each window; the dimensions that are "
        "left out are the same.",
        docs="rogue.md",
        function="headscan.measures.outliers.rogue",
        sample=2000,
        order=2,
        fields={
            **{
                f"rogue_share_{k}": Field(
                    f"share of top {k}",
                    f"Share of the average cosine that its {k} largest "
                    f"{'dimension' if k == 1 else 'dimensions'} contribute.",
                    "Σ_top CC_d / Σ CC_d,  CC_d = ((Σû_d)² − Σû_d²)/(n(n − 1))",
                    range=(0, None),
                    undefined=NO_CONE,
                    first=True,
                    plotted=k < 5,
                )
                for k in TOPS
            },
            "rogue_half": Field(
                "dimensions for half",
                "How many dimensions make half of the average cosine.",
                range=(1, None),
                unit="dimensions",
                undefined=NO_CONE,
                first=True,
            ),
            "agreement_1": Field(
                "agreement without 1",
                "r² of all pairs' cosines with and without the largest dimension, on the sample.",
                "r²",
                range=(0, 1),
                undefined=UNDER_3,
                first=True,
            ),
            "agreement_3": Field(
                "agreement without 3",
                "The same without the three largest.",
                "r²",
                range=(0, 1),
                undefined=UNDER_3,
                first=True,
                plotted=True,
            ),
            "agreement_5": Field(
                "agreement without 5",
                "The same without the five largest.",
                "r²",
                range=(0, 1),
                undefined=UNDER_3,
                first=True,
            ),
        },
    )

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {site: DirectionTally(setup.width(site), setup.device) for site in setup.sites}

    def rows(self, _setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows = []
        for site in data.clouds:
            tally = data.own[site]
            assert isinstance(tally, DirectionTally)
            top = [rogue_dimension.dimension for rogue_dimension in rogue_dimensions(tally.total())]
            row: Cells = {"site": site, **tally_row(tally, rogue, self.fields)}
            for k in TOPS:
                row[f"agreement_{k}"] = None
                row[f"agreement_{k}{WITHOUT_FIRST}"] = None
            states = data.sample.get(site)
            if states is not None:
                # Some of the dimensions must remain.
                removed = {
                    k: np.array(top[:k], dtype=int)
                    for k in TOPS
                    if k <= len(top) and k < states.shape[1]
                }
                sample = states[:AGREEMENT_ROWS].numpy()
                blocks = data.blocks[:AGREEMENT_ROWS]
                row |= agreements(sample, removed, blocks, data.first[:AGREEMENT_ROWS])
            row["dimensions"] = top
            rows.append(row)
        return rows
