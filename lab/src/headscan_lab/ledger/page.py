"""The ledger as a page of the documentation: a row a statement, then every claim under its
document.
"""

import re
from collections import Counter

from headscan_lab.ledger.experiment import DOCUMENTS, VERDICTS
from headscan_lab.ledger.measurement import PROMPTS, SEEDS
from headscan_lab.ledger.record import ClaimRecord, ClaimTrial
from headscan_lab.ledger.run import ReproduceResult, all_claims
from headscan_lab.ledger.statements import STAND_INS, StatementRecord
from headscan_lab.pages.reproduce import SIGNS, shown, summary

# ---- The ledger as a page of the documentation.


def ledger_page(result: ReproduceResult) -> str:
    """The ledger as Markdown: counts, a table of statements, one of claims a document; claims that
    were not run are listed, too, but where models were given.
    """
    counts = Counter(row.verdict for row in result.claims)
    known = all_claims()
    run = {row.id: row for row in result.claims}
    on = any(row.trials for row in result.claims)
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
        *sentences(result),
        "",
        "## Statements",
        "",
        *statement_table(result.statements),
        "",
        "## How to read it",
        "",
        f"{len(run)} of {len(known)} claims were run: "
        + ", ".join(f"{name} {counts[name]}" for name in VERDICTS)
        + ".",
        "Written by `headscan reproduce --page lab/docs/ledger.md`. Each claim was run under a "
        "protocol written before it",
        "(statement, place, model and data, stand-ins, quantity, the effect that counts, test, "
        "scope, power), which the page",
        "and the JSON of the result show in full. A verdict is of the stand-ins; of a model that "
        "is named and not run here",
        "only what a proxy suggests is told, in brackets. *Confounded*: the effect was seen "
        "here, and a control showed another",
        "cause. *Misprint*: a formula is not true as it is printed, and the corrected one is. A "
        "cell is an experiment with the",
        "values that would count; where several claims ask for the same it is run and counted "
        "once. *Mixed*: cells or models",
        "differ.",
        "",
        "What is said of a named model is decided by trained models of its family that others "
        "trained, whatever their size: what",
        "is said of trained Llamas, by Llamas and Qwen2 of 0.26 M to 1.5 G parameters, the "
        "smallest of which were trained on",
        "children's stories. The 7 to 70 G of the article are not here; read the columns from "
        "small to large. What is said of",
        "untrained models is decided by random weights in a given model's configuration. What is "
        "said of trained GPT-2, GPT-J",
        "and BERT is not tested: no such model is here. Statements on unconstrained features (P1 "
        "to P17) are about no language",
        "model: instances decide them, random ones as stand-ins, and under a model's name five "
        "pieces of the shipped stories in",
        "its tokens; of it only the tokenizer is used. What a step costs (S8) is measured on "
        "random weights in a model's",
        "shape. For their cost some claims are not tried on a given model: descents through more "
        "than twelve blocks; a step's",
        "seconds (211) above 50 M parameters, deletion curves (A12) above 100 M; exact searches "
        "of rounded and noisy states (F2,",
        "F3) above 8,192 tokens, of deep ones (F1) above 65,536; and, where the table of tokens "
        "has more than 100 M numbers, as",
        "Qwen's, all descents but those of A16 and A18 for six tokens at the first block, and a "
        "second model of that size (F4,",
        "S8). The numbers 22, 23 and 25 are definitions and a layout, and make no claim.",
        "",
        f"What descents find rests on {SEEDS * PROMPTS} prompts of {SEEDS} seeds or more; what "
        "stays undecided is looked at once",
        f"more, with {4 * SEEDS * PROMPTS}, and the interval of the second look is not widened "
        "for the first.",
    ]
    for document, title in DOCUMENTS.items():
        claims = [
            claim
            for number, claim in known.items()
            if (number in run or not on) and claim.document == document
        ]
        if claims:
            lines += [
                "",
                f"## {title}",
                "",
                "| claim | statement | verdict | effect | why |",
                "|---|---|---|---|---|",
            ]
        for claim in claims:
            row = run.get(claim.id)
            lines.append(
                _line(row) if row else f"| {claim.id} | {_cell(claim.statement)} | not run | | |"
            )
    return "\n".join(lines) + "\n"


