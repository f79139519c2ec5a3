"""From finished statistics to the rows of a result: every measure of every site, both ways, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from headscan.geometry.choose import choose
from headscan.geometry.errors import Errors
from headscan.geometry.explained import WITHOUT, Cells
from headscan.geometry.measure import Measure
from headscan.geometry.null import gaussian_cloud
from headscan.geometry.spectrum import singular_values
from headscan.statistics import Cloud, SiteStatistics

__all__ = ["gaussian_cells", "site_cells"]


def site_cells(site: str, statistics: SiteStatistics, measures: Sequence[Measure] | None = None) -> tuple[Cells, Cloud]:
    """The fields of one site (see the result's documentation) and the finished cloud of all its positions.

    Each measure appears as NAME, NAME_interval, NAME_without_first and NAME_without_first_interval; a value that is not
    defined is None, and `notes` says why. Beside them stand NAME_bias, where the value of a finite text is known to lie to
    one side, and `effective_clusters`: how many independent ones of its
    `clusters` (documents or windows) the text is worth, for the measure it says least of.
    """
    chosen = list(choose(None)[0] if measures is None else measures)
    notes: list[str] = []
    cloud = Cloud.of_sums(statistics.all)
    cells: Cells = {"site": site, "tokens": cloud.count, "width": cloud.width}
    without = statistics.first.count > 0
    variants = [("", cloud)] + ([(WITHOUT, Cloud.of_sums(statistics.without_first))] if without else [])
    for suffix, points in variants:
        for measure in chosen:
            cells[measure.name + suffix] = measure(points) if points.count else None
        cells[f"singular_values{suffix}"] = singular_values(points).tolist() if points.count else []
    # The values come first: an interval may need the eigenvectors, with which LAPACK finds eigenvalues of other last bits.
    errors = Errors.of(statistics, chosen)
    for group, (suffix, points) in enumerate(variants):
        cells |= errors.cells(suffix, group, points, cells)
        for measure in chosen:
            if cells[measure.name + suffix] is None:
                notes.append(f"{measure.name}{suffix} is not defined: {measure.words.undefined}")
            elif cells[f"{measure.name}{suffix}_interval"] is None:
                notes.append(f"{measure.name}{suffix} has no interval: {errors.reason(measure)}")
    if not without:  # nothing is left out: the same again
        cells |= {_without(name): cell for name, cell in cells.items() if name not in ("site", "tokens", "width")}
    cells = _in_order(cells, [measure.name for measure in chosen])
    if cloud.zeros:
        notes.append(f"{cloud.zeros} vectors are zero and have no direction; average_cosine leaves them out")
    cells["notes"] = notes
    return cells, cloud


def _in_order(cells: Cells, names: Sequence[str]) -> Cells:
    """Each measure with its interval and its bias, then the same without position 0."""
    order = ["site", "tokens", "width"]
    for suffix in ("", WITHOUT):
        order += [f"{name}{suffix}{end}" for name in names for end in ("", "_interval", "_bias")]
        order += [f"{name}{suffix}" for name in ("singular_values", "effective_clusters", "clusters")]
    return {name: cells[name] for name in order if name in cells}


def _without(name: str) -> str:
    """The name of the same field without position 0."""
    for end in ("_interval", "_bias"):
        if name.endswith(end):
            return name.removesuffix(end) + WITHOUT + end
    return name + WITHOUT


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
