"""The result of a comparison, and what it says in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal

from headscan.comparison.covariance import SimilarityWords
from headscan.comparison.nulls import WINDOWS, NullWords
from headscan.run import DataFrame, Finding, Interval, Result, Row, dataframe


@dataclass(frozen=True, kw_only=True)
class NullTest:
    """A value held against a null: `statistic` is the measure on the sample's tokens (on 16
    principal components where it is made of covariances), `mean` and `threshold` (.95 quantile)
    those of `draws` draws, `p` = (1 + draws at least as great)/(draws + 1), `p_adjusted` by
    Benjamini and Hochberg over all cells that were held against the same null.
    """

    null: str
    statistic: float | None = None
    mean: float | None = None
    threshold: float | None = None
    draws: int = 0
    p: float | None = None
    p_adjusted: float | None = None


@dataclass(frozen=True, kw_only=True)
class SimilarityCell:
    """How alike `site_a` of `model_a` and `site_b` of `model_b` are, with its 95 % interval by
    documents.

    `bias`: how far the jackknife expects few tokens to shift the value. `p`, `p_adjusted`: of the
    first null in `tests`.
    """

    model_a: str
    site_a: str
    model_b: str
    site_b: str
    measure: str
    value: float | None
    interval: Interval | None = None
    bias: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    tests: list[NullTest] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """How many of a model's tokens were compared: `tokens` it read (without the positions left
    out), `compared` of them.
    """

    model: str
    tokens: int
    compared: int


@dataclass(frozen=True, kw_only=True, repr=False)
class CompareResult(Result):
    """How alike the representations of two or more models are, site against site, on the same
    tokens.
    """

    kind: ClassVar[str] = "compare"
    cells: list[SimilarityCell]  # one a pair of models, pair of sites and measure
    measures: dict[str, SimilarityWords] = field(default_factory=dict)  # the words of each measure
    nulls: dict[str, NullWords] = field(default_factory=dict)  # those of each null
    # what of each model's tokens was compared
    alignment: list[Alignment] = field(default_factory=list)
    tokens: int = 0
    sampled: int = 0  # tokens of the sample
    tested: int = 0  # of the nulls' part
    clusters: str = "windows"  # what intervals leave out groups of: documents or windows
    # Share of each site's variance on its strongest direction, by "MODEL/SITE".
    top_shares: dict[str, float] = field(default_factory=dict)

    def cell(
        self, measure: str, site_a: str, site_b: str | None = None, model_b: str | None = None
    ) -> SimilarityCell:
        """One cell: of the first pair of models, unless `model_b` says otherwise; KeyError where
        there is none.
        """
        for cell in self.cells:
            named = (cell.measure, cell.site_a, cell.site_b) == (measure, site_a, site_b or site_a)
            if named and model_b in (None, cell.model_b):
                return cell
        raise KeyError(f"no {measure} of {site_a} and {site_b or site_a}")

    def frame(self, measure: str | None = None) -> DataFrame:
        table = dataframe(
            [{k: v for k, v in vars(one).items() if k != "tests"} for one in self.cells]
        )
        if measure is None:
            return table
        own = table[table["measure"] == measure]
        sites = list(dict.fromkeys(own["site_a"])), list(dict.fromkeys(own["site_b"]))
        wide = own.pivot_table(
            index=["model_a", "model_b", "site_a"], columns="site_b", values="value", sort=False
        )
        return wide.reindex(columns=sites[1])


@dataclass(frozen=True, kw_only=True, repr=False)
class DamageResult(CompareResult):
    """What a second model costs beside the first, block by block; docs/damage.md explains each
    number.
    """

    kind: ClassVar[str] = "damage"
    cells: list[SimilarityCell] = field(default_factory=list)
    damage: list[Row]  # one a part whose weights differ and mode: isolated, accumulated
    # the second model on all windows (whole), and on those where parts were exchanged (sample)
    totals: dict[str, Row]
    sums: dict[str, float]  # what the parts' divergences add up to, by mode, and the total
    # a site whose states differ: NAME_first, NAME_second, NAME_change
    shape: list[Row] = field(default_factory=list)
    # which parts to keep for --keep bytes, measured on other windows
    choices: list[Row] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # the codes of --fail-on that were found


# ---- What a comparison says in words.

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
