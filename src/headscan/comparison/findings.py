"""The findings of a comparison: sentences about how similar the models are."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from headscan.comparison.kinds import (
    BEYOND_NULL,
    CLOSENESS,
    NEIGHBOURS_DIFFER,
    ONE_DIRECTION,
    PARTING,
    PARTLY_ALIGNED,
    SAME,
    UNTESTED,
    WITHIN_NULL,
)
from headscan.comparison.nulls import WINDOWS
from headscan.comparison.result import Alignment, SimilarityCell
from headscan.run import Finding, Level

EQUAL = 1e-6
"""A CKA that is so close to 1 is 1: float32 sums know no less."""

NEIGHBOURS_AGREE = 0.99
"""From this share of mutual neighbours on two models have the same: rounding to float16 exchanges
fewer than one in a hundred.
"""

CLOSE = 0.9
"""Above this CKA and this share of mutual neighbours at every site models are close: fine."""

STEP = 0.1
"""A fall of CKA by more than this from one layer to the next is mentioned."""

DOMINATED = 0.9
"""Above this share of a site's variance on one direction CKA is about that direction."""

DRAWS = 19
"""Fewer draws give no p of 0.05."""

ALPHA = 0.05

PART = 0.5
"""Where less than this share of a model's tokens was compared, a finding says so."""


def findings(
    cells: Sequence[SimilarityCell], top_shares: Mapping[str, float], alignment: Sequence[Alignment]
) -> list[Finding]:
    """Return the findings of a comparison, the most important first.

    `top_shares`: the share of each site's variance on its strongest direction, by "MODEL/SITE".
    """
    listed: list[Finding] = []
    for models in dict.fromkeys((cell.model_a, cell.model_b) for cell in cells):
        of_pair = [cell for cell in cells if (cell.model_a, cell.model_b) == models]
        listed += _closeness(*models, of_pair)
        listed += _beyond_null(*models, of_pair)
    dominated = {name: share for name, share in top_shares.items() if share > DOMINATED}
    if dominated:
        listed.append(_one_direction(dominated))
    for row in alignment:
        if row.compared < PART * row.tokens:
            listed.append(_partly_aligned(row))
    return listed


def _one_direction(shares: Mapping[str, float]) -> Finding:
    name, share = max(shares.items(), key=lambda item: item[1])
    sites = f"{len(shares)} sites" if len(shares) > 1 else "1 site"
    return ONE_DIRECTION.finding(
        "notice",
        (
            f"At {sites} one direction holds more than 90 % of the variance "
            f"({share:.1%} at {name}): there CKA and Procrustes measure that direction only; SVCCA "
            "and neighbours do not."
        ),
        value=share,
    )


def _partly_aligned(row: Alignment) -> Finding:
    return PARTLY_ALIGNED.finding(
        "notice",
        (
            f"Only {row.compared:,} of the {row.tokens:,} tokens of {row.model} end where those of "
            "the others do: the numbers are of these."
        ),
        model=row.model,
    )


def _value(cell: SimilarityCell) -> float:
    return cell.value or 0.0


def _fall(pair: tuple[SimilarityCell, SimilarityCell]) -> float:
    """Return by how much the value falls from the first cell to the second."""
    before, after = pair
    return _value(before) - _value(after)


