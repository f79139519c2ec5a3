"""What a comparison says in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from headscan.geometry.compare.result import Alignment, SimilarityCell
from headscan.run import Finding

__all__ = ["findings"]

EQUAL = 1e-6  # from 1: float32 sums know no less
STEP = 0.1  # a fall of CKA from one layer to the next that is worth a sentence
SPIKE = 0.9  # share of a site's variance on one direction from which on CKA speaks of that direction
PART = 0.5  # of a model's tokens compared, below which a reader must know


def findings(
    cells: Sequence[SimilarityCell], top_shares: Mapping[str, float], alignment: Sequence[Alignment]
) -> list[Finding]:
    """Sentences, the most telling first."""
    found: list[Finding] = []
    for a, b in dict.fromkeys((cell.model_a, cell.model_b) for cell in cells):
        own = [cell for cell in cells if (cell.model_a, cell.model_b) == (a, b)]
        found += [*_equal(a, b, own), *_within(a, b, own), *_partner(a, b, own)]
    found += _spikes(top_shares)
    for one in alignment:
        if one.compared < PART * one.tokens:
            said = (
                f"Only {one.compared:,} of the {one.tokens:,} tokens of {one.model} end where those of the others do: "
            )
            found.append(
                Finding(
                    code="PARTLY-ALIGNED", level="notice", sentence=f"{said}the numbers are of these.", model=one.model
                )
            )
    return found


def _diagonal(cells: Sequence[SimilarityCell], measure: str) -> list[SimilarityCell]:
    return [cell for cell in cells if cell.measure == measure and cell.site_a == cell.site_b]


def _equal(a: str, b: str, cells: Sequence[SimilarityCell]) -> Iterator[Finding]:
    own = [cell for cell in _diagonal(cells, "cka") if cell.value is not None]
    if not own:
        return
    least = min(own, key=lambda cell: cell.value or 0.0)
    value = least.value or 0.0
    if value > 1 - EQUAL:
        text = f"{a} and {b} are the same at every site: CKA is 1 to six digits."
        yield Finding(code="SAME", level="good", sentence=text, value=value)
        return
    falls = [(one, two) for one, two in pairwise(own) if (one.value or 0.0) - (two.value or 0.0) > STEP]
    if falls:
        one, two = max(falls, key=lambda pair: (pair[0].value or 0.0) - (pair[1].value or 0.0))
        text = f"{a} and {b} part at {two.site_b}: CKA falls from {one.value:.2f} at {one.site_b} to {two.value:.2f}."
        yield Finding(code="PARTING", level="notice", sentence=text, site=two.site_b, value=two.value)
    else:
        text = f"Site against the same site, CKA of {a} and {b} is {value:.3f} or more; least at {least.site_b}."
        yield Finding(
            code="CLOSENESS", level="good" if value > 0.9 else "notice", sentence=text, site=least.site_b, value=value
        )


def _within(a: str, b: str, cells: Sequence[SimilarityCell]) -> Iterator[Finding]:
    known = [cell for cell in cells if cell.p_adjusted is not None]
    inside = [cell for cell in known if (cell.p_adjusted or 0.0) > 0.05]
    if not known:
        return
    null = known[0].tests[0].null
    share, count = len(inside) / len(known), len(known)
    if not inside:
        text = f"All {count} cells of {a} and {b} are more alike than the null ({null}) makes them (adjusted p ≤ .05)."
        yield Finding(code="BEYOND-NULL", level="good", sentence=text, value=share)
        return
    text = f"{len(inside)} of {count} cells of {a} and {b} are no more alike than the null ({null}) makes them "
    text += "(adjusted p > .05)."
    yield Finding(code="WITHIN-NULL", level="alert" if share > 0.5 else "notice", sentence=text, value=share)


def _partner(a: str, b: str, cells: Sequence[SimilarityCell]) -> Iterator[Finding]:
    """Where most sites are nearest to another site than their own."""
    own = [cell for cell in cells if cell.measure == "cka" and cell.value is not None]
    common = [site for site in dict.fromkeys(c.site_a for c in own) if any(c.site_b == site for c in own)]
    away = []
    for site in common:
        row = [cell for cell in own if cell.site_a == site]
        best = max(row, key=lambda cell: cell.value or 0.0)
        mine = next(cell for cell in row if cell.site_b == site)
        if best.site_b != site and mine.interval and (best.value or 0.0) > mine.interval[1]:
            away.append((site, best))
    if len(away) > len(common) / 2:
        site, best = away[-1]
        text = f"Most sites of {a} are most like another site of {b}: {site} is most like {best.site_b} (CKA {best.value:.2f})."
        yield Finding(code="SHIFTED", level="notice", sentence=text, site=site, value=best.value)


def _spikes(top_shares: Mapping[str, float]) -> Iterator[Finding]:
    high = {name: share for name, share in top_shares.items() if share > SPIKE}
    if high:
        name, share = max(high.items(), key=lambda one: one[1])
        text = f"At {len(high)} sites one direction holds more than 90 % of the variance ({share:.1%} at {name}): there CKA and "
        text += "Procrustes speak of that direction; SVCCA, PWCCA and neighbours do not."
        yield Finding(code="ONE-DIRECTION", level="notice", sentence=text, value=share)
