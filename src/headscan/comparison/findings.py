"""The findings of a comparison: sentences about how similar the models are."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from headscan.comparison.nulls import WINDOWS
from headscan.comparison.result import Alignment, SimilarityCell
from headscan.run import Finding

EQUAL = 1e-6  # from 1: float32 sums know no less
NEIGHBOURS_AGREE = (
    0.99  # mutual neighbours: rounding to float16 exchanges fewer than one in a hundred
)
STEP = 0.1  # a fall of CKA from one layer to the next that is worth a sentence
SPIKE = (
    0.9  # share of a site's variance on one direction from which on CKA speaks of that direction
)
DRAWS = 19  # fewer give no p of .05
PART = 0.5  # of a model's tokens compared, below which a reader must know


def findings(
    cells: Sequence[SimilarityCell], top_shares: Mapping[str, float], alignment: Sequence[Alignment]
) -> list[Finding]:
    """Sentences, the most telling first."""
    found: list[Finding] = []
    for a, b in dict.fromkeys((cell.model_a, cell.model_b) for cell in cells):
        own = [cell for cell in cells if (cell.model_a, cell.model_b) == (a, b)]
        found += [*_equal(a, b, own), *_within(a, b, own)]
    if high := {name: share for name, share in top_shares.items() if share > SPIKE}:
        name, share = max(high.items(), key=lambda one: one[1])
        text = (
            f"At {len(high)} sites one direction holds more than 90 % of the variance "
            f"({share:.1%} at {name}): there CKA and "
        )
        text += "Procrustes measure that direction only; SVCCA and neighbours do not."
        found.append(Finding(code="ONE-DIRECTION", level="notice", sentence=text, value=share))
    for row in alignment:
        if row.compared < PART * row.tokens:
            text = (
                f"Only {row.compared:,} of the {row.tokens:,} tokens of {row.model} end where "
                "those of the others do"
            )
            text += ": the numbers are of these."
            found.append(
                Finding(code="PARTLY-ALIGNED", level="notice", sentence=text, model=row.model)
            )
    return found


def _equal(a: str, b: str, cells: Sequence[SimilarityCell]) -> Iterator[Finding]:
    own = _of_same_sites(cells, "cka")
    if not own:
        return
    least = min(own, key=lambda cell: cell.value or 0.0)
    value = least.value or 0.0
    if value > 1 - EQUAL:
        yield _up_to_rotation(a, b, value, _of_same_sites(cells, "mutual_knn"))
        return
    falls = [
        (one, two) for one, two in pairwise(own) if (one.value or 0.0) - (two.value or 0.0) > STEP
    ]
    if falls:
        one, two = max(falls, key=lambda pair: (pair[0].value or 0.0) - (pair[1].value or 0.0))
        text = (
            f"{a} and {b} differ from {two.site_b} on: CKA falls from {one.value:.2f} at "
            f"{one.site_b} to {two.value:.2f}."
        )
        yield Finding(
            code="PARTING", level="notice", sentence=text, site=two.site_b, value=two.value
        )
    else:
        text = (
            f"Site against the same site, CKA of {a} and {b} is {value:.3f} or more; least at "
            f"{least.site_b}."
        )
        level: Literal["good", "notice"] = "good" if value > 0.9 else "notice"
        yield Finding(code="CLOSENESS", level=level, sentence=text, site=least.site_b, value=value)


def _of_same_sites(cells: Sequence[SimilarityCell], measure: str) -> list[SimilarityCell]:
    """Return the cells of a measure that compare a site with the site of the same name and have a
    value.
    """
    return [
        cell
        for cell in cells
        if cell.measure == measure and cell.site_a == cell.site_b and cell.value is not None
    ]


def _up_to_rotation(a: str, b: str, cka: float, neighbours: Sequence[SimilarityCell]) -> Finding:
    """Return the finding for a CKA of 1, which ignores rotation, scale and shift; a shift changes
    cosine neighbours.
    """
    if not neighbours:
        text = (
            f"{a} and {b} are equal up to rotation, scale and shift at every site: CKA is 1 to "
            "six digits. Their neighbours were "
        )
        text += "not compared: add mutual_knn to --measures."
        return Finding(code="CLOSENESS", level="good", sentence=text, value=cka)
    least = min(neighbours, key=lambda cell: cell.value or 0.0)
    agreement = least.value or 0.0
    if agreement >= NEIGHBOURS_AGREE:
        text = (
            f"{a} and {b} are the same at every site: CKA is 1 to six digits, and cosine "
            "neighbours agree."
        )
        return Finding(code="SAME", level="good", sentence=text, value=cka)
    changed = f"{100 * (1 - agreement):.0f} %"
    text = (
        f"{a} and {b} are equal up to rotation, scale and shift; {changed} of the cosine "
        "neighbours differ: re-index. "
    )
    text += (
        f"CKA is 1 to six digits at every site, and mutual neighbours are {agreement:.3f} at "
        f"{least.site_b}."
    )
    return Finding(
        code="NEIGHBOURS-DIFFER", level="notice", sentence=text, site=least.site_b, value=agreement
    )


def _within(a: str, b: str, cells: Sequence[SimilarityCell]) -> Iterator[Finding]:
    tests = [cell.tests[0] for cell in cells if cell.tests]
    if not tests:
        return
    null = tests[0].null
    draws = max(test.draws for test in tests)
    if draws < DRAWS:
        text = (
            f"Whether {a} and {b} are more alike than the null ({null}) makes them cannot be "
            f"told: a p of .05 needs {DRAWS} "
        )
        text += f"draws, of at least {WINDOWS} windows of text."
        yield Finding(code="UNTESTED", level="notice", sentence=text, value=draws)
        return
    known = [cell for cell in cells if cell.p_adjusted is not None]
    inside = [cell for cell in known if (cell.p_adjusted or 0.0) > 0.05]
    share = len(inside) / len(known)
    count = len(known)
    if not inside:
        text = (
            f"All {count} cells of {a} and {b} are more alike than the null ({null}) makes them "
            "(adjusted p ≤ .05)."
        )
        yield Finding(code="BEYOND-NULL", level="good", sentence=text, value=share)
        return
    text = (
        f"{len(inside)} of {count} cells of {a} and {b} are no more alike than the null ({null}) "
        "makes them "
    )
    text += "(adjusted p > .05)."
    yield Finding(
        code="WITHIN-NULL", level="alert" if share > 0.5 else "notice", sentence=text, value=share
    )
