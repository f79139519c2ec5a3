"""From finished statistics to the rows of a result: every measure of every site, both ways, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from headscan.geometry.choose import choose
from headscan.geometry.explained import WITHOUT, Cells
from headscan.geometry.interval import Jackknife
from headscan.geometry.measure import Measure
from headscan.geometry.null import gaussian_cloud
from headscan.geometry.spectrum import singular_values
from headscan.statistics import Blocks, Cloud, SiteStatistics, Sums

__all__ = ["gaussian_cells", "site_cells"]


def site_cells(site: str, statistics: SiteStatistics, measures: Sequence[Measure] | None = None) -> tuple[Cells, Cloud]:
    """The fields of one site (see the result's documentation) and the finished cloud of all its positions.

    Each measure appears as NAME, NAME_interval, NAME_without_first and NAME_without_first_interval; a value that is not
    defined is None, and `notes` says why.
    """
    chosen = choose(None)[0] if measures is None else measures
    notes: list[str] = []
    first = statistics.first
    cloud = Cloud.of_sums(statistics.all)
    cells: Cells = {"site": site, "tokens": cloud.count, "width": cloud.width}
    variants = [("", cloud, _jackknives(statistics, without_first=False))]
    if first.count:
        rest = Cloud.of_sums(statistics.all.without(first))
        variants.append((WITHOUT, rest, _jackknives(statistics, without_first=True)))
    else:
        variants.append((WITHOUT, *variants[0][1:]))
    for suffix, points, (fine, coarse) in variants:
        intervals: dict[str, tuple[float, float] | None] = {}
        for blocks, spectral in ((fine, False), (coarse, True)):
            asked = [measure for measure in chosen if measure.words.spectral == spectral]
            found = blocks.intervals(asked, bounds=[measure.words.range for measure in asked])
            intervals |= {measure.name: interval for measure, interval in zip(asked, found, strict=True)}
        for measure in chosen:
            value, interval = measure(points) if points.count else None, intervals[measure.name]
            cells[measure.name + suffix] = value
            cells[f"{measure.name}{suffix}_interval"] = None if interval is None else list(interval)
            if value is None:
                notes.append(f"{measure.name}{suffix} is not defined: {measure.words.undefined}")
            elif interval is None:
                blocks = coarse if measure.words.spectral else fine
                notes.append(
                    f"{measure.name}{suffix} has no interval: three blocks of text are needed, there are {blocks.blocks}"
                )
        cells[f"singular_values{suffix}"] = singular_values(points).tolist() if points.count else []
    if cloud.zeros:
        notes.append(f"{cloud.zeros} vectors are zero and have no direction; average_cosine leaves them out")
    cells["notes"] = notes
    return cells, cloud


def _jackknives(statistics: SiteStatistics, *, without_first: bool) -> tuple[Jackknife, Jackknife]:
    """Over the fine blocks (no second moments) and over the coarse ones."""

    def parts(blocks: dict[str, Blocks[Sums]]) -> list[Sums]:
        if not without_first:
            return blocks["all"].parts()
        first = dict(blocks["first"].items())
        return [part.without(first[index]) if index in first else part for index, part in blocks["all"].items()]

    return Jackknife(parts(statistics.fine), gram=False), Jackknife(parts(statistics.coarse))


def gaussian_cells(cells: Cells, measures: Sequence[Measure] | None = None, *, seed: int = 0) -> Cells:
    """The Gaussian null of a site: each measure on round clouds of the same count, width and mean squared norm.

    The value is the mean over draws, the interval their range; draws are 8, or 2 beyond 1,024 dimensions.
    """
    chosen = choose(None)[0] if measures is None else measures
    count, width, spectrum = cells["tokens"], cells["width"], cells["singular_values"]
    assert isinstance(count, int)
    assert isinstance(width, int)
    mean_square = float(np.square(np.asarray(spectrum, dtype=np.float64)).sum())
    notes: list[str] = []
    null: Cells = {"null": "gaussian", "tokens": count, "width": width, "notes": notes}
    clouds = _round_clouds(count, width, seed)
    for measure in chosen:
        # Measures of length scale with the cloud; all others do not see the scale. One set of draws serves all sites.
        scale = mean_square**0.5 if measure.words.group == "norms" else 1.0
        values = [scale * value for value in map(measure, clouds) if value is not None]
        null[measure.name] = float(np.mean(values)) if values else None
        null[f"{measure.name}_interval"] = [min(values), max(values)] if values else None
        if not values:
            notes.append(f"{measure.name} is not defined: {measure.words.undefined}")
    null["singular_values"] = (mean_square**0.5 * np.mean([singular_values(c) for c in clouds], axis=0)).tolist()
    return null


@lru_cache(maxsize=4)
def _round_clouds(count: int, width: int, seed: int) -> tuple[Cloud, ...]:
    generator = np.random.default_rng([seed, count, width])
    draws = 8 if width <= 1024 else 2
    return tuple(gaussian_cloud(count, width, mean_square_norm=1.0, generator=generator) for _ in range(draws))
