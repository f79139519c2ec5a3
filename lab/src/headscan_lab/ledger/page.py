"""The ledger as a page of the documentation: statements first, then every claim by document."""

import re
from collections import Counter
from collections.abc import Sequence

from headscan_lab.ledger.claim import Claim
from headscan_lab.ledger.experiment import DOCUMENTS, VERDICTS, DocumentName
from headscan_lab.ledger.measurement import PROMPTS, SEEDS
from headscan_lab.ledger.record import ClaimRecord, ClaimTrial
from headscan_lab.ledger.run import ReproduceResult, all_claims
from headscan_lab.ledger.statements import STAND_INS, StatementRecord, StatementVerdict
from headscan_lab.pages.reproduce import SIGNS, shown, summary

LEADING_STATEMENTS = 20
UNDECIDING = "·"

HOW_TO_READ = f"""\
Written by `headscan reproduce --page lab/docs/ledger.md`. Each claim was run under a protocol
written before it (statement, place, model and data, stand-ins, quantity, the effect that counts,
test, scope, power), which the page and the JSON of the result show in full. A verdict is of the
stand-ins; of a model that is named and not run here only what a proxy suggests is told, in
brackets. *Confounded*: the effect was seen here, and a control showed another cause. *Misprint*:
a formula is not true as it is printed, and the corrected one is. A cell is an experiment with the
values that would count; where several claims ask for the same it is run and counted once.
*Mixed*: cells or models differ.

What is said of a named model is decided by trained models of its family that others trained,
whatever their size: what is said of trained Llamas, by Llamas and Qwen2 of 0.26 M to 1.5 G
parameters, the smallest of which were trained on children's stories. The 7 to 70 G of the article
are not here; read the columns from small to large. What is said of untrained models is decided by
random weights in a given model's configuration. What is said of trained GPT-2, GPT-J and BERT is
not tested: no such model is here. Statements on unconstrained features (P1 to P17) are about no
language model: instances decide them, random ones as stand-ins, and under a model's name five
pieces of the shipped stories in its tokens; of it only the tokenizer is used. What a step costs
(S8) is measured on random weights in a model's shape. For their cost some claims are not tried on
a given model: descents through more than twelve blocks; a step's seconds (211) above 50 M
parameters, deletion curves (A12) above 100 M; exact searches of rounded and noisy states (F2, F3)
above 8,192 tokens, of deep ones (F1) above 65,536; and, where the table of tokens has more than
100 M numbers, as Qwen's, all descents but those of A16 and A18 for six tokens at the first block,
and a second model of that size (F4, S8). The numbers 22, 23 and 25 are definitions and a layout,
and make no claim.

What descents find rests on {SEEDS * PROMPTS} prompts of {SEEDS} seeds or more; what stays
undecided is looked at once more, with {4 * SEEDS * PROMPTS}, and the interval of the second look is
not widened for the first."""


def ledger_page(result: ReproduceResult) -> str:
    """Return the ledger as Markdown: counts, a table of statements, and one of claims a document.

    Claims that were not run are listed, too, unless models were tried.
    """
    ledger = all_claims()
    counts = Counter(record.verdict for record in result.claims)
    verdicts = ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS)
    lines = [
        "# The ledger",
        "",
        summary(result.statements),
        "",
        *picture(result.statements),
        "## Twenty sentences",
        "",
        "Each with its number on every model that decides it; the document's section below has "
        "the claims behind it.",
        "",
        *leading_sentences(result),
        "",
        "## Statements",
        "",
        *statement_table(result.statements),
        "",
        "## How to read it",
        "",
        f"{len(result.claims)} of {len(ledger)} claims were run: {verdicts}.",
        HOW_TO_READ,
    ]
    models_were_tried = any(record.trials for record in result.claims)
    records = {record.id: record for record in result.claims}
    for document in DOCUMENTS:
        claims = [
            claim
            for number, claim in ledger.items()
            if claim.document == document and (number in records or not models_were_tried)
        ]
        if claims:
            lines += _document_section(document, claims, records)
    return "\n".join(lines) + "\n"


def _document_section(
    document: DocumentName, claims: Sequence[Claim], records: dict[int, ClaimRecord]
) -> list[str]:
    """Return the table of a document's claims."""
    lines = [
        "",
        f"## {DOCUMENTS[document]}",
        "",
        "| claim | statement | verdict | effect | why |",
        "|---|---|---|---|---|",
    ]
    for claim in claims:
        record = records.get(claim.id)
        if record is None:
            lines.append(f"| {claim.id} | {_cell(claim.statement)} | not run | | |")
        else:
            lines.append(_claim_line(record))
    return lines


