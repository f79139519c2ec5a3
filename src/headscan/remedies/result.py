"""What the verb `remedy` found."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headscan.model.inputs import Pooling
from headscan.model.settings import Loading
from headscan.remedies.remedy import REMEDIES, RemedyMethod
from headscan.remedies.retrieval import Drift
from headscan.run import BadInput, DataFrame, Result, Row, dataframe, names_in
from headscan.text import read_pair_files
from headscan.text.source import Reading, TextLike

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
    NAME_interval, and `interval`, that of recall_at_1.
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
    drift: list[Drift] = field(default_factory=list)  # from this version to the one of `against`
    exported: list[ExportedRemedy] = field(default_factory=list)  # what was written

    def row(self, remedy: str, pairs: str | None = None) -> Row:
        """The row of a remedy, of the first set of pairs unless said; KeyError where there is none."""
        for row in self.rows:
            if row["remedy"] == remedy and pairs in (None, row["pairs"]):
                return row
        raise KeyError(f"no row of {remedy}")

    def frame(self) -> DataFrame:
        return dataframe([dict(row) for row in self.rows])


FORMATS = ("dense", "column", "model")


@dataclass(frozen=True, kw_only=True)
class RemedySettings(Loading, Reading):
    """What is fitted on what, judged by what, and written how; see each option's help."""

    text: TextLike | None
    pairs: Sequence[str | os.PathLike[str]]
    partners: Any
    against: Any
    remedies: str | RemedyMethod | Sequence[RemedyMethod]
    site: str | None
    pooling: Pooling | None
    held_out: int
    export: str
    formats: str
    seed: int

    def check(self) -> None:
        super().check()
        if self.export not in ("best", "none", *self.methods()):
            tried = ", ".join(self.methods())
            raise BadInput(
                f"--export must be best, none or one of the remedies tried ({tried}), not "
                f"{self.export!r}."
            )
        if unknown := set(self.written()) - set(FORMATS):
            raise BadInput(f"--formats must be among {', '.join(FORMATS)}, not {min(unknown)!r}.")
        read_pair_files(self.pairs)

    def methods(self) -> dict[str, RemedyMethod]:
        return {
            name: one
            for one in REMEDIES.build_each(self.remedies)
            for name, kind in REMEDIES.items()
            if type(one) is kind
        }

    def written(self) -> list[str]:
        return names_in(self.formats)
