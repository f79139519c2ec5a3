"""What is known of one source when its examination is done: nothing here judges."""

import math
from dataclasses import dataclass, field

from headscan.inversion.reconstruction import Verdict
from headscan.measures.measure import leading
from headscan.model.sites import is_block
from headscan.run import Interval, ModelRecord, Row, TextRecord
from headscan.scanner.findings import is_few

Gauge = tuple[str, float, float]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """On how fine a grid the weights lie, by the numbers of different values in 64 neighbouring
    weights of a row.
    """

    levels: float  # their median; 64 for weights that were never rounded
    groups: int  # how many groups of 64 were counted
    coarsest: str  # the matrix with the fewest, and its median
    coarsest_levels: float


@dataclass(frozen=True, kw_only=True)
class PromptRead:
    """What exact search reads from the states of one site."""

    site: str
    prompts: int
    tokens: int  # of all prompts
    recovered: float  # share of the tokens, with its 95 % interval (Wilson)
    interval: Interval
    verdict: Verdict
    seconds: float


@dataclass(frozen=True, kw_only=True)
class LeakedBits:
    """What the same states still tell behind Gaussian noise, to one who knows the model and the
    tokens before.
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
    """What one token's output at the last block knows of the other tokens, over prompts from the
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
    """What a block does for the loss: how much it rises where the block's input stands in for its
    output.
    """

    site: str
    tokens: int  # of the text's beginning
    change: float  # of the loss, in nats a token, with its 95 % interval by windows
    interval: Interval
    loss: float  # with all blocks


@dataclass(frozen=True, kw_only=True)
class TriedRemedies:
    """Do passages of the text find the passage that follows them, by the vectors as they are and
    after each remedy?
    """

    site: str  # whose vectors, in the mean over a passage
    length: int  # tokens of a passage
    fitted: int  # passages that remedies were fitted on
    queries: int  # other passages, that judge
    rows: list[Row]  # as `headscan remedy` writes them, `none` first

    @property
    def best(self) -> Row | None:
        """The remedy of the largest gain in recall@1, by its estimate; None where there is none."""
        tried = [row for row in self.rows if row.number("recall_at_1_gain") is not None]
        return max(tried, key=lambda row: row.number("recall_at_1_gain") or 0.0) if tried else None

    @property
    def plain(self) -> float:
        return self.rows[0].number("recall_at_1") or 0.0

    @property
    def sentence(self) -> str:
        """In how many searches the passage that follows came first, before and after the best
        remedy.
        """
        best = self.best
        queries = self.queries
        assert best is not None
        gain = best.number("recall_at_1_gain") or 0.0
        ends = best.interval("recall_at_1_gain") or (0.0, 0.0)
        hits_before = round(queries * self.plain)
        hits_after = round(queries * (self.plain + gain))
        plain = f"the passage that follows is found first in {hits_before} of {queries} searches"
        if hits_after <= hits_before:
            return f"{plain}, and in no more after any of the {len(self.rows) - 1} remedies tried"
        return (
            f"{plain}, and in {hits_after} after "
            f"{best.text('remedy')}{'' if ends[0] > 0 else ' (may be chance)'}"
        )


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
    later: float | None = (
        # how far logits move with a later token, over how far with their own; of causal classes
        None
    )
    read: PromptRead | None = None
    bits: LeakedBits | None = None
    flow: TokenFlow | None = None
    cure: TriedRemedies | None = None
    removed: list[BlockRemoved] = field(default_factory=list)
    order: float | None = (
        None  # of the token table: how much more alike neighbouring rows are, in standard errors
    )
    norms: float | None = (
        None  # of the token table: the spread of its rows' norms, over that of normal rows
    )
    skipped: list[str] = field(default_factory=list)  # what was not done, and why, as sentences
    seconds: float = 0.0

    @property
    def few(self) -> bool:
        """Whether fewer tokens (of stored states: vectors) were read than an alarm on the text
        needs.
        """
        return self.text is not None and is_few(self.text.tokens)

    @property
    def unit(self) -> str:
        """The unit of what was read: tokens; of stored states, vectors."""
        stored = self.record is not None and self.record.model_class == "stored states"
        return "vectors" if stored else "tokens"

    @property
    def blocks(self) -> list[Row]:
        return [row for row in self.sites if is_block(row.text("site"))] or self.sites

    def _common(self, null: str | None) -> Row:
        return next((row for row in self.common if row.get("null") == null), Row())

    def _gauge(self, null: str | None) -> Gauge | None:
        row = self._common(null)
        cosine_before = row.number("cosine")
        cosine_after = row.number("cosine_after")
        return (
            None
            if cosine_before is None or cosine_after is None
            else (row.text("site"), cosine_before, cosine_after)
        )

    @property
    def gauge(self) -> Gauge | None:
        """Where the head reads, and the average cosine there as it is and with a bias of the head."""
        return self._gauge(None)

    @property
    def gauge_of_null(self) -> Gauge | None:
        return self._gauge("random-init")

    @property
    def gauge_interval(self) -> Interval | None:
        """95 % of what the bias takes away, at least: the ends of both intervals put against each
        other.
        """
        interval_before, interval_after = (
            self._common(None).interval(name) for name in ("cosine", "cosine_after")
        )
        return (
            None
            if interval_before is None or interval_after is None
            else (interval_before[0] - interval_after[1], interval_before[1] - interval_after[0])
        )

    @property
    def best_over_counting(self) -> float | None:
        """The loss at the best scale of the logits over that of counting pairs of tokens."""
        best, counted = (
            self.loss.number(name) if self.loss else None for name in ("best_loss", "counting_loss")
        )
        return best / counted if best is not None and counted else None

    def null(self, site: str) -> Row | None:
        """The row of random weights at a site."""
        return next(
            (row for row in self.nulls if row["site"] == site and row["null"] == "random-init"),
            None,
        )


def value(row: Row | None, measure: str) -> float | None:
    """A measure of the tokens that are no sinks; of all where the row knows of no sinks; None
    without a row.
    """
    return None if row is None else row.number(leading(row, measure))


def interval(row: Row, measure: str) -> Interval | None:
    """Its 95 % interval."""
    return row.interval(leading(row, measure))
