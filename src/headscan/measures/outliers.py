"""What stands out at a site: sink tokens, the coordinates that make them, and coordinates that make
the cone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headscan.measures.cone import top_direction_share
from headscan.measures.measure import WITHOUT_FIRST, Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup, over_blocks, tally_row
from headscan.measures.spectrum import effective_rank
from headscan.statistics import Accumulator, Cloud, DirectionTally, SiteStatistics, Tally
from headscan.statistics.sinks import FACTOR
from headscan.statistics.uncertainty import Cells, Floats, number

NO_CONE = "the average cosine is not above 0.001"
UNDER_3 = "fewer than three sampled vectors"
# ---- Rogue dimensions: do a few coordinates alone decide how similar two tokens look?
#
# The mean cosine over pairs is a sum over dimensions, A = Σ_d CC_d with CC_d = E[x_d·y_d/(‖x‖‖y‖)]
# (Timkey and van Schijndel 2021, arXiv:2109.04404). Over all ordered pairs of n distinct vectors
# CC_d = ((Σû_d)² − Σû_d²)/(n(n − 1)): exact in O(nd), where the published code samples pairs.


def contributions(tokens: float, unit: Floats, square: Floats) -> Floats | None:
    """CC_d of each dimension [d], signed; they add up to the average cosine. None for fewer than
    two directions.

    >>> u = np.array([[0.6, 0.8], [0.6, -0.8]])
    >>> contributions(2, u.sum(0), (u**2).sum(0)).round(2).tolist()      # 0.36 − 0.64 = their cosine
    [0.36, -0.64]
    """
    return None if tokens < 2 else (unit**2 - square) / (tokens * (tokens - 1))


def rogue(tally: Tally) -> dict[str, float | None]:
    """What the largest one, three and five contributions make of the average cosine, and how many
    make half of it.

    A share may exceed 1 where other dimensions contribute negatively. Undefined (None) where the
    average cosine is not above 1e-3: shares of nothing.
    """
    parts = contributions(
        float(tally["tokens"]), tally["unit"].cpu().numpy(), tally["square"].cpu().numpy()
    )
    empty: dict[str, float | None] = dict.fromkeys(
        ("rogue_share_1", "rogue_share_3", "rogue_share_5", "rogue_half")
    )
    if parts is None or parts.sum() <= 1e-3:
        return empty
    running = np.cumsum(np.sort(parts)[::-1]) / parts.sum()
    shares = {f"rogue_share_{k}": float(running[min(k, len(running)) - 1]) for k in (1, 3, 5)}
    return empty | shares | {"rogue_half": float(np.argmax(running >= 0.5) + 1)}


@dataclass(frozen=True)
class RogueDimension:
    """A coordinate, its signed contribution CC_d to the average cosine, and its share of it (None:
    shares of nothing).
    """

    dimension: int
    contribution: float
    share: float | None


def rogue_dimensions(tally: Tally, top: int = 5) -> list[RogueDimension]:
    """The dimensions that contribute most to the average cosine, largest first."""
    parts = contributions(
        float(tally["tokens"]), tally["unit"].cpu().numpy(), tally["square"].cpu().numpy()
    )
    if parts is None:
        return []
    total = float(parts.sum())
    order = np.argsort(-parts, kind="stable")[:top]
    return [
        RogueDimension(int(d), float(parts[d]), None if total <= 1e-3 else float(parts[d]) / total)
        for d in order
    ]


def agreement_without(rows: Floats, removed: npt.NDArray[np.int64]) -> float | None:
    """r² between the cosines of all pairs of rows with all dimensions and with the `removed` ones
    set to zero; [0, 1].

    Low: the similarity of two tokens is decided by the removed dimensions. All n(n − 1)/2 pairs;
    cost O(n²d), memory O(n²). Rows that are zero, before or after, are left out. None for fewer
    than three rows or where one of the two sets of cosines is constant.

    >>> x = np.random.default_rng(0).standard_normal((50, 8)); x[:, 0] *= 100
    >>> bool(agreement_without(x, np.array([0])) < 0.1 < 0.9 < agreement_without(x, np.array([5])))
    True
    """
    none = np.zeros(len(rows), dtype=int)
    return number(agreements(rows, {"": removed}, none, none.astype(bool))["agreement_"])


def agreements(
    rows: Floats,
    removed: Mapping[Any, npt.NDArray[np.int64]],
    blocks: npt.NDArray[np.int64],
    first: npt.NDArray[np.bool_],
) -> Cells:
    """`agreement_without` several sets of dimensions, each as `agreement_KEY`, with its 95 %
    interval over blocks of text, with and without rows at position 0 (`blocks`, `first` [n]). The
    sums over pairs of groups are taken once.
    """
    rows = np.asarray(rows, dtype=np.float64)
    cells: Cells = {}
    lengths = np.linalg.norm(rows, axis=1)
    for key, dimensions in removed.items():
        cut = rows.copy()
        cut[:, dimensions] = 0.0
        left = np.linalg.norm(cut, axis=1)
        nonzero = (lengths > 0) & (left > 0)
        groups, inverse = np.unique(
            2 * np.asarray(blocks)[nonzero] + np.asarray(first)[nonzero], return_inverse=True
        )
        full = rows[nonzero] / lengths[nonzero, None]
        part = cut[nonzero] / left[nonzero, None]
        sizes = np.bincount(inverse, minlength=len(groups))
        # torch's products, not numpy's: they obey torch.set_num_threads (see Cloud).
        members = [
            [torch.from_numpy(x[inverse == g]) for x in (full, part)] for g in range(len(groups))
        ]
        # pairs, Σa, Σb, Σa², Σb², Σab; each pair of rows once
        sums = np.zeros((len(groups), len(groups), 6))
        for i, member in enumerate(members):
            for j in range(i, len(members)):
                a, b = (x @ y.T for x, y in zip(member, members[j], strict=True))
                if i == j:
                    rows_at, columns_at = torch.triu_indices(len(a), len(a), 1)
                    a = a[rows_at, columns_at]
                    b = b[rows_at, columns_at]
                a = a.flatten()
                b = b.flatten()
                sums[i, j] = [len(a), *(float(x) for x in (a.sum(), b.sum(), a @ a, b @ b, a @ b))]
        cells |= over_blocks(f"agreement_{key}", groups, sizes, (0.0, 1.0), partial(_squared, sums))
    return cells


def _squared(sums: Floats, groups: npt.NDArray[np.bool_]) -> float | None:
    pairs, sa, sb, saa, sbb, sab = sums[np.ix_(groups, groups)].sum((0, 1))
    if pairs < 3:
        return None
    va = saa / pairs - (sa / pairs) ** 2
    vb = sbb / pairs - (sb / pairs) ** 2
    cov = sab / pairs - sa * sb / pairs**2
    return None if va < 1e-15 or vb < 1e-15 else float(np.clip(cov**2 / (va * vb), 0.0, 1.0))


MASSIVE = 1000.0
"""A coordinate's activations are massive where they are so many times the usual size (Sun et al.
2024).
"""
ROGUE = 0.1
MOST = 10
"""A coordinate is rogue where it makes at least this share of the average cosine; so many at most
are named.
"""
RULE = f"Sink tokens: longer than {FACTOR:g} times the median of their window, site by site."
LISTED = 8  # of positions and tokens of sinks


def outliers(
    statistics: SiteStatistics, cloud: Cloud, shown: Callable[[list[int]], list[str]] | None = None
) -> Cells:
    """What a site's sinks and outlying coordinates are; `cloud` is that without sinks, `shown`
    turns ids into words.

    sinks, sink_share, sink_energy: their number, their share of the tokens and of Σ‖x‖².
    sink_length: their mean length over that of the others. sink_positions, sink_tokens: [[position,
    times], ...], [[token, times], ...], the eight most frequent. massive_coordinates: where the
    sinks' root mean square is at least 1,000 times the median coordinate's of the other tokens;
    massive_ratio: the largest such ratio, of any coordinate.

    Without sinks: rogue_coordinates, each with at least a tenth of the average cosine, rogue_share,
    what they make together, and what is left with these coordinates at zero:
    average_cosine_without_rogue (the sum of the other coordinates' contributions),
    top_direction_share_without_rogue, effective_rank_without_rogue. Where there are none, these are
    those of the whole.

    Cost O(d²), and O(d³) where a coordinate of at most 256 is rogue.
    """
    sinks = [statistics.cell(cell) for cell in ("sink", "first_sink")]
    count, square, norm = (
        sum(getattr(moments, name) for moments in sinks) for name in ("count", "square", "norm")
    )
    tokens = cloud.count + count
    cells: Cells = {"sinks": int(count), "sink_share": count / tokens if tokens else 0.0}
    cells["sink_energy"] = square / (square + cloud.square_sum) if square else 0.0
    lengths = norm / count if count else None, cloud.norm_sum / cloud.count if cloud.count else None
    cells["sink_length"] = lengths[0] / lengths[1] if lengths[0] and lengths[1] else None
    cells["sink_positions"] = [
        [position, times] for position, times in statistics.sink_positions.most(LISTED)
    ]
    most = statistics.sink_tokens.most(LISTED)
    shown_tokens = (
        shown([token for token, _ in most]) if shown and most else [token for token, _ in most]
    )
    cells["sink_tokens"] = [
        [word, times] for word, (_, times) in zip(shown_tokens, most, strict=True)
    ]
    return cells | _massive(statistics, cloud, count) | _rogue(statistics, cloud)


def _massive(statistics: SiteStatistics, cloud: Cloud, count: float) -> Cells:
    none: Cells = {"massive_coordinates": [], "massive_ratio": None}
    if not count or not cloud.count:
        return none
    grams = [statistics.cell(cell).gram for cell in ("sink", "first_sink")]
    sizes = (
        torch.stack([gram.diagonal().cpu() for gram in grams if gram is not None]).sum(0).numpy()
    )
    usual = float(np.median(np.sqrt(np.diag(cloud.covariance) + cloud.mean**2)))
    if not usual > 0:
        return none
    ratios = np.sqrt(sizes / count) / usual
    order = np.argsort(-ratios, kind="stable")[:MOST]
    massive = [int(k) for k in order if ratios[k] >= MASSIVE]
    return {"massive_coordinates": massive, "massive_ratio": float(ratios.max())}


def _rogue(statistics: SiteStatistics, cloud: Cloud) -> Cells:
    names = (
        "average_cosine_without_rogue",
        "top_direction_share_without_rogue",
        "effective_rank_without_rogue",
    )
    cells: Cells = {"rogue_coordinates": [], "rogue_share": None, **dict.fromkeys(names)}
    parts = contributions(
        cloud.count - cloud.zeros, cloud.unit_sum, statistics.squared_unit.cpu().numpy()
    )
    if parts is None or not parts.sum() > 1e-3:
        return cells
    shares = parts / parts.sum()
    coordinates = [int(k) for k in np.argsort(-shares, kind="stable")[:MOST] if shares[k] >= ROGUE]
    cells |= {"rogue_coordinates": coordinates, "rogue_share": float(shares[coordinates].sum())}
    if not coordinates:
        left = top_direction_share(cloud), effective_rank(cloud)
    else:
        remaining = cloud.without(coordinates)
        left = (None, None) if remaining is None else (remaining[0], float(np.exp(remaining[1])))
    return cells | dict(
        zip(names, (float(np.delete(parts, coordinates).sum()), *left), strict=True)
    )


class RogueProbe(Probe):
    """A few coordinates that decide every similarity."""

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
                    f"Share of the average cosine that its {k} largest dimension{'s' * (k > 1)} "
                    "contribute.",
                    "Σ_top CC_d / Σ CC_d,  CC_d = ((Σû_d)² − Σû_d²)/(n(n − 1))",
                    range=(0, None),
                    undefined=NO_CONE,
                    first=True,
                    plotted=k < 5,
                )
                for k in (1, 3, 5)
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

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows = []
        for site in data.clouds:
            tally = data.own[site]
            assert isinstance(tally, DirectionTally)
            row: Cells = {"site": site, **tally_row(tally, rogue, self.fields)}
            top = rogue_dimensions(tally.total())
            states = data.sample.get(site)
            dims = {
                k: np.array([dimension.dimension for dimension in top[:k]], dtype=int)
                for k in (1, 3, 5)
            }
            enough = {
                k: d
                for k, d in dims.items()
                if states is not None and len(d) == k < states.shape[1]
            }
            row |= {f"agreement_{k}{suffix}": None for k in dims for suffix in ("", WITHOUT_FIRST)}
            if states is not None:
                row |= agreements(
                    states[:1000].numpy(), enough, data.blocks[:1000], data.first[:1000]
                )
            rows.append(row | {"dimensions": [dimension.dimension for dimension in top]})
        return rows