def picture(statements: Sequence[StatementRecord]) -> list[str]:
    """Return a text block of signs of verdicts: a line a model and a column a statement."""
    legend = ", ".join(f"{sign} {word}" for word, sign in SIGNS.items())
    lines = ["```text", f"{legend}; {UNDECIDING} nothing that decides", ""]
    for document in dict.fromkeys(statement.document for statement in statements):
        rows = [statement for statement in statements if statement.document == document]
        models = _models_of(rows)
        width = max([8, *(len(model) for model in models)]) + 2
        lines.append(f"{document:{width}}" + "".join(f"{row.id:4}" for row in rows))
        for model in models:
            signs = "".join(f"{_sign(row, model):4}" for row in rows)
            lines.append(f"{model:{width}}" + signs.rstrip())
        lines.append("")
    return [*lines[:-1], "```", ""]


def _models_of(statements: Sequence[StatementRecord]) -> list[str]:
    """Return the names of the models that say something to statements, each once."""
    models = [verdict.model for statement in statements for verdict in statement.models]
    return list(dict.fromkeys(models))


def _sign(statement: StatementRecord, model: str) -> str:
    """Return the sign of a model's verdict; a dot where it decides nothing."""
    for verdict in statement.models:
        if verdict.model == model and verdict.cells:
            return UNDECIDING if verdict.proxy else SIGNS[verdict.verdict]
    return UNDECIDING


def _deciding(statement: StatementRecord) -> list[StatementVerdict]:
    return [verdict for verdict in statement.models if verdict.cells and not verdict.proxy]


def leading_sentences(result: ReproduceResult) -> list[str]:
    """Return the twenty statements about models that most models decide, with a number a model.

    A statement that one model alone decides says so.
    """
    # The paper's statements are about no model.
    about_models = [item for item in result.statements if item.document != "paper"]
    by_models = sorted(about_models, key=lambda statement: -len(_deciding(statement)))
    leading = by_models[:LEADING_STATEMENTS]
    records = {record.id: record for record in result.claims}
    lines: list[str] = []
    for statement in result.statements:
        models = [verdict.model for verdict in _deciding(statement)]
        if statement not in leading or not models:
            continue
        parts = "; ".join(f"{model} {_first_number(statement, model, records)}" for model in models)
        title = DOCUMENTS[statement.document].lower()
        anchor = re.sub(r"[^a-z0-9 -]", "", title).replace(" ", "-")
        alone = " (one model alone)" if len(models) == 1 else ""
        lines.append(
            f"{len(lines) + 1}. [{statement.id}](#{anchor}): {statement.statement} "
            f"*{statement.verdict}*{alone}: {parts}."
        )
    return lines


def _first_number(statement: StatementRecord, model: str, records: dict[int, ClaimRecord]) -> str:
    """Return the number of the first claim that a model measures, and what it says."""
    for number in statement.instances:
        measured = _measured(records[number], model)
        if measured is not None and measured.effect is not None:
            return f"{measured.effect:.3g}{_ends(measured)} ({measured.tendency}, claim {number})"
    return ""


def _measured(record: ClaimRecord, model: str) -> ClaimRecord | ClaimTrial | None:
    """Return what a model measured of a claim and decides; None where there is nothing."""
    if model == STAND_INS:
        return record
    for trial in record.trials:
        if trial.model == model and trial.decides:
            return trial
    return None


def _ends(measured: ClaimRecord | ClaimTrial) -> str:
    low, high = measured.interval or (0.0, 0.0)
    return "" if low == high else f" [{low:.3g}, {high:.3g}]"


def statement_table(statements: Sequence[StatementRecord]) -> list[str]:
    """Return a Markdown table, a row a statement and a column a model."""
    models = _models_of(statements)
    head = ["", "statement", "verdict", *models, "control", "claims"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for statement in statements:
        verdicts = {verdict.model: shown(verdict) for verdict in statement.models}
        cells = [
            statement.id,
            statement.statement,
            f"{SIGNS[statement.verdict]} {statement.verdict}",
            *(verdicts.get(model, "") for model in models),
            statement.controls,
            ", ".join(map(str, statement.instances)),
        ]
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return lines


def _claim_line(record: ClaimRecord) -> str:
    """Return a claim's row of its document's table."""
    effect = "" if record.effect is None else f"{record.effect:.3g}{_ends(record)}"
    verdict: str = record.verdict
    if record.verdict == "not tested" and record.tendency:
        verdict += f" (stand-ins suggest: {record.tendency})"
    trials = [f"{trial.tendency or 'not tried'} on {trial.model}" for trial in record.trials]
    if trials:
        verdict += f"; {', '.join(trials)}"
    why = " ".join([record.why, *(f"On {trial.model}: {trial.why}" for trial in record.trials)])
    if record.command:
        why += f" Decided by `{record.command}`."
    return f"| {record.id} | {_cell(record.statement)} | {verdict} | {effect} | {_cell(why)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
