"""The ledger as a page of the documentation."""

from __future__ import annotations

from collections import Counter

from headscan.claims.experiment import PROMPTS, SEEDS
from headscan.claims.ledger import ReproduceResult, all_claims
from headscan.claims.lessons import learnt_of
from headscan.claims.protocol import DOCUMENTS, VERDICTS, Tendency
from headscan.claims.record import ClaimRecord

__all__ = ["ledger_page"]


def ledger_page(result: ReproduceResult) -> str:
    """The ledger as Markdown: counts, what was learnt, a table a document; claims that were not run now are listed, too,
    but on a page of trained models that were given."""
    counts = Counter(row.verdict for row in result.claims)
    tendencies = Counter(
        row.tendency for row in result.claims if row.verdict == "about a larger model" and row.tendency
    )
    known, run = all_claims(), {row.id: row for row in result.claims}
    on = list(dict.fromkeys(trial.model for row in result.claims for trial in row.trials))
    lines = [
        f"# The ledger{', tried on ' + ' and '.join(on) if on else ''}",
        "",
        f"{len(run)} of {len(known)} claims were run: "
        + ", ".join(f"{name} {counts[name]}" for name in VERDICTS)
        + ".",
        "Tendencies of stand-ins for what is about larger models: "
        + (", ".join(f"{name} {number}" for name, number in tendencies.items()) or "none")
        + ".",
        "",
        learnt(result.claims),
        "",
        "Written by `headscan reproduce --page docs/ledger.md`. Each claim was run under a protocol written before it",
        "(statement, place, model and data, stand-ins, quantity, the effect that counts, test, scope, power), which the page",
        "and the JSON of the result show in full. A verdict is of the stand-ins; of a model that is named and not run here",
        "only a tendency is told. *Artefact*: the effect was seen here, and a control showed another cause.",
        f"What descents find rests on {SEEDS * PROMPTS} prompts of {SEEDS} seeds or more; what stays undecided is looked at once",
        f"more, with {4 * SEEDS * PROMPTS}, and the interval of the second look is not widened for the first.",
    ]
    if not on:
        lines += [
            "",
            "What is said of trained models in general was tried on two real ones, too, [beside it](ledger-real.md).",
        ]
    listed = [claim for number, claim in known.items() if number in run or not on]
    for document, title in DOCUMENTS.items():
        claims = [claim for claim in listed if claim.document == document]
        if claims:
            lines += ["", f"## {title}", "", "| claim | statement | verdict | effect | why |", "|---|---|---|---|---|"]
        for claim in claims:
            row = run.get(claim.id)
            lines.append(_line(row) if row else f"| {claim.id} | {_cell(claim.statement)} | not run | | |")
    return "\n".join(lines) + "\n"


def learnt(rows: list[ClaimRecord]) -> str:
    """One paragraph: of each document how its claims came out, and the sentences that those bear out (`lessons`)."""
    said = []
    for document in DOCUMENTS:
        tried = {row.id: row.tendency for row in rows if row.document == document and row.tendency}
        count = Counter(tried.values())
        if tried:
            parts = [f"{count[word]} {words}" for word, words in WORDS.items() if count[word]]
            lessons = learnt_of(document, tried)
            said.append(
                f"Of {len(tried)} claims of the {document} that were tried, {', '.join(parts)}"
                + (f": {'; '.join(lessons)}" if lessons else "")
            )
    return ". ".join(said) + "." if said else "No experiment was run."


WORDS: dict[Tendency, str] = {
    "holds here": "hold on the stand-ins", "fails here": "fail on them", "artefact": "are seen again for another reason",
    "undecided": "stay undecided at this power",
}  # fmt: skip


def _line(row: ClaimRecord) -> str:
    ends = (
        ""
        if row.interval is None or row.interval[0] == row.interval[1]
        else f" [{row.interval[0]:.3g}, {row.interval[1]:.3g}]"
    )
    effect = "" if row.effect is None else f"{row.effect:.3g}{ends}"
    verdict = row.verdict + (
        f" ({row.tendency} on stand-ins)" if row.verdict == "about a larger model" and row.tendency else ""
    )
    trials = [f"{one.tendency or 'not tried'} on {one.model}" for one in row.trials]
    verdict += f"; {', '.join(trials)}" if trials else ""
    why = " ".join([row.why, *(f"On {one.model}: {one.why}" for one in row.trials)])
    why += f" Decided by `{row.command}`." if row.command else ""
    return f"| {row.id} | {_cell(row.statement)} | {verdict} | {effect} | {_cell(why)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
