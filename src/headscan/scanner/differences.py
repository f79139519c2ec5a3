"""Differences between sites, models and checkpoints on the same text, with paired intervals.

Two sites that read the same documents have common errors: each document's influences are subtracted
before their spread is taken, so the interval of a difference is as wide as the errors that the two
do not share.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TypeVar

from headscan.statistics.errors import Errors, paired_error
from headscan.statistics.uncertainty import Cells, difference_ends, number

T = TypeVar("T")

SAME_LENGTH = 0.05
"""Texts whose numbers of tokens differ by no more than this share are of equal length."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """`measure` at `site_a` of `model_a` less that at `site_b` of `model_b`.

    The 95 % interval is None where the two did not read the same documents, or one has none itself.
    Spectral measures of texts of different lengths have no difference.
    """

    site_a: str
    site_b: str
    model_a: str
    model_b: str
    measure: str
    difference: float
    interval: list[float] | None


@dataclass(frozen=True)
class Estimates:
    """The numbers of a site and their errors. `null`: the model's weights are random."""

    model: str
    site: str
    cells: Cells
    errors: Errors
    null: bool = False

    @property
    def name(self) -> str:
        """Return the name of the model in differences."""
        return f"{self.model}, random weights" if self.null else self.model


def differences(estimates: Sequence[Estimates], suffixes: Sequence[str]) -> list[Difference]:
    """Return the differences of all measures between pairs of sites.

    The pairs are: neighbouring sites of a model, its last site and its first; each site and the
    same with random weights; each site and the same of the model before it, and of the last model
    and the first. All pairs of thirty sites would be 435 tables; any other pair can be compared by
    asking for the two sites (`sites=`).

    `suffixes`: the endings of the groups of tokens in the names of numbers. Differences are of all
    tokens, and of the group that comes last.
    """
    groups = dict.fromkeys((0, len(suffixes) - 1))
    result = []
    for a, b in _pairs(estimates):
        for group in groups:
            for measure, words in enumerate(a.errors.measures):
                name = words.name + suffixes[group]
                difference = _difference(a, b, group, measure, name)
                if difference is not None:
                    result.append(difference)
    return result


def _pairs(estimates: Sequence[Estimates]) -> Iterator[tuple[Estimates, Estimates]]:
    """Yield the pairs of sites; the difference is of the first less the second."""
    trained = [estimate for estimate in estimates if not estimate.null]
    random = {(estimate.model, estimate.site): estimate for estimate in estimates if estimate.null}
    models = [list(sites) for _, sites in groupby(trained, key=lambda estimate: estimate.model)]
    for sites in models:
        for earlier, later in _consecutive(sites):
            yield later, earlier
        for estimate in sites:
            key = (estimate.model, estimate.site)
            if key in random:
                yield estimate, random[key]
    for previous_model, model in _consecutive(models):
        by_site = {estimate.site: estimate for estimate in previous_model}
        for estimate in model:
            if estimate.site in by_site:
                yield estimate, by_site[estimate.site]


def _consecutive(items: Sequence[T]) -> list[tuple[T, T]]:
    """Return neighbouring items, and the first with the last."""
    pairs = list(pairwise(items))
    if len(items) > 2:
        pairs.append((items[0], items[-1]))
    return pairs


def _difference(
    a: Estimates, b: Estimates, group: int, measure: int, name: str
) -> Difference | None:
    """Return the difference of one measure, by its number, of one group of tokens.

    It is None where one of the two is not defined, and for spectral numbers, which grow with the
    length of the text, of texts of different lengths.
    """
    value_a = number(a.cells.get(name))
    value_b = number(b.cells.get(name))
    if value_a is None or value_b is None:
        return None
    measure_a = a.errors.measures[measure]
    measure_b = b.errors.measures[measure]
    shorter, longer = sorted(number(site.cells.get("tokens")) or 0.0 for site in (a, b))
    if measure_a.spectral and longer > (1 + SAME_LENGTH) * shorter:
        return None
    interval = None
    error = paired_error(a.errors, b.errors, group, measure)
    if error is not None:
        bounds = difference_ends(measure_a.range, measure_b.range)
        interval = list(error.interval(value_a - value_b, bounds=bounds))
    return Difference(
        site_a=a.site,
        site_b=b.site,
        model_a=a.name,
        model_b=b.name,
        measure=name,
        difference=value_a - value_b,
        interval=interval,
    )
