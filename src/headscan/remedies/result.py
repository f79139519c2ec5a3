"""What the verb `remedy` found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headscan.remedies.drift import Drift
from headscan.run import Result, Row

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NONE", "ExportedRemedy", "RemedyResult"]

NONE = "none"
"""What the row of the vectors as they are is called."""


@dataclass(frozen=True, kw_only=True)
class ExportedRemedy:
    """What was written: which remedy, in which format, where."""

    remedy: str
    format: str
    path: str


@dataclass(frozen=True, kw_only=True, repr=False)
class RemedyResult(Result):
    """Remedies judged on what they were not fitted on.

    Attributes:
        rows: one a remedy and set of pairs, `none` first: `remedy`, `pairs` (the set), `queries`, `items`, `recall_at_1`,
            `recall_at_10`, `recall_at_1_gain` (over none, paired by query), `hubness` (skewness), `average_cosine`, `spearman`
            (where people scored pairs), each with NAME_interval, and `interval`, that of recall_at_1.
        about: a sentence on each remedy.
        site: which vectors. width: of them. fitted: how many were fitted on, held_out: how many were judged by.
        level: of the intervals of gains: wide enough for all remedies and sets at once to be 95 %.
        drift: from this version to the one of `against`.
        exported: what was written.
    """

    kind: ClassVar[str] = "remedy"
    rows: list[Row]
    site: str
    width: int
    fitted: int
    held_out: int
    level: float
    about: dict[str, str] = field(default_factory=dict)
    drift: list[Drift] = field(default_factory=list)
    exported: list[ExportedRemedy] = field(default_factory=list)

    def row(self, remedy: str, pairs: str | None = None) -> Row:
        """The row of a remedy, of the first set of pairs unless said; KeyError where there is none."""
        for one in self.rows:
            if one["remedy"] == remedy and pairs in (None, one["pairs"]):
                return one
        raise KeyError(f"no row of {remedy}")

    def frame(self) -> pd.DataFrame:
        """One row a remedy and set of pairs."""
        import pandas as pd

        return pd.DataFrame([dict(row) for row in self.rows])
