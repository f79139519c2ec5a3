"""What a comparison found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headscan.geometry.compare.null import NullWords
from headscan.geometry.compare.similarity import SimilarityWords
from headscan.geometry.differences import Difference
from headscan.run import Interval
from headscan.run.result import Result

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Alignment", "CompareResult", "NullTest", "SimilarityCell"]


@dataclass(frozen=True, kw_only=True)
class NullTest:
    """A value held against a null: `statistic` is the measure on the sample's tokens (on 16 principal components where it
    is made of covariances), `mean` and `threshold` (.95 quantile) those of `draws` draws, `p` = (1 + draws at least as
    great)/(draws + 1), `p_adjusted` by Benjamini and Hochberg over all cells that were held against the same null."""

    null: str
    statistic: float | None = None
    mean: float | None = None
    threshold: float | None = None
    draws: int = 0
    p: float | None = None
    p_adjusted: float | None = None


@dataclass(frozen=True, kw_only=True)
class SimilarityCell:
    """How alike `site_a` of `model_a` and `site_b` of `model_b` are, with its 95 % interval by documents.

    `bias`: how far the jackknife expects few tokens to shift the value. `p`, `p_adjusted`: of the first null in `tests`.
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
    """How many of a model's tokens were compared: `tokens` it read (without the positions left out), `compared` of them."""

    model: str
    tokens: int
    compared: int


@dataclass(frozen=True, kw_only=True, repr=False)
class CompareResult(Result):
    """How alike the representations of two or more models are, site against site, on the same tokens.

    Attributes:
        cells: one entry a pair of models, pair of sites and measure.
        measures: the words of each measure. nulls: those of each null.
        alignment: what of each model's tokens was compared. sampled: tokens of the sample; tested: of the nulls' part.
        clusters: what intervals leave out groups of: documents or windows.
        top_shares: share of each site's variance on its strongest direction, by "MODEL/SITE".
        differences: of the measures of shape between the models' sites of the same name, where `shape` was asked for.
    """

    kind: ClassVar[str] = "compare"
    cells: list[SimilarityCell]
    measures: dict[str, SimilarityWords] = field(default_factory=dict)
    nulls: dict[str, NullWords] = field(default_factory=dict)
    alignment: list[Alignment] = field(default_factory=list)
    tokens: int = 0
    sampled: int = 0
    tested: int = 0
    clusters: str = "windows"
    top_shares: dict[str, float] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    def cell(self, measure: str, site_a: str, site_b: str | None = None, model_b: str | None = None) -> SimilarityCell:
        """One cell: of the first pair of models, unless `model_b` says otherwise; KeyError where there is none."""
        for one in self.cells:
            if (one.measure, one.site_a, one.site_b) == (measure, site_a, site_b or site_a) and model_b in (
                None,
                one.model_b,
            ):
                return one
        raise KeyError(f"no {measure} of {site_a} and {site_b or site_a}")

    def frame(self, measure: str | None = None) -> pd.DataFrame:
        """One row a cell; with `measure`, the map of that measure, sites of the first model by those of the second."""
        import pandas as pd

        table = pd.DataFrame([{k: v for k, v in vars(one).items() if k != "tests"} for one in self.cells])
        if measure is None:
            return table
        own = table[table["measure"] == measure]
        sites = list(dict.fromkeys(own["site_a"])), list(dict.fromkeys(own["site_b"]))
        wide = own.pivot_table(index=["model_a", "model_b", "site_a"], columns="site_b", values="value", sort=False)
        return wide.reindex(columns=sites[1])
