"""The evidence of a checkup: everything that was measured of one source. Nothing here judges."""

import math
from dataclasses import dataclass, field
from typing import Literal

from headscan.inversion.reconstruction import Verdict
from headscan.measures.measure import leading
from headscan.model.sentence import SENTENCE
from headscan.model.sites import is_block
from headscan.run import Interval, ModelRecord, Row, TextRecord
from headscan.scanner.cautions import is_few

Gauge = tuple[str, float, float]
"""The site that the output head reads, and the average cosine there without and with a bias."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The grid that the weights lie on, by the numbers of different values in 64 neighbouring
    weights of a row.
    """

    levels: float  # their median; 64 for weights that were never rounded
    groups: int  # how many groups of 64 were counted
    coarsest: str  # the matrix with the fewest, and its median
    coarsest_levels: float


@dataclass(frozen=True, kw_only=True)
class PromptRead:
    """The result of exact search for prompts, from the states of one site."""

    site: str
    prompts: int
    tokens: int  # of all prompts
    recovered: float  # share of the tokens, with its 95 % interval (Wilson)
    interval: Interval
    verdict: Verdict
    seconds: float


@dataclass(frozen=True, kw_only=True)
class LeakedBits:
    """The bits of a token that states behind Gaussian noise tell an attacker who knows the model
    and the tokens before.
    """

    site: str
    noise: float  # in the rms of the site's centred coordinates
    tokens: int  # positions that the bits are the mean of
    prior_bits: float  # what there is to tell of a token
    lower: float  # bits that are told, proved from below and above
    upper: float
    interval: Interval | None  # 95 % of the mean over such positions
    candidates: int | None  # tokens that were run at each position
    guessed: float | None  # share of tokens that are named without any state
    named: float  # share of tokens that the best attack names through the noise

    def share(self, bits: float) -> float:
        """Return bits as a share of what there is to tell of a token, from 0 to 1."""
        return min(1.0, max(0.0, bits / self.prior_bits))

    @property
    def told(self) -> tuple[int, int]:
        """Return the least and the largest percentage of a token's bits that the states tell: the
        lower bound rounded down and the upper one rounded up.
        """
        return math.floor(100 * self.share(self.lower)), math.ceil(100 * self.share(self.upper))


@dataclass(frozen=True, kw_only=True)
class TokenFlow:
    """The influence of other tokens on a token's output at the last block, over prompts from the
    text.
    """

    site: str
    prompts: int
    length: int  # tokens of a prompt
    # How far an output moves when another token that it may see is replaced, over how far when its
    # own is: the mean over places and prompts, its 95 % interval by prompts, and the same of random
    # weights.
    heard: float
    interval: Interval | None = None
    null: float | None = None


@dataclass(frozen=True, kw_only=True)
class BlockRemoved:
    """The change of the loss where a block's input replaces its output."""

    site: str
    tokens: int  # of the text's beginning
    change: float  # of the loss, in nats a token, with its 95 % interval by windows
    interval: Interval
    loss: float  # with all blocks


@dataclass(frozen=True, kw_only=True)
class TriedRemedies:
    """The searches for the passage that follows each passage of the text, by the vectors as they
    are and after each remedy.
    """

    site: str  # whose vectors, in the mean over a passage
    length: int  # tokens of a passage
    fitted: int  # passages that remedies were fitted on
    queries: int  # other passages, that judge
    rows: list[Row]  # as `headscan remedy` writes them, `none` first

    @property
    def best(self) -> Row | None:
        """Return the remedy with the largest estimated gain in recall@1; None without a remedy."""
        remedies = [row for row in self.rows if row.number("recall_at_1_gain") is not None]
        if not remedies:
            return None
        return max(remedies, key=lambda row: row.number("recall_at_1_gain") or 0.0)

    @property
    def plain(self) -> float:
        """Return recall@1 without a remedy."""
        return self.rows[0].number("recall_at_1") or 0.0

    @property
    def sentence(self) -> str:
        """Return in how many searches the passage that follows came first, before and after the
        best remedy.
        """
        best = self.best
        assert best is not None
        gain = best.number("recall_at_1_gain") or 0.0
        low, _ = best.interval("recall_at_1_gain") or (0.0, 0.0)
        hits_before = round(self.queries * self.plain)
        hits_after = round(self.queries * (self.plain + gain))

        plain = f"Next-passage retrieval: {hits_before}/{self.queries}"
        if hits_after <= hits_before:
            return f"{plain}, not improved by any remedy"
        significance = "" if low > 0 else " (not significant)"
        return (
            f"{plain} before, {hits_after}/{self.queries} after {best.text('remedy')}{significance}"
        )


@dataclass(frozen=True, kw_only=True)
class EqualRows:
    """The tokens of the text whose rows of the token table equal the row of another of them."""

    tokens: int  # distinct tokens of the text's beginning
    equal: int  # how many of them share a row
    examples: list[int]  # two token ids that share one; empty where none do

    @property
    def share(self) -> float:
        """Return the share of the distinct tokens that share a row."""
        return self.equal / max(1, self.tokens)


