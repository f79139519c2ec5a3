"""What the verb `remedy` found."""

from dataclasses import dataclass, field
from typing import ClassVar

from headscan.remedies.drift import Drift
from headscan.run import DataFrame, Result, Row, tidy

NONE = "none"  # what the row of the vectors as they are is called


@dataclass(frozen=True, kw_only=True)
class ExportedRemedy:
    """What was written: which remedy, in which format, where."""

    remedy: str
    format: str
    path: str


@dataclass(frozen=True, kw_only=True, repr=False)
class RemedyResult(Result):
    """Remedies judged on what they were not fitted on.

    A row is of a remedy and set of pairs, `none` first: `remedy`, `pairs` (the set), `queries`,
    `items`, `recall_at_1`, `recall_at_10`, `recall_at_1_gain` (over none, paired by query),
    `hubness` (skewness), `average_cosine`, `spearman` (where people scored pairs), each with
    NAME_interval, and `interval`, that of recall_at_1. A row of `compressed` has `compression`
    instead of `remedy`, `bytes` and `dimensions` of a vector, `neighbours_kept` of the ten nearest
    uncompressed, and vectors a second that are compressed (`encode_rate`) and searched
    (`search_rate`).
    """

    kind: ClassVar[str] = "remedy"
    rows: list[Row]
    site: str  # which vectors
    width: int  # of them
    fitted: int  # how many were fitted on
    held_out: int  # how many were judged by
    level: (
        float  # of the intervals of gains: wide enough for all remedies and sets at once to be 95 %
    )
    about: dict[str, str] = field(default_factory=dict)  # a sentence on each remedy
    compressed: list[Row] = field(default_factory=list)  # a row a compression, `none` first
    recommended: str = ""  # the compression that finds most
    drift: list[Drift] = field(default_factory=list)  # from this version to the one of `against`
    exported: list[ExportedRemedy] = field(default_factory=list)  # what was written

    def row(self, remedy: str, pairs: str | None = None) -> Row:
        """Return the row of a remedy on a set of pairs, by default the first.

        Raises:
            KeyError: where there is none.
        """
        for row in self.rows:
            if row["remedy"] == remedy and pairs in (None, row["pairs"]):
                return row
        raise KeyError(f"no row of {remedy}")

    def frame(self) -> DataFrame:
        return tidy(self.rows)
