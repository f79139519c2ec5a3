"""The result of a comparison, and what it says in words."""

from dataclasses import dataclass, field
from typing import ClassVar

from headscan.comparison.covariance import SimilarityWords
from headscan.comparison.nulls import NullWords
from headscan.run import DataFrame, Interval, Result, Row, dataframe


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
