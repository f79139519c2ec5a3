"""What stands out at a site: sink tokens, the coordinates that make them, and coordinates that make the cone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from headscan.geometry.explained import Cells
from headscan.geometry.measures.effective_rank import effective_rank
from headscan.geometry.measures.top_direction_share import top_direction_share
from headscan.geometry.rogue import contributions
from headscan.statistics import Cloud, SiteStatistics
from headscan.statistics.sinks import FACTOR

__all__ = ["MASSIVE", "ROGUE", "RULE", "outliers"]

MASSIVE = 1000.0
"""A coordinate's activations are massive where they are so many times the usual size (Sun et al. 2024)."""
ROGUE, MOST = 0.1, 10
"""A coordinate is rogue where it makes at least this share of the average cosine; so many at most are named."""
RULE = f"Sink tokens: longer than {FACTOR:g} times the median of their window, site by site."
LISTED = 8  # of positions and tokens of sinks


def outliers(statistics: SiteStatistics, cloud: Cloud, shown: Callable[[list[int]], list[str]] | None = None) -> Cells:
    """What a site's sinks and outlying coordinates are; `cloud` is that without sinks, `shown` turns ids into words.

    sinks, sink_share, sink_energy: their number, their share of the tokens and of Σ‖x‖². sink_length: their mean length
    over that of the others. sink_positions, sink_tokens: [[position, times], ...], [[token, times], ...], the eight most
    frequent. massive_coordinates: where the sinks' root mean square is at least 1,000 times the median coordinate's of the
    other tokens; massive_ratio: the largest such ratio, of any coordinate.

    Without sinks: rogue_coordinates, each with at least a tenth of the average cosine, rogue_share, what they make
    together, and what is left with these coordinates at zero: average_cosine_without_rogue (the sum of the other
    coordinates' contributions), top_direction_share_without_rogue, effective_rank_without_rogue. Where there are none,
    these are those of the whole.

    Cost O(d²), and O(d³) where a coordinate of at most 256 is rogue.
    """
    sinks = [statistics.cells[cell] for cell in ("sink", "first_sink")]
    count, square, norm = (sum(getattr(one, name) for one in sinks) for name in ("count", "square", "norm"))
    tokens = cloud.count + count
    cells: Cells = {"sinks": int(count), "sink_share": count / tokens if tokens else 0.0}
    cells["sink_energy"] = square / (square + cloud.square_sum) if square else 0.0
    lengths = norm / count if count else None, cloud.norm_sum / cloud.count if cloud.count else None
    cells["sink_length"] = lengths[0] / lengths[1] if lengths[0] and lengths[1] else None
    cells["sink_positions"] = [[position, times] for position, times in statistics.sink_positions.most(LISTED)]
    most = statistics.sink_tokens.most(LISTED)
    words = shown([token for token, _ in most]) if shown and most else [token for token, _ in most]
    cells["sink_tokens"] = [[word, times] for word, (_, times) in zip(words, most, strict=True)]
    return cells | _massive(statistics, cloud, count) | _rogue(statistics, cloud)


def _massive(statistics: SiteStatistics, cloud: Cloud, count: float) -> Cells:
    if not count or not cloud.count:
        return {"massive_coordinates": [], "massive_ratio": None}
    grams = [statistics.cells[cell].gram for cell in ("sink", "first_sink")]
    sizes = torch.stack([gram.diagonal().cpu() for gram in grams if gram is not None]).sum(0).numpy()
    usual = float(np.median(np.sqrt(np.diag(cloud.covariance) + cloud.mean**2)))
    if not usual > 0:
        return {"massive_coordinates": [], "massive_ratio": None}
    ratios = np.sqrt(sizes / count) / usual
    order = np.argsort(-ratios, kind="stable")[:MOST]
    return {
        "massive_coordinates": [int(k) for k in order if ratios[k] >= MASSIVE],
        "massive_ratio": float(ratios.max()),
    }


def _rogue(statistics: SiteStatistics, cloud: Cloud) -> Cells:
    names = ("average_cosine_without_rogue", "top_direction_share_without_rogue", "effective_rank_without_rogue")
    cells: Cells = {"rogue_coordinates": [], "rogue_share": None, **dict.fromkeys(names)}
    squared = (statistics.squared_unit["ordinary"] + statistics.squared_unit["first"]).cpu().numpy()
    parts = contributions(cloud.count - cloud.zeros, cloud.unit_sum, squared)
    if parts is None or not parts.sum() > 1e-3:
        return cells
    shares = parts / parts.sum()
    found = [int(k) for k in np.argsort(-shares, kind="stable")[:MOST] if shares[k] >= ROGUE]
    cells |= {"rogue_coordinates": found, "rogue_share": float(shares[found].sum())}
    if not found:
        left = top_direction_share(cloud), effective_rank(cloud)
    else:
        rest = cloud.without(found)
        left = (None, None) if rest is None else (rest[0], float(np.exp(rest[1])))
    return cells | dict(zip(names, (float(np.delete(parts, found).sum()), *left), strict=True))