def picture(found: list[StatementRecord]) -> list[str]:
    """Statements by verdict and model, a line a model: the signs of a document's statements."""
    lines = [
        "```text",
        ", ".join(f"{sign} {word}" for word, sign in SIGNS.items()) + "; · nothing that decides",
        "",
    ]
    for document in dict.fromkeys(one.document for one in found):
        rows = [one for one in found if one.document == document]
        models = list(dict.fromkeys(each.model for row in rows for each in row.models))
        wide = max([8, *(len(one) for one in models)]) + 2
        lines.append(f"{document:{wide}}" + "".join(f"{row.id:4}" for row in rows))
        for model in models:
            said = [
                next((each for each in row.models if each.model == model and each.cells), None)
                for row in rows
            ]
            signs = [SIGNS[one.verdict] if one and not one.proxy else "·" for one in said]
            lines.append(f"{model:{wide}}" + "".join(f"{sign:4}" for sign in signs).rstrip())
        lines.append("")
    return [*lines[:-1], "```", ""]


def sentences(result: ReproduceResult) -> list[str]:
    """The twenty statements about models that most of them decide, each with a number a model;
    where it is one, that is said.
    """
    rows = {row.id: row for row in result.claims}
    lines = list[str]()
    deciding = {
        one.id: [each.model for each in one.models if each.cells and not each.proxy]
        for one in result.statements
    }
    of_models = [
        one for one in result.statements if one.document != "paper"
    ]  # whose statements are about no model
    first = sorted(of_models, key=lambda one: -len(deciding[one.id]))[:20]
    for one in (each for each in result.statements if each in first and deciding[each.id]):
        parts = "; ".join(f"{model} {_first(one, model, rows)}" for model in deciding[one.id])
        anchor = re.sub(r"[^a-z0-9 -]", "", DOCUMENTS[one.document].lower()).replace(" ", "-")
        alone = " (one model alone)" * (len(deciding[one.id]) == 1)
        lines.append(
            f"{len(lines) + 1}. [{one.id}](#{anchor}): {one.statement} *{one.verdict}*{alone}: "
            f"{parts}."
        )
    return lines


def _first(one: StatementRecord, model: str, rows: dict[int, ClaimRecord]) -> str:
    """The number of the first claim of a statement that a model measures, and what it says to it."""
    for number in one.instances:
        row = rows[number]
        found = (
            [row]
            if model == STAND_INS
            else [each for each in row.trials if each.model == model and each.decides]
        )
        if found and found[0].effect is not None:
            return f"{found[0].effect:.3g}{_ends(found[0])} ({found[0].tendency}, claim {number})"
    return ""


def _ends(one: ClaimRecord | ClaimTrial) -> str:
    low, high = one.interval or (0.0, 0.0)
    return "" if low == high else f" [{low:.3g}, {high:.3g}]"


def statement_table(found: list[StatementRecord]) -> list[str]:
    """A Markdown table, a row a statement and a column a model."""
    models = list(dict.fromkeys(each.model for one in found for each in one.models))
    head = ["", "statement", "verdict", *models, "control", "claims"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for one in found:
        said = {each.model: shown(each) for each in one.models}
        cells = [
            one.id,
            one.statement,
            f"{SIGNS[one.verdict]} {one.verdict}",
            *(said.get(model, "") for model in models),
        ]
        lines.append(
            "| "
            f"{' | '.join(map(_cell, [*cells, one.controls, ', '.join(map(str, one.instances))]))} "
            "|"
        )
    return lines


def _line(row: ClaimRecord) -> str:
    effect = "" if row.effect is None else f"{row.effect:.3g}{_ends(row)}"
    verdict = row.verdict + (
        f" (stand-ins suggest: {row.tendency})"
        if row.verdict == "not tested" and row.tendency
        else ""
    )
    trials = [f"{one.tendency or 'not tried'} on {one.model}" for one in row.trials]
    verdict += f"; {', '.join(trials)}" if trials else ""
    why = " ".join([row.why, *(f"On {one.model}: {one.why}" for one in row.trials)])
    why += f" Decided by `{row.command}`." if row.command else ""
    return f"| {row.id} | {_cell(row.statement)} | {verdict} | {effect} | {_cell(why)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
