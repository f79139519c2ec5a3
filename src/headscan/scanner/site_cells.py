"""From the finished statistics of a site to its row: every measure with its interval, also without
sinks.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from headscan.measures.measure import WITHOUT_FIRST, WITHOUT_SINKS, Measure, gaussian_cloud
from headscan.measures.outliers import outliers
from headscan.measures.spectrum import singular_values
from headscan.scanner.selection import choose
from headscan.statistics import Cloud, SiteStatistics
from headscan.statistics.errors import Errors
from headscan.statistics.sinks import GROUPS
from headscan.statistics.uncertainty import Cells

SUFFIXES = {"all": "", "without_first": WITHOUT_FIRST, "without_sinks": WITHOUT_SINKS}
"""The endings of the names of numbers, by the group of tokens that they are of."""


def site_cells(
    site: str,
    statistics: SiteStatistics,
    measures: Sequence[Measure] | None = None,
    shown: Callable[[list[int]], list[str]] | None = None,
    errors: Errors | None = None,
    visit: Callable[[str, Cloud], None] | None = None,
) -> tuple[Cells, Cloud]:
    """Return the fields of one site's row and the finished cloud of all its tokens.

    Each measure appears as NAME and NAME_interval, and both without position 0 of each window
    (NAME_without_first) and without sink tokens (NAME_without_sinks). A value that is not defined
    is None, and `notes` gives the reason. `effective_clusters` is the number of independent
    clusters (of the `clusters`: documents or windows) that the text is worth, for the measure with
    the least. The row also has the numbers of `outliers`: sinks and outlying coordinates.

    Args:
        measures: default: the core measures.
        shown: turns token ids into words.
        errors: of the same statistics and measures, where they are known already.
        visit: called with each group of tokens and its cloud, while the cloud is in memory; not
            with groups of the same tokens as an earlier one. `without_sinks` always comes.
    """
    chosen = list(choose(None)[0] if measures is None else measures)
    errors = errors or Errors.of(statistics, chosen)
    tokens_of = {group: statistics.occupied(group) for group in GROUPS}
    values: dict[tuple[str, ...], Cells] = {}  # by the tokens that they are of
    outlying: Cells = {}
    cloud_of_all: Cloud | None = None
    for group in reversed(GROUPS):  # one cloud at a time: each is several matrices
        tokens = tokens_of[group]
        if tokens in values:
            continue
        cloud = Cloud.of_sums(statistics.sums(group), directed=True)
        same_tokens = [number for number, other in enumerate(tokens_of.values()) if other == tokens]
        values[tokens] = _values(cloud, chosen, errors, same_tokens)
        if group == "without_sinks":
            outlying = outliers(statistics, cloud, shown)
            outlying |= over_lengths(statistics, chosen, cloud.count, values[tokens])
        if visit is not None:
            visit(group, cloud)
        if tokens == tokens_of["all"]:
            cloud_of_all = cloud

    assert cloud_of_all is not None
    errors.sums = None  # they are large
    cells: Cells = {"site": site, "tokens": cloud_of_all.count, "width": cloud_of_all.width}
    notes: list[str] = []
    for group, suffix in SUFFIXES.items():
        group_values = values[tokens_of[group]]
        cells |= _named(group_values, chosen, suffix)
        notes += _notes(group_values, chosen, suffix, errors)
    cells |= outlying
    if cloud_of_all.zeros:
        notes.append(
            f"{cloud_of_all.zeros} vectors are zero and have no direction; average_cosine leaves "
            "them out"
        )
    cells["notes"] = notes
    return cells, cloud_of_all


def _values(
    cloud: Cloud, measures: Sequence[Measure], errors: Errors, groups: Sequence[int]
) -> Cells:
    """Return the measures and singular values of a cloud, with their intervals.

    `groups`: the numbers of the groups that have the tokens of the cloud.
    """
    # The values come first: with eigenvectors, LAPACK finds eigenvalues of other last bits.
    values: Cells = {}
    for measure in measures:
        values[measure.name] = measure(cloud) if cloud.count else None
    values["singular_values"] = singular_values(cloud).tolist() if cloud.count else []
    return values | errors.cells(groups, cloud, values)


def _named(values: Cells, measures: Sequence[Measure], suffix: str) -> Cells:
    """Return the values of a group of tokens by their names in the row."""
    cells: Cells = {}
    for measure in measures:
        name = measure.name
        interval = f"{name}_interval"
        if name in values:
            cells[name + suffix] = values[name]
        if interval in values:
            cells[f"{name}{suffix}_interval"] = values[interval]
    for name in ("singular_values", "effective_clusters", "clusters"):
        cells[name + suffix] = values[name]
    return cells


def _notes(values: Cells, measures: Sequence[Measure], suffix: str, errors: Errors) -> list[str]:
    """Return the reasons of values that are not defined, and of values without an interval."""
    notes = []
    for measure in measures:
        name = measure.name
        if values[name] is None:
            notes.append(f"{name}{suffix} is not defined: {measure.words.undefined}")
        elif values[f"{name}_interval"] is None:
            notes.append(f"{name}{suffix} has no interval: {errors.reason(measure)}")
    return notes


def over_lengths(
    statistics: SiteStatistics, measures: Sequence[Measure], tokens: int, values: Cells
) -> Cells:
    """Return the core measures of the text's beginning at each doubling of its length.

    `lengths` [k] are in tokens without sinks, up to all `tokens`. NAME_without_sinks_curve [k] ends
    with the `values` of the whole text.
    """
    core = [measure for measure in measures if measure.words.core]
    if not core:
        return {}
    clouds = []
    for sums in statistics.prefixes():
        cloud = Cloud.of_sums(sums)
        if 1 < cloud.count < tokens:
            clouds.append(cloud)
    if not clouds:
        return {}
    cells: Cells = {"lengths": [*(cloud.count for cloud in clouds), tokens]}
    for measure in core:
        curve = [measure(cloud) for cloud in clouds]
        cells[f"{measure.name}{WITHOUT_SINKS}_curve"] = [*curve, values[measure.name]]
    return cells


def gaussian_cells(
    cells: Cells, measures: Sequence[Measure] | None = None, *, seed: int = 0
) -> Cells:
    """Return the Gaussian null of a site: each measure on round clouds.

    The clouds have the same count, width and mean squared norm as the site. The value is the mean
    over draws, the interval their range; there are 8 draws, or 2 beyond 1,024 dimensions.
    """
    chosen = choose(None)[0] if measures is None else measures
    count = cells["tokens"]
    width = cells["width"]
    spectrum = cells["singular_values"]
    assert isinstance(count, int)
    assert isinstance(width, int)
    mean_square = float(np.square(np.asarray(spectrum, dtype=np.float64)).sum())
    root_mean_square = mean_square**0.5
    # One set of draws of unit scale serves all sites.
    clouds = _round_clouds(count, width, seed)
    notes: list[str] = []
    null: Cells = {"null": "gaussian", "tokens": count, "width": width, "notes": notes}
    for measure in chosen:
        # Measures of length scale with the cloud; all others do not depend on its scale.
        scale = root_mean_square if measure.words.group == "norms" else 1.0
        measured = [measure(cloud) for cloud in clouds]
        values = [scale * value for value in measured if value is not None]
        if values:
            null[measure.name] = float(np.mean(values))
            null[f"{measure.name}_interval"] = [min(values), max(values)]
        else:
            null[measure.name] = None
            null[f"{measure.name}_interval"] = None
            notes.append(f"{measure.name} is not defined: {measure.words.undefined}")
    mean_spectrum = np.mean([singular_values(cloud) for cloud in clouds], axis=0)
    null["singular_values"] = (root_mean_square * mean_spectrum).tolist()
    return null


@lru_cache(maxsize=4)
def _round_clouds(count: int, width: int, seed: int) -> tuple[Cloud, ...]:
    """Return Gaussian clouds of mean squared norm 1."""
    generator = np.random.default_rng([seed, count, width])
    draws = 8 if width <= 1024 else 2
    clouds = []
    for _ in range(draws):
        clouds.append(gaussian_cloud(count, width, mean_square_norm=1.0, generator=generator))
    return tuple(clouds)