@dataclass(frozen=True, kw_only=True)
class EmbeddingScale:
    """The loss of a model whose input embeddings are multiplied by each of several factors."""

    factors: list[float]  # 1 is among them
    losses: list[float]  # nats a token
    interval: Interval  # 95 %, by windows, of how much the loss falls at the best factor
    tokens: int

    @property
    def best(self) -> tuple[float, float]:
        """Return the factor with the least loss, and how much the loss falls there."""
        least = min(self.losses)
        at_one = self.losses[self.factors.index(1.0)]
        return self.factors[self.losses.index(least)], at_one - least


Stage = Literal[
    "inversion", "bits", "flow", "blocks", "scale", "remedies", "control", "loss", "states"
]


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A stage that was left out.

    Attributes:
        sentence: what was left out, and why.
        reason: why, without a full stop.
        option: what would do it, such as "--budget 10m"; empty where nothing would.
    """

    stage: Stage
    sentence: str
    reason: str
    option: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelEvidence:
    """One source, as far as it was examined; what was not measured is None or empty."""

    model: str
    record: ModelRecord | None
    text: TextRecord | None
    sites: list[Row]  # of a scan
    nulls: list[Row] = field(default_factory=list)  # the same of random weights
    # of the probes `anatomy` and `common_direction`
    anatomy: list[Row] = field(default_factory=list)
    common: list[Row] = field(default_factory=list)
    loss: Row | None = None  # of the probe `loss`, of models that predict a next token
    loss_of_null: Row | None = None
    grid: Grid | None = None
    # how far logits move with a later token, over how far with their own; of causal classes
    later: float | None = None
    read: PromptRead | None = None
    bits: LeakedBits | None = None
    flow: TokenFlow | None = None
    cure: TriedRemedies | None = None
    removed: list[BlockRemoved] = field(default_factory=list)
    # of the token table: how much more alike neighbouring rows are, in standard errors
    order: float | None = None
    # of the token table: the spread of its rows' norms, over that of normal rows
    norms: float | None = None
    # how far two runs of the same tokens differ at the last block, relative to the states
    repeat: float | None = None
    equal_rows: EqualRows | None = None
    scale: EmbeddingScale | None = None
    weights: str = ""  # a hash by which the reference population recognises the model
    skipped: list[Skipped] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def count(self) -> int | None:
        """Return how many tokens, vectors or sentences were read; None without a text."""
        if self.text is None:
            return None
        return self.text.windows if self.unit == "sentences" else self.text.tokens

    @property
    def few(self) -> bool:
        """Return whether fewer tokens, vectors or sentences were read than an alarm on the text
        needs.
        """
        return is_few(self.count)

    @property
    def unit(self) -> str:
        """Return the unit of what is judged: sentences of a sentence encoder, vectors of a column
        of embeddings, else tokens.
        """
        if any(row["site"] == SENTENCE for row in self.sites):
            return "sentences"
        return "tokens" if self.text is None else self.text.unit

    @property
    def embeds(self) -> bool:
        """Return whether it is an embedding model or a column of embeddings: one vector a text."""
        return self.unit != "tokens"

    @property
    def blocks(self) -> list[Row]:
        """Return the rows that are judged: of the sentence vector; else of the blocks; all rows
        where no site is either.
        """
        sentence = [row for row in self.sites if row["site"] == SENTENCE]
        blocks = [row for row in self.sites if is_block(row.text("site"))]
        return sentence or blocks or self.sites

    def _common(self, null: str | None) -> Row:
        """Return the row of the probe `common_direction`, of the model or of a control."""
        return next((row for row in self.common if row.get("null") == null), Row())

    def _gauge(self, null: str | None) -> Gauge | None:
        row = self._common(null)
        cosine_before = row.number("cosine")
        cosine_after = row.number("cosine_after")
        if cosine_before is None or cosine_after is None:
            return None
        return row.text("site"), cosine_before, cosine_after

    @property
    def gauge(self) -> Gauge | None:
        """Return the site that the output head reads, and the average cosine there as it is and
        with a bias of the head.
        """
        return self._gauge(None)

    @property
    def gauge_of_null(self) -> Gauge | None:
        """Return the same of the random-weight control."""
        return self._gauge("random-init")

    @property
    def gauge_interval(self) -> Interval | None:
        """Return an interval of at least 95 % of what the bias takes away: each interval's ends
        minus the opposite ends of the other.
        """
        row = self._common(None)
        interval_before = row.interval("cosine")
        interval_after = row.interval("cosine_after")
        if interval_before is None or interval_after is None:
            return None
        low_before, high_before = interval_before
        low_after, high_after = interval_after
        return low_before - high_after, high_before - low_after

    @property
    def best_over_counting(self) -> float | None:
        """Return the loss at the best scale of the logits over that of counting pairs of tokens."""
        if self.loss is None:
            return None
        best_loss = self.loss.number("best_loss")
        counting_loss = self.loss.number("counting_loss")
        if best_loss is None or not counting_loss:
            return None
        return best_loss / counting_loss

    def null(self, site: str) -> Row | None:
        """Return the row of random weights at a site."""
        for row in self.nulls:
            if row["site"] == site and row["null"] == "random-init":
                return row
        return None


def value(row: Row | None, measure: str) -> float | None:
    """Return a measure without sinks; with all tokens where the row has no other value; None
    without a row.
    """
    return None if row is None else row.number(leading(row, measure))


def interval(row: Row, measure: str) -> Interval | None:
    """Return the 95 % interval of the measure that `value` returns."""
    return row.interval(leading(row, measure))
