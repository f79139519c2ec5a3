"""From finished statistics to the rows of a result: every measure of every site, with its interval, also without sinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from headscan.geometry.choose import choose
from headscan.geometry.errors import Errors
from headscan.geometry.explained import WITHOUT, WITHOUT_SINKS, Cells
from headscan.geometry.measure import Measure
from headscan.geometry.null import gaussian_cloud
from headscan.geometry.outliers import outliers
from headscan.geometry.spectrum import singular_values
from headscan.statistics import Cloud, SiteStatistics
from headscan.statistics.sinks import GROUPS

__all__ = ["gaussian_cells", "site_cells"]

SUFFIXES = {"all": "", "without_first": WITHOUT, "without_sinks": WITHOUT_SINKS}
"""What the names of numbers end in, by the group of tokens that they are of."""


def site_cells(
    site: str, statistics: SiteStatistics, measures: Sequence[Measure] | None = None,
    shown: Callable[[list[int]], list[str]] | None = None, errors: Errors | None = None,
    look: Callable[[str, Cloud], None] | None = None,
) -> tuple[Cells, Cloud]:  # fmt: skip
    """The fields of one site (see the result's documentation) and the finished cloud of all its positions.

    Each measure appears as NAME and NAME_interval, and both without position 0 of each window (NAME_without_first) and
    without sink tokens (NAME_without_sinks); a value that is not defined is None, and `notes` says why. Beside them stand
    NAME_bias, where the value of a finite text is known to lie to one side, `effective_clusters`: how many independent ones
    of its `clusters` (documents or windows) the text is worth, for the measure it says least of, and what `outliers` says
    of sinks and coordinates (`shown` turns token ids into words). `errors` are those of the same statistics and measures,
    where they are known already. `look` is shown the cloud of each group of tokens while it is there (not of groups with the
    same tokens as one before; `without_sinks` always).
    """
    chosen = list(choose(None)[0] if measures is None else measures)
    errors = errors or Errors.of(statistics, chosen)
    values: dict[tuple[str, ...], Cells] = {}
    outlying: Cells = {}
    whole: Cloud | None = None
    for group, name in reversed(list(enumerate(GROUPS))):  # one cloud at a time: each is several matrices
        occupied = statistics.occupied(name)
        if occupied in values and (whole is not None or group):
            continue
        points = Cloud.of_sums(statistics.sums(name))
        if occupied not in values:
            # The values come first: with eigenvectors, LAPACK finds eigenvalues of other last bits.
            own: Cells = {measure.name: measure(points) if points.count else None for measure in chosen}
            own["singular_values"] = singular_values(points).tolist() if points.count else []
            values[occupied] = own | errors.cells("", group, points, own)
        if name == "without_sinks":
            outlying = outliers(statistics, points, shown)
        if look is not None:
            look(name, points)
        if occupied == statistics.occupied("all"):
            whole = points
    assert whole is not None
    cells: Cells = {"site": site, "tokens": whole.count, "width": whole.width}
    notes: list[str] = []
    for name, suffix in SUFFIXES.items():
        own = values[statistics.occupied(name)]
        for measure in chosen:
            for end in ("", "_interval", "_bias"):
                if measure.name + end in own:
                    cells[f"{measure.name}{suffix}{end}"] = own[measure.name + end]
            if own[measure.name] is None:
                notes.append(f"{measure.name}{suffix} is not defined: {measure.words.undefined}")
            elif own[f"{measure.name}_interval"] is None:
                notes.append(f"{measure.name}{suffix} has no interval: {errors.reason(measure)}")
        for field in ("singular_values", "effective_clusters", "clusters"):
            cells[field + suffix] = own[field]
    cells |= outlying
    if whole.zeros:
        notes.append(f"{whole.zeros} vectors are zero and have no direction; average_cosine leaves them out")
    cells["notes"] = notes
    return cells, whole


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
