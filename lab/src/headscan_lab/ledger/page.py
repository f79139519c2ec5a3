"""The ledger as a page of the documentation: a row a statement, then every claim under its document."""

from __future__ import annotations

from collections import Counter

from headscan_lab.ledger.experiment import DOCUMENTS, PROMPTS, SEEDS, VERDICTS
from headscan_lab.ledger.record import ClaimRecord
from headscan_lab.ledger.run import ReproduceResult, all_claims
from headscan_lab.ledger.statements import StatementRecord
from headscan_lab.pages.reproduce import SIGNS, shown, summary

# ---- The ledger as a page of the documentation.


def ledger_page(result: ReproduceResult) -> str:
    """The ledger as Markdown: counts, a table of statements, one of claims a document; claims that were not run are listed, too,
    but where models were given."""
    counts = Counter(row.verdict for row in result.claims)
    known, run = all_claims(), {row.id: row for row in result.claims}
    on = any(row.trials for row in result.claims)
    lines = [
        "# The ledger",
        "",
        summary(result.statements),
        "",
        *statement_table(result.statements),
        "",
        "## How to read it",
        "",
        f"{len(run)} of {len(known)} claims were run: " + ", ".join(f"{name} {counts[name]}" for name in VERDICTS) + ".",
        "Written by `headscan reproduce --page lab/docs/ledger.md`. Each claim was run under a protocol written before it",
        "(statement, place, model and data, stand-ins, quantity, the effect that counts, test, scope, power), which the page",
        "and the JSON of the result show in full. A verdict is of the stand-ins; of a model that is named and not run here",
        "only what a proxy suggests is told, in brackets. *Confounded*: the effect was seen here, and a control showed another",
        "cause. *Misprint*: a formula is not true as it is printed, and the corrected one is. A cell is an experiment with the",
        "values that would count; where several claims ask for the same it is run and counted once. *Mixed*: cells or models",
        "differ.",
        f"What descents find rests on {SEEDS * PROMPTS} prompts of {SEEDS} seeds or more; what stays undecided is looked at once",
        f"more, with {4 * SEEDS * PROMPTS}, and the interval of the second look is not widened for the first.",
    ]
    for document, title in DOCUMENTS.items():
        claims = [claim for number, claim in known.items() if (number in run or not on) and claim.document == document]
        if claims:
            lines += ["", f"## {title}", "", "| claim | statement | verdict | effect | why |", "|---|---|---|---|---|"]
        for claim in claims:
            row = run.get(claim.id)
            lines.append(_line(row) if row else f"| {claim.id} | {_cell(claim.statement)} | not run | | |")
    return "\n".join(lines) + "\n"


def statement_table(found: list[StatementRecord]) -> list[str]:
    """A Markdown table, a row a statement and a column a model."""
    models = list(dict.fromkeys(each.model for one in found for each in one.models))
    head = ["", "statement", "verdict", *models, "control", "claims"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for one in found:
        said = {each.model: shown(each) for each in one.models}
        cells = [one.id, one.statement, f"{SIGNS[one.verdict]} {one.verdict}", *(said.get(model, "") for model in models)]
        lines.append(f"| {' | '.join(map(_cell, [*cells, one.controls, ', '.join(map(str, one.instances))]))} |")
    return lines


def _line(row: ClaimRecord) -> str:
    ends = (
        "" if row.interval is None or row.interval[0] == row.interval[1] else f" [{row.interval[0]:.3g}, {row.interval[1]:.3g}]"
    )
    effect = "" if row.effect is None else f"{row.effect:.3g}{ends}"
    verdict = row.verdict + (f" (stand-ins suggest: {row.tendency})" if row.verdict == "not tested" and row.tendency else "")
    trials = [f"{one.tendency or 'not tried'} on {one.model}" for one in row.trials]
    verdict += f"; {', '.join(trials)}" if trials else ""
    why = " ".join([row.why, *(f"On {one.model}: {one.why}" for one in row.trials)])
    why += f" Decided by `{row.command}`." if row.command else ""
    return f"| {row.id} | {_cell(row.statement)} | {verdict} | {effect} | {_cell(why)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
