"""The statements of the documents: the claims that are their instances, and their joint verdicts.

Claims repeat one another: several ask the same experiment for the same values. Such a cell is
counted once, and a statement has the verdict of its cells where they agree.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

from headscan_lab.ledger.claim import CLAIMS
from headscan_lab.ledger.experiment import DocumentName
from headscan_lab.ledger.record import ClaimRecord

Word: TypeAlias = Literal[
    "supported", "refuted", "confounded", "misprint", "undecided", "mixed", "not tested"
]
STAND_INS = "stand-ins"
"""The name of the proxies among the models."""


@dataclass(frozen=True, kw_only=True)
class StatementVerdict:
    """The verdict of one model, or of the proxies, on a statement.

    Attributes:
        model: its name.
        verdict: that of all cells that are decided, "mixed" where they differ.
        cells: how many cells have which word.
        proxy: whether no cell is decided on this model, because all are about models of other
            families: the verdict only suggests.
    """

    model: str
    verdict: Word
    cells: dict[str, int]
    proxy: bool


@dataclass(frozen=True, kw_only=True)
class StatementRecord:
    """A statement of a document and what was found of it.

    Attributes:
        id, document: S1 of the slides, P1 of the paper, A1 of the article, F1 of the field.
        statement: what is said, in our words.
        instances: the claims that were run of it.
        controls: what must come out the other way.
        verdict: that of the models that decide, "mixed" where they differ, "not tested" where none
            is more than a proxy.
        models: what each model says.
    """

    id: str
    document: DocumentName
    statement: str
    instances: list[int]
    controls: str
    verdict: Word
    models: list[StatementVerdict]


@cache
def statement_table() -> tuple[dict[str, str], ...]:
    """Return the rows of data/statements.tsv: id, document, statement, claims, control."""
    path = resources.files("headscan_lab.ledger") / "data" / "statements.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def statements(records: Iterable[ClaimRecord]) -> list[StatementRecord]:
    """Return the statements that the claims of a run are instances of.

    Claims of plug-ins are instances of none.
    """
    record_by_number = {record.id: record for record in records}
    found_statements = []
    for row in statement_table():
        numbers = [int(number) for number in row["claims"].split()]
        instances = [record_by_number[n] for n in numbers if n in record_by_number]
        if instances:
            found_statements.append(_statement(row, instances))
    return found_statements


def _statement(row: dict[str, str], instances: Sequence[ClaimRecord]) -> StatementRecord:
    models = [STAND_INS]
    for record in instances:
        models += [trial.model for trial in record.trials]
    verdicts = [_verdict_of(instances, model) for model in dict.fromkeys(models)]
    deciding = [item.verdict for item in verdicts if not item.proxy]
    return StatementRecord(
        id=row["id"],
        document=instances[0].document,
        statement=row["statement"],
        instances=[record.id for record in instances],
        controls=row["control"],
        verdict=joint_verdict(deciding),
        models=verdicts,
    )


def _verdict_of(instances: Sequence[ClaimRecord], model: str) -> StatementVerdict:
    """Return a model's verdict on a statement: each of its cells counts once.

    Where some cells are decided on this model, those alone count.
    """
    decided: dict[object, Word] = {}
    suggested: dict[object, Word] = {}
    for record in instances:
        claim = CLAIMS[str(record.id)]
        word, is_decided = _word(record, model, not claim.large)
        if word is not None:
            cell = (claim.experiment, claim.counts, claim.control)
            (decided if is_decided else suggested).setdefault(cell, word)
    verdicts = list((decided or suggested).values())
    return StatementVerdict(
        model=model,
        verdict=joint_verdict(verdicts),
        cells=dict(Counter(verdicts)),
        proxy=not decided,
    )


def _word(record: ClaimRecord, model: str, general: bool) -> tuple[Word | None, bool]:
    """Return what a model says to a claim, and whether that decides the claim.

    Args:
        general: whether the claim is about no named model, so that proxies decide it.
    """
    if model == STAND_INS:
        word = "misprint" if record.verdict == "misprint" else record.tendency
        return word, general
    trial = next((trial for trial in record.trials if trial.model == model), None)
    if trial is None:
        return None, False
    if trial.tendency == "refuted" and CLAIMS[str(record.id)].corrected:
        return "misprint", trial.decides
    return trial.tendency, trial.decides


def joint_verdict(verdicts: Sequence[Word]) -> Word:
    """Return what several verdicts say together.

    >>> joint_verdict(["supported", "undecided"]), joint_verdict(["supported", "refuted"])
    ('supported', 'mixed')
    >>> joint_verdict(["undecided"]), joint_verdict([])
    ('undecided', 'not tested')
    """
    decided = {word for word in verdicts if word not in ("undecided", "not tested")}
    if len(decided) == 1:
        return next(iter(decided))
    if decided:
        return "mixed"
    return "undecided" if "undecided" in verdicts else "not tested"
