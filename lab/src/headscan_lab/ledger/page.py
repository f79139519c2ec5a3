"""What was learnt about the documents: sentences that rest on claims, and are said only where those bear them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from headscan_lab.ledger.experiment import DOCUMENTS, PROMPTS, SEEDS, VERDICTS, DocumentName, Tendency
from headscan_lab.ledger.record import ClaimRecord
from headscan_lab.ledger.run import ReproduceResult, all_claims

ENOUGH = 0.8
"""The share of a sentence's claims that must have come out as it says."""


@dataclass(frozen=True)
class Lesson:
    """A clause `said` of a document, true where the `claims` it rests on came out with this `tendency`."""

    document: DocumentName
    tendency: Tendency
    claims: tuple[int, ...]
    said: str


LESSONS = (
    Lesson(
        "slides", "holds here", (205, 206),
        "words are as Zipfian as the slides say, and most states push most of them away",
    ),
    Lesson(
        "slides", "fails here", (203, 204, 209, 210),
        "but the last states of small models lie in no cone that headless training could widen",
    ),
    Lesson(
        "slides", "holds here", (208, 211, 212),
        "headless training does lead a state to the next word's embedding, in less time and memory",
    ),
    Lesson(
        "paper", "holds here", (402, 405, 406, 409, 410, 411, 416, 417, 418, 419),
        "where features are free, the solution, the path to it and the collapse are what the theory says",
    ),
    Lesson(
        "paper", "fails here", (401, 403, 404, 421),
        "four formulas are not true as they are printed",
    ),
    Lesson(
        "paper", "fails here", (415,),
        "a small transformer on stories stays well away from the geometry predicted for it",
    ),
    Lesson(
        "article", "artefact", (75, 77, 78, 80, 82, 83, 84, 85, 87, 89, 92, 94, 99, 102, 103, 106, 107, 108, 109),
        "that a token is lost where its output is hidden is a failure of the descent: a search of the same outputs finds it",
    ),
    Lesson(
        "article", "fails here", (1, 2, 34, 35, 36, 37, 38, 39, 41, 71),
        "the published descent gives back less of a small trained model's prompts than it is said to of large ones",
    ),
    Lesson(
        "article", "fails here", (15,),
        "the pseudo-inverse of a random embedding does invert it",
    ),
    Lesson(
        "article", "fails here", (127,),
        "in a family of 40 small trained models the wider do not give more of their input back",
    ),
    Lesson(
        "field", "fails here", (301, 302, 303),
        "neither depth nor four bits nor a little noise protects a small model's text",
    ),
)  # fmt: skip


def learnt_of(document: DocumentName, tendencies: Mapping[int, Tendency]) -> list[str]:
    """The sentences of a document that these tendencies of claims bear out, each with how many claims do.

    >>> learnt_of("field", {301: "fails here", 302: "fails here", 303: "fails here"})
    ["neither depth nor four bits nor a little noise protects a small model's text (3 of 3: 301-303)"]
    >>> learnt_of("field", {301: "holds here", 302: "fails here", 303: "fails here"})
    []
    """
    found = []
    for lesson in LESSONS:
        borne = [number for number in lesson.claims if tendencies.get(number) == lesson.tendency]
        if lesson.document == document and len(borne) >= ENOUGH * len(lesson.claims):
            found.append(f"{lesson.said} ({len(borne)} of {len(lesson.claims)}: {_ranges(borne)})")
    return found


def _ranges(numbers: list[int]) -> str:
    """Numbers in order, neighbours as ranges."""
    cuts = [0, *(k + 1 for k, (a, b) in enumerate(pairwise(numbers)) if b != a + 1), len(numbers)]
    parts = [numbers[a:b] for a, b in pairwise(cuts)]
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


# ---- The ledger as a page of the documentation.


def ledger_page(result: ReproduceResult) -> str:
    """The ledger as Markdown: counts, what was learnt, a table a document; claims that were not run now are listed, too,
    but on a page of trained models that were given."""
    counts = Counter(row.verdict for row in result.claims)
    tendencies = Counter(row.tendency for row in result.claims if row.verdict == "about a larger model" and row.tendency)
    known, run = all_claims(), {row.id: row for row in result.claims}
    on = list(dict.fromkeys(trial.model for row in result.claims for trial in row.trials))
    lines = [
        f"# The ledger{', tried on ' + ' and '.join(on) if on else ''}",
        "",
        f"{len(run)} of {len(known)} claims were run: " + ", ".join(f"{name} {counts[name]}" for name in VERDICTS) + ".",
        "Tendencies of stand-ins for what is about larger models: "
        + (", ".join(f"{name} {number}" for name, number in tendencies.items()) or "none")
        + ".",
        "",
        learnt(result.claims),
        "",
        "Written by `headscan reproduce --page lab/docs/ledger.md`. Each claim was run under a protocol written before it",
        "(statement, place, model and data, stand-ins, quantity, the effect that counts, test, scope, power), which the page",
        "and the JSON of the result show in full. A verdict is of the stand-ins; of a model that is named and not run here",
        "only a tendency is told. *Artefact*: the effect was seen here, and a control showed another cause.",
        f"What descents find rests on {SEEDS * PROMPTS} prompts of {SEEDS} seeds or more; what stays undecided is looked at once",
        f"more, with {4 * SEEDS * PROMPTS}, and the interval of the second look is not widened for the first.",
    ]
    if not on:
        lines += ["", "What is said of trained models in general was tried on two real ones, too, [beside it](ledger-real.md)."]
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
        "" if row.interval is None or row.interval[0] == row.interval[1] else f" [{row.interval[0]:.3g}, {row.interval[1]:.3g}]"
    )
    effect = "" if row.effect is None else f"{row.effect:.3g}{ends}"
    verdict = row.verdict + (f" ({row.tendency} on stand-ins)" if row.verdict == "about a larger model" and row.tendency else "")
    trials = [f"{one.tendency or 'not tried'} on {one.model}" for one in row.trials]
    verdict += f"; {', '.join(trials)}" if trials else ""
    why = " ".join([row.why, *(f"On {one.model}: {one.why}" for one in row.trials)])
    why += f" Decided by `{row.command}`." if row.command else ""
    return f"| {row.id} | {_cell(row.statement)} | {verdict} | {effect} | {_cell(why)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
