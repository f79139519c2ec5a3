"""What is known of one source when its examination is done: nothing here judges."""

from __future__ import annotations

from dataclasses import dataclass, field

from headscan.geometry.explained import leading
from headscan.inversion.certificate import Verdict
from headscan.model.sites import is_block
from headscan.run import Interval, ModelRecord, Row, TextRecord

__all__ = ["Grid", "ModelEvidence", "PromptRead"]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """On how fine a grid the weights lie.

    Attributes:
        levels: median number of different values in 64 neighbouring weights of a row; 64 of weights that were never rounded.
        groups: how many such were looked at. coarsest: the matrix with the fewest, and its median.
    """

    levels: float
    groups: int
    coarsest: str
    coarsest_levels: float


@dataclass(frozen=True, kw_only=True)
class PromptRead:
    """What exact search reads from the states of one site.

    Attributes:
        site: which. prompts: how many, from the text; tokens: of all of them. recovered: share of them that was found, and its
            95 % interval (Wilson). verdict: the certificate's word. seconds: what it took.
    """

    site: str
    prompts: int
    tokens: int
    recovered: float
    interval: Interval
    verdict: Verdict
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ModelEvidence:
    """One source, as far as it was examined.

    Attributes:
        model: its name; record, text: what it is and what it read.
        sites: a scan's rows; nulls: the same of random weights, where there was time; anatomy, common: the rows of these probes.
        loss: the row of the probe `loss`; None of models that predict no next token, and of stored states.
        grid: of the weights; None of stored states. read: what inversion gave back; None where it was not tried.
        skipped: what was not done, and why, as sentences. seconds: what the examination took.
    """

    model: str
    record: ModelRecord | None
    text: TextRecord | None
    sites: list[Row]
    nulls: list[Row] = field(default_factory=list)
    anatomy: list[Row] = field(default_factory=list)
    common: list[Row] = field(default_factory=list)
    loss: Row | None = None
    grid: Grid | None = None
    read: PromptRead | None = None
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def blocks(self) -> list[Row]:
        """The rows of whole blocks, or of all sites where there is none."""
        return [row for row in self.sites if is_block(row.text("site"))] or self.sites

    @property
    def gauge(self) -> tuple[str, float, float] | None:
        """Where the head reads, and the average cosine there as it is and with a bias of the head; None where nothing is
        known of it."""
        return _gauge(self.common, None)

    @property
    def gauge_of_null(self) -> tuple[str, float, float] | None:
        """The same of random weights."""
        return _gauge(self.common, "random-init")

    def null(self, site: str) -> Row | None:
        """The row of random weights at a site."""
        return next((row for row in self.nulls if row["site"] == site and row["null"] == "random-init"), None)


def _gauge(rows: list[Row], null: str | None) -> tuple[str, float, float] | None:
    row = next((row for row in rows if row.get("null") == null), None)
    before, after = (row.number("cosine"), row.number("cosine_after")) if row is not None else (None, None)
    return None if row is None or before is None or after is None else (row.text("site"), before, after)


def value(row: Row | None, measure: str) -> float | None:
    """A measure of the tokens that are no sinks; of all where the row knows of no sinks; None without a row."""
    return None if row is None else row.number(leading(row, measure))


def interval(row: Row, measure: str) -> Interval | None:
    """Its 95 % interval."""
    return row.interval(leading(row, measure))
