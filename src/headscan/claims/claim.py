"""A claim with its protocol, written before its experiment is run; the ledger of all claims, and how its tables are read."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from importlib import resources

from headscan.claims.experiment import EXPERIMENTS, Experiment
from headscan.claims.protocol import DOCUMENTS, DocumentName, Region
from headscan.run import BadInput, Registry

__all__ = ["CLAIMS", "Claim", "enter", "enter_table"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim with its protocol.

    Attributes:
        id: in the ledger: 1 to 126 the article, 201 on the slides, 301 on what the field holds, 401 on the paper.
        document, place: where it stands: a slide, page, section or figure.
        statement: what is said, one sentence.
        model, data: what it is about; `large`: a model that is named and is not run here, so that nothing seen here
            decides it.
        experiment: what is measured and how; None where nothing here can measure it yet.
        counts: the values of the effect under which the claim holds.
        control: the values of the control under which an effect that was seen has another cause (an artefact); None where
            the experiment has no control.
        command: runs it on the claim's own model, or says what would decide it.
    """

    id: int
    document: DocumentName
    place: str
    statement: str
    model: str
    data: str
    large: bool
    experiment: Experiment | None
    counts: Region | None
    control: Region | None = None
    command: str = ""

    def __post_init__(self) -> None:
        if self.experiment is not None and self.counts is None:
            raise ValueError(f"claim {self.id} has an experiment, but no effect that would count")
        if self.experiment is None and not self.command:
            raise ValueError(f"claim {self.id} has neither an experiment nor a command that would decide it")


CLAIMS: Registry[Claim] = Registry("claim", "headscan.claims.documents")
"""Every claim by its number (as text); `headscan.claims.documents` has one table a document, plug-ins `enter` their own."""


def enter(claim: Claim) -> Claim:
    """Put a claim into the ledger; BadInput where its number is taken."""
    if str(claim.id) in CLAIMS._items:
        raise BadInput(f"Claim {claim.id} is entered twice.")
    return CLAIMS.add(str(claim.id), claim)


def enter_table(document: DocumentName) -> None:
    """Enter the rows of `documents/DOCUMENT.tsv`, one claim a line.

    Columns: id, place, statement, model, data, about ("large" or "here"), experiment and its options (JSON), counts and
    control (JSON lists of two bounds; null is none), command. A cell of one ditto mark is the cell above.
    """
    text = (resources.files("headscan.claims.documents") / f"{document}.tsv").read_text(encoding="utf-8")
    above: dict[str, str] = {}
    for row in csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE):
        above = {name: above[name] if value == '"' else (value or "") for name, value in row.items()}
        enter(_claim(document, above))


def _claim(document: DocumentName, row: dict[str, str]) -> Claim:
    if row["about"] not in ("large", "here") or document not in DOCUMENTS:
        raise BadInput(f"Claim {row['id']} is about a large model or one that is here, not {row['about']!r}.")
    kind = row["experiment"]
    return Claim(
        id=int(row["id"]), document=document, place=row["place"], statement=row["statement"], model=row["model"],
        data=row["data"], large=row["about"] == "large", counts=_region(row["counts"]), control=_region(row["control"]),
        experiment=EXPERIMENTS[kind].of(json.loads(row["options"] or "{}")) if kind else None, command=row["command"],
    )  # fmt: skip


def _region(cell: str) -> Region | None:
    return Region(*json.loads(cell)) if cell else None
