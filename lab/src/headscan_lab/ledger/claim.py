"""A claim with its protocol, written before its experiment is run; and the ledger of all claims."""

import csv
import json
from dataclasses import dataclass
from importlib import resources

from headscan.run import BadInput, Registry
from headscan_lab.ledger.experiment import DOCUMENTS, EXPERIMENTS, DocumentName, Experiment, Region


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim with its protocol.

    Attributes:
        id: number in the ledger: from 1 the article, 201 the slides, 301 the field, 401 the paper,
            501 the later papers.
        document, place: where the claim stands: a slide, page, section or figure.
        statement: what is said, one sentence.
        model, data: what it is about.
        large: whether a model is named that is not run here, so that no proxy decides the claim.
        experiment: what is measured and how; None where nothing here can measure it yet.
        counts: the values of the effect under which the claim holds.
        control: the values of the control under which an effect that was seen has another cause
            (confounded); None where the experiment has no control.
        command: runs the claim on its own model, or says what would decide it.
        corrected: the formula that holds, where the printed one does not.
        untried: why nothing here measures the claim, a sentence.
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
    corrected: str = ""
    untried: str = ""

    def __post_init__(self) -> None:
        if self.experiment is not None and self.counts is None:
            raise ValueError(f"claim {self.id} has an experiment, but no effect that would count")
        if self.experiment is None and not self.command:
            raise ValueError(
                f"claim {self.id} has neither an experiment nor a command that would decide it"
            )


CLAIMS: Registry[Claim] = Registry("claim", "headscan_lab.ledger.claim")
"""Every claim by its number (as text).

`headscan_lab.ledger` has one table a document; plug-ins `enter` their own claims.
"""


def enter(claim: Claim) -> Claim:
    """Put a claim into the ledger; raise BadInput where it has the number of another."""
    if str(claim.id) in CLAIMS._items:
        raise BadInput(f"Claim {claim.id} is entered twice.")
    return CLAIMS.add(str(claim.id), claim)


def enter_table(document: DocumentName) -> None:
    """Enter the rows of `data/DOCUMENT.tsv`, one claim a line.

    Columns: id, place, statement, model, data, about ("large" or "here"), experiment and its
    options (JSON), counts and control (JSON lists of two bounds; null is none), command; of the
    paper also corrected, of the slides also untried. A cell of one ditto mark is the cell above.
    """
    path = resources.files("headscan_lab.ledger") / "data" / f"{document}.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()
    above: dict[str, str] = {}
    for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        filled = {}
        for name, value in row.items():
            filled[name] = above[name] if value == '"' else (value or "")
        enter(_claim(document, filled))
        above = filled


def _claim(document: DocumentName, row: dict[str, str]) -> Claim:
    if row["about"] not in ("large", "here") or document not in DOCUMENTS:
        raise BadInput(
            f"Claim {row['id']} is about a large model or one that is here, not {row['about']!r}."
        )
    experiment = None
    if row["experiment"]:
        options = json.loads(row["options"] or "{}")
        experiment = EXPERIMENTS[row["experiment"]].of(options)
    return Claim(
        id=int(row["id"]),
        document=document,
        place=row["place"],
        statement=row["statement"],
        model=row["model"],
        data=row["data"],
        large=row["about"] == "large",
        counts=_region(row["counts"]),
        control=_region(row["control"]),
        experiment=experiment,
        command=row["command"],
        corrected=row.get("corrected", ""),
        untried=row.get("untried", ""),
    )


def _region(cell: str) -> Region | None:
    return Region(*json.loads(cell)) if cell else None


for _document in ("article", "field", "paper", "slides", "later"):  # the tables in data/
    enter_table(_document)
