"""Differences between sites, models and checkpoints on the same text, with paired intervals.

Two sites that read the same documents err together: each document's influences are subtracted
before their spread is taken, so an interval of a difference is as wide as what the two do not
share.
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
    """`measure` at `site_a` of `model_a` less that at `site_b` of `model_b`, with its 95 %
    interval.

    The interval is None where the two did not read the same documents, or one has none itself.
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
    """A site's numbers and their errors. `null` where the model's weights are random."""

    model: str
    site: str
    cells: Cells
    errors: Errors
    null: bool = False

    @property
    def name(self) -> str:
        return f"{self.model}, random weights" if self.null else self.model


def differences(found: Sequence[Estimates], suffixes: Sequence[str]) -> list[Difference]:
    """The differences of all measures between: neighbouring sites of a model, its last site and its
    first; each site and the same of its random twin; each site and the same of the model before it,
    and of the last model and the first.

    `suffixes` are the treatments' in the names of numbers: differences are of all tokens, and of
    the treatment that comes last. All pairs of thirty sites would be 435 tables; any other pair can
    be made of the same influences by asking for the two sites (`sites=`).
    """
    treatments = dict.fromkeys((0, len(suffixes) - 1))
    return [
        made
        for a, b in _pairs(found)
        for group in treatments
        for j, measure in enumerate(a.errors.measures)
        for made in _difference(a, b, group, j, measure.name + suffixes[group])
    ]


def _pairs(found: Sequence[Estimates]) -> Iterator[tuple[Estimates, Estimates]]:
    models = [
        list(sites)
        for _, sites in groupby((one for one in found if not one.null), key=lambda one: one.model)
    ]
    twins = {(one.model, one.site): one for one in found if one.null}
    for sites in models:
        yield from ((b, a) for a, b in _consecutive(sites))
        yield from (
            (one, twins[one.model, one.site]) for one in sites if (one.model, one.site) in twins
        )
    for earlier, later in _consecutive(models):
        same = {one.site: one for one in earlier}
        yield from ((one, same[one.site]) for one in later if one.site in same)


def _consecutive(items: Sequence[T]) -> list[tuple[T, T]]:
    """Neighbours, and the first with the last."""
    found = list(pairwise(items))
    return [*found, (items[0], items[-1])] if len(items) > 2 else found


def _difference(a: Estimates, b: Estimates, group: int, j: int, name: str) -> Iterator[Difference]:
    one = number(a.cells.get(name))
    other = number(b.cells.get(name))
    if one is None or other is None:
        return
    lengths = sorted(number(found.cells.get("tokens")) or 0.0 for found in (a, b))
    if a.errors.measures[j].spectral and lengths[1] > (1 + SAME_LENGTH) * lengths[0]:
        return  # a spectral number grows with the length of the text
    interval = None
    if (error := paired_error(a.errors, b.errors, group, j)) is not None:
        ends = [found.errors.measures[j].range for found in (a, b)]
        interval = list(error.interval(one - other, bounds=difference_ends(*ends)))
    yield Difference(
        site_a=a.site,
        site_b=b.site,
        model_a=a.name,
        model_b=b.name,
        measure=name,
        difference=one - other,
        interval=interval,
    )
