"""The results of a comparison and of `compare --damage`."""

from dataclasses import dataclass, field
from typing import ClassVar

from headscan.comparison.nulls import NullWords
from headscan.comparison.similarity import SimilarityWords
from headscan.run import BadInput, DataFrame, Interval, Result, Row, tidy


@dataclass(frozen=True, kw_only=True)
class NullTest:
    """The test of a value against a null.

    Attributes:
        statistic: the measure on the sample's tokens (on 16 principal components where it is made
            of covariances).
        mean, threshold: the mean and the 0.95 quantile of `draws` draws.
        p: (1 + draws that are at least as great)/(draws + 1).
        p_adjusted: by Benjamini and Hochberg over all cells that were tested against this null.
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
    """The similarity of `site_a` of `model_a` and `site_b` of `model_b`.

    Attributes:
        interval: 95 %, by documents.
        bias: the shift of the value that the jackknife expects from few tokens.
        p, p_adjusted: of the first null in `tests`.
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
    """The tokens that a model read, without positions left out, and those that were compared."""

    model: str
    tokens: int
    compared: int


@dataclass(frozen=True, kw_only=True, repr=False)
class CompareResult(Result):
    """The similarity of the representations of two or more models, site against site, on the same
    tokens.

    Attributes:
        cells: one for each pair of models, pair of sites and measure.
        measures: the description of each measure.
        nulls: the description of each null.
        alignment: the tokens of each model that were compared.
        tokens, sampled, tested: those compared, those of the sample, and those that nulls are drawn
            of.
        clusters: documents or windows; intervals leave out groups of them.
        top_shares: the share of each site's variance on its strongest direction, by "MODEL/SITE".
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

    def cell(
        self, measure: str, site_a: str, site_b: str | None = None, model_b: str | None = None
    ) -> SimilarityCell:
        """Return one cell, of the first pair of models or of the first with this `model_b`.

        Raises KeyError where there is none.
        """
        site_b = site_b or site_a
        for cell in self.cells:
            same_sites = (cell.site_a, cell.site_b) == (site_a, site_b)
            if cell.measure == measure and same_sites and model_b in (None, cell.model_b):
                return cell
        raise KeyError(f"no {measure} of {site_a} and {site_b}")

    def frame(self, measure: str | None = None) -> DataFrame:
        """Return one row for each cell; of one measure a matrix of sites by sites."""
        rows = []
        for cell in self.cells:
            fields = dict(vars(cell))
            del fields["tests"]
            rows.append(fields)
        table = tidy(rows)
        if measure is None:
            return table
        of_measure = table[table["measure"] == measure]
        matrix = of_measure.pivot_table(
            index=["model_a", "model_b", "site_a"], columns="site_b", values="value", sort=False
        )
        return matrix.reindex(columns=list(dict.fromkeys(of_measure["site_b"])))


@dataclass(frozen=True, kw_only=True, repr=False)
class DamageResult(CompareResult):
    """The damage of a second model beside the first, block by block; see docs/damage.md.

    Attributes:
        damage: a row for each part whose weights differ and each mode: isolated, accumulated.
        totals: the second model on all windows (whole), and on those where parts were exchanged
            (sample).
        sums: the sums of the parts' divergences by mode, and the total.
        shape: a row for each site whose states differ: NAME_first, NAME_second, NAME_change.
        choices: the parts to keep for --keep bytes, measured on other windows.
        failed: the codes of --fail-on that were found.
    """

    kind: ClassVar[str] = "damage"
    cells: list[SimilarityCell] = field(default_factory=list)
    damage: list[Row]
    totals: dict[str, Row]
    sums: dict[str, float]
    shape: list[Row] = field(default_factory=list)
    choices: list[Row] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def frame(self, measure: str | None = None) -> DataFrame:
        """Return one row for each part that was exchanged and each mode.

        Where no part was exchanged alone, the rows are those of the whole model. `measure` names
        another table: damage, totals, shape or choices.
        """
        tables: dict[str, list[Row]] = {
            "damage": self.damage,
            "totals": [Row({"of": name} | dict(row)) for name, row in self.totals.items()],
            "shape": self.shape,
            "choices": self.choices,
        }
        if measure is None:
            measure = "damage" if self.damage else "totals"
        if measure not in tables:
            raise BadInput(f"There is no table {measure!r}; there are: {', '.join(tables)}.")
        return tidy(tables[measure])