def _closeness(a: str, b: str, cells: Sequence[SimilarityCell]) -> Iterator[Finding]:
    """Yield the finding about CKA between sites of the same name."""
    same_sites = _of_same_sites(cells, "cka")
    if not same_sites:
        return
    least = min(same_sites, key=_value)
    cka = _value(least)
    if cka > 1 - EQUAL:
        yield _up_to_rotation(a, b, cka, _of_same_sites(cells, "mutual_knn"))
        return
    steepest = max(pairwise(same_sites), key=_fall, default=None)
    if steepest is not None and _fall(steepest) > STEP:
        before, after = steepest
        yield PARTING.finding(
            "notice",
            (
                f"{a} and {b} differ from {after.site_b} on: CKA falls from {before.value:.2f} at "
                f"{before.site_b} to {after.value:.2f}."
            ),
            site=after.site_b,
            value=after.value,
        )
        return
    highest = max(map(_value, same_sites))
    spread = f"{cka:.3f} to {highest:.3f}, " if highest - cka >= 0.001 else f"{cka:.3f}, "
    sentence = f"CKA between matching layers of {a} and {b}: {spread}lowest at {least.site_b}."
    # CKA ignores a shift, which changes the neighbours by cosine.
    fewest = min(_of_same_sites(cells, "mutual_knn"), key=_value, default=None)
    apart = fewest is not None and _value(fewest) <= CLOSE
    if fewest is not None and apart and cka > CLOSE:
        changed = f"{100 * (1 - _value(fewest)):.0f} %"
        sentence += f" But {changed} of the cosine neighbours differ at {fewest.site_b}."
    level: Level = "fine" if cka > CLOSE and not apart else "notice"
    yield CLOSENESS.finding(level, sentence, site=least.site_b, value=cka)


def _of_same_sites(cells: Sequence[SimilarityCell], measure: str) -> list[SimilarityCell]:
    """Return the cells of a measure between sites of the same name that have a value."""
    same_sites = []
    for cell in cells:
        if cell.measure == measure and cell.site_a == cell.site_b and cell.value is not None:
            same_sites.append(cell)
    return same_sites


def _up_to_rotation(a: str, b: str, cka: float, neighbours: Sequence[SimilarityCell]) -> Finding:
    """Return the finding for a CKA of 1, which ignores rotation, scale and shift.

    A shift changes cosine neighbours.
    """
    if not neighbours:
        return CLOSENESS.finding(
            "notice",
            (
                f"{a} and {b} are equal up to rotation, scale and shift at every site: CKA is 1 to "
                "six digits. Their neighbours were not compared: add mutual_knn to --measures."
            ),
            value=cka,
        )
    least = min(neighbours, key=_value)
    agreement = _value(least)
    if agreement >= NEIGHBOURS_AGREE:
        return SAME.finding(
            "fine",
            (
                f"{a} and {b} are the same at every site: CKA is 1 to six digits, and cosine "
                "neighbours agree."
            ),
            value=cka,
        )
    changed = f"{100 * (1 - agreement):.0f} %"
    return NEIGHBOURS_DIFFER.finding(
        "notice",
        (
            f"{a} and {b} are equal up to rotation, scale and shift; {changed} of the cosine "
            "neighbours differ: re-index. CKA is 1 to six digits at every site, and mutual "
            f"neighbours are {agreement:.3f} at {least.site_b}."
        ),
        site=least.site_b,
        value=agreement,
    )


def _beyond_null(a: str, b: str, cells: Sequence[SimilarityCell]) -> Iterator[Finding]:
    """Yield the finding about the first null of the cells."""
    tests = [cell.tests[0] for cell in cells if cell.tests]
    if not tests:
        return
    null = tests[0].null
    draws = max(test.draws for test in tests)
    if draws < DRAWS:
        yield UNTESTED.finding(
            "notice",
            (
                f"The text is too short to test the similarity of {a} and {b} against chance "
                f"({null}): a p of 0.05 needs {DRAWS} draws of at least {WINDOWS} windows."
            ),
            value=draws,
        )
        return
    p_values = [cell.p_adjusted for cell in cells if cell.p_adjusted is not None]
    count = len(p_values)
    within = sum(p > ALPHA for p in p_values)
    share = within / count
    if not within:
        yield BEYOND_NULL.finding(
            "fine",
            (
                f"All {count} layer pairs of {a} and {b} are more similar than chance ({null} "
                f"test, adjusted p ≤ {ALPHA})."
            ),
            value=share,
        )
        return
    yield WITHIN_NULL.finding(
        "alarm" if share > 0.5 else "notice",
        (
            f"{within} of {count} layer pairs of {a} and {b} are not more similar than chance "
            f"({null} test, adjusted p > {ALPHA})."
        ),
        value=share,
    )
