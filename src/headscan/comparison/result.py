"""The results of a comparison and of `compare --damage`."""

from collections.abc import Sequence
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


@dataclass(frozen=True, kw_only=True)
class MovedToken:
    """A token that a context predicts more or less than before, with both probabilities."""

    token: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class MovedContext:
    """A context whose prediction differs between two models.

    Attributes:
        document, window, position: of the last token that was read; all count from 0.
        text: the tokens before the prediction, the last ones.
        following: the token that follows in the text.
        divergence: of the two predictions, in nats.
        risen, fallen: the tokens that contribute most to the divergence in both directions.
    """

    document: int
    window: int
    position: int
    text: str
    following: str
    divergence: float
    risen: list[MovedToken]
    fallen: list[MovedToken]


@dataclass(frozen=True, kw_only=True)
class ChangedContext(MovedContext):
    """A context whose prediction a fine-tune changed; its divergence is KL(tuned ‖ base).

    Attributes:
        controls: the largest divergence of a control change at the same position.
        beyond: whether the divergence is beyond the limit.
    """

    controls: float
    beyond: bool


@dataclass(frozen=True, kw_only=True)
class DamagedContext(MovedContext):
    """A context whose prediction the second model changed; its divergence is KL(first ‖ second).

    Attributes:
        before, after: the probability of the token that follows, in both models.
    """

    before: float
    after: float


@dataclass(frozen=True, kw_only=True, repr=False)
class DamageResult(CompareResult):
    """The damage of a second model beside the first, block by block; see docs/damage.md.

    Attributes:
        damage: a row for each part whose weights differ and each mode: isolated, accumulated.
        totals: the second model on all windows (whole), and on those where parts were exchanged
            (sample).
        tail: a row for each level (median to maximum): the quantile of the divergence over all
            windows, and of the fall of the probability of the token that follows.
        contexts: the twenty predictions with the largest divergence.
        sums: the sums of the parts' divergences by mode, and the total.
        shape: a row for each site whose states differ: NAME_first, NAME_second, NAME_change.
        choices: the parts to keep for --keep bytes, or the recipe for --budget bytes and others of
            as many bytes, measured on other windows.
        recipe: a row for each matrix of a mixed recipe: its format, bytes and expected harm.
        commands: the recipe as lines that another program reads, by its name.
        failed: the codes of --fail-on that were found.
    """

    kind: ClassVar[str] = "damage"
    cells: list[SimilarityCell] = field(default_factory=list)
    damage: list[Row]
    totals: dict[str, Row]
    tail: list[Row] = field(default_factory=list)
    contexts: list[DamagedContext] = field(default_factory=list)
    sums: dict[str, float]
    shape: list[Row] = field(default_factory=list)
    choices: list[Row] = field(default_factory=list)
    recipe: list[Row] = field(default_factory=list)
    commands: dict[str, list[str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def frame(self, measure: str | None = None) -> DataFrame:
        """Return one row for each part that was exchanged and each mode.

        Where no part was exchanged alone, the rows are those of the whole model. `measure` names
        another table: damage, totals, tail, contexts, shape, choices or recipe.
        """
        tables: dict[str, list[Row]] = {
            "damage": self.damage,
            "totals": [Row({"of": name} | dict(row)) for name, row in self.totals.items()],
            "tail": self.tail,
            "recipe": self.recipe,
            "shape": self.shape,
            "choices": self.choices,
        }
        if measure == "contexts":
            return context_frame(self.contexts)
        if measure is None:
            measure = "damage" if self.damage else "totals"
        if measure not in tables:
            raise BadInput(f"There is no table {measure!r}; there are: {', '.join(tables)}.")
        return tidy(tables[measure])


@dataclass(frozen=True, kw_only=True)
class TokenChange:
    """A token whose log-probability rose or fell.

    Attributes:
        token: as text shows it.
        rise: mean rise of its log-probability over all positions, in nats; its interval (95 %) is
            by documents.
        controls: the mean rise under the control changes.
        score: the distance of the rise, beyond that of the median token, from the controls' mean,
            in their standard deviations, after the directions that the controls share.
        beyond: whether the score is beyond the limit.
    """

    token_id: int
    token: str
    rise: float
    rise_interval: Interval | None
    controls: float
    score: float
    beyond: bool


@dataclass(frozen=True, kw_only=True)
class LayerChange:
    """The change of the states of a site.

    Attributes:
        size: root of the mean square of the difference, over that of the base's states.
        size_controls: the same of the control changes, the median.
        common: share of the difference's energy that all tokens have in common.
        common_controls: the same of the control changes, the median.
        writes, removes: tokens that the mean difference makes likelier, or less likely, where it is
            added to what the head reads.
    """

    site: str
    size: float
    size_controls: float
    common: float
    common_controls: float
    writes: list[str]
    removes: list[str]


@dataclass(frozen=True, kw_only=True, repr=False)
class ChangesResult(CompareResult):
    """What changed between a model and a fine-tune of it, beside control changes of equal size.

    Attributes:
        token_changes: the tokens whose rise is beyond the limit, or the ten with the largest score
            in each direction.
        contexts: the twenty contexts with the largest divergence.
        layers: the change of the states, site by site.
        control_kind: "random changes", "control fine-tunes" or "fine-tunes on --control-text".
        controls: the number of control changes.
        token_limit: the score that a change like the controls exceeds in one of 100 cases.
        context_limit: the same of the largest divergence, in nats.
        tokens_beyond, contexts_beyond: how many of all are beyond these limits.
        divergence: mean KL(tuned ‖ base) in nats a token.
        loss_change: mean rise of the loss, in nats a token.
        shared: tokens of the vocabulary that both models have.
    """

    kind: ClassVar[str] = "changes"
    cells: list[SimilarityCell] = field(default_factory=list)
    token_changes: list[TokenChange]
    contexts: list[ChangedContext]
    layers: list[LayerChange]
    control_kind: str
    controls: int
    token_limit: float
    context_limit: float
    tokens_beyond: int
    contexts_beyond: int
    divergence: float
    divergence_interval: Interval | None = None
    divergence_controls: float
    loss_change: float
    loss_change_interval: Interval | None = None
    shared: int

    def frame(self, measure: str | None = None) -> DataFrame:
        """Return one row for each token listed; `measure="contexts"`: one for each context."""
        if measure == "contexts":
            return context_frame(self.contexts)
        return tidy([vars(change) for change in self.token_changes])


def context_frame(contexts: Sequence[MovedContext]) -> DataFrame:
    """Return one row for each context, the tokens that moved as text."""
    rows = []
    for context in contexts:
        fields = dict(vars(context))
        fields["risen"] = ", ".join(moved.token for moved in context.risen)
        fields["fallen"] = ", ".join(moved.token for moved in context.fallen)
        rows.append(fields)
    return tidy(rows)
