"""What the documents say, a row a statement: the claims that are its instances, and what they say together, model by model.

Claims repeat one another: several ask the same experiment for the same values. Such a cell is counted once, and a statement has
the verdict of its cells where they agree.
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

Word: TypeAlias = Literal["supported", "refuted", "confounded", "misprint", "undecided", "mixed", "not tested"]
STAND_INS = "stand-ins"


@dataclass(frozen=True, kw_only=True)
class StatementVerdict:
    """What one model, or the stand-ins, say to a statement.

    Attributes:
        model: its name.
        verdict: that of all cells that are decided, "mixed" where they differ.
        cells: how many cells have which word.
        proxy: whether no cell is decided on this model, all being about models of other families: what is seen only suggests.
    """

    model: str
    verdict: Word
    cells: dict[str, int]
    proxy: bool


@dataclass(frozen=True, kw_only=True)
class StatementRecord:
    """A statement of a document and what came of it.

    Attributes:
        id, document, statement: S1 of the slides, P1 of the paper, A1 of the article, F1 of the field; what is said, in our
            words.
        instances: the claims that were run of it; controls: what must come out the other way.
        verdict: where models decide and agree theirs, "mixed" where they differ, "not tested" where none is more than a proxy.
        models: what each says.
    """

    id: str
    document: DocumentName
    statement: str
    instances: list[int]
    controls: str
    verdict: Word
    models: list[StatementVerdict]


@cache
def table() -> tuple[dict[str, str], ...]:
    """The rows of data/statements.tsv: id, document, statement, claims (numbers), control."""
    text = (resources.files("headscan_lab.ledger") / "data" / "statements.tsv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def statements(rows: Iterable[ClaimRecord]) -> list[StatementRecord]:
    """The statements that the claims of a run are instances of; claims of plug-ins are in none."""
    run = {row.id: row for row in rows}
    found = []
    for row in table():
        claims = [run[number] for number in map(int, row["claims"].split()) if number in run]
        if claims:
            given = list(dict.fromkeys(trial.model for one in claims for trial in one.trials))
            models = [_said(claims, model) for model in (STAND_INS, *given)]
            verdict = joined([one.verdict for one in models if not one.proxy]) if models else "not tested"
            found.append(StatementRecord(
                id=row["id"], document=claims[0].document, statement=row["statement"], instances=[one.id for one in claims],
                controls=row["control"], verdict=verdict, models=models,
            ))  # fmt: skip
    return found


def _said(claims: Sequence[ClaimRecord], model: str) -> StatementVerdict:
    """Of the cells of a statement, each once; where some are decided on this model, of those alone."""
    cells: dict[bool, dict[object, Word]] = {True: {}, False: {}}
    for row in claims:
        claim = CLAIMS[str(row.id)]
        word, decided = _word(row, model, not claim.large)
        if word is not None:
            cells[decided].setdefault((claim.experiment, claim.counts, claim.control), word)
    proxy = not cells[True]
    words = list(cells[not proxy].values())
    return StatementVerdict(model=model, verdict=joined(words), cells=dict(Counter(words)), proxy=proxy)


def _word(row: ClaimRecord, model: str, general: bool) -> tuple[Word | None, bool]:
    """What a model says to a claim, and whether that decides it."""
    if model == STAND_INS:
        return "misprint" if row.verdict == "misprint" else row.tendency, general
    found = next((trial for trial in row.trials if trial.model == model), None)
    if found is not None and found.tendency == "refuted" and CLAIMS[str(row.id)].corrected:
        return "misprint", found.decides
    return (None, False) if found is None else (found.tendency, found.decides)


def joined(words: Sequence[Word]) -> Word:
    """What several say together.

    >>> joined(["supported", "undecided"]), joined(["supported", "refuted"]), joined(["undecided"]), joined([])
    ('supported', 'mixed', 'undecided', 'not tested')
    """
    decided = {word for word in words if word not in ("undecided", "not tested")}
    if len(decided) == 1:
        return next(iter(decided))
    return "mixed" if decided else "undecided" if "undecided" in words else "not tested"
