"""The ledger as a page of the documentation: a lecturer's table, then details a statement."""

import re
from collections.abc import Sequence

from headscan_lab.ledger.independent import INDEPENDENT, SAME_PROTOCOL
from headscan_lab.ledger.measurement import Measurement
from headscan_lab.ledger.run import ClaimRecord, ModelFinding, ReproduceResult, all_statements
from headscan_lab.ledger.statement import DOCUMENTS
from headscan_lab.ledger.untested import NOT_TESTED
from headscan_lab.pages.reproduce import MEANINGS, NOTES, SIGNS, summary, with_interval

HOW_TO_READ = """\
Written by `headscan reproduce --page lab/docs/ledger.md`; `make ledger` runs it on the models that
are at hand. The protocol of each statement is in the code. The bounds of formulas follow from the
formulas. All other bounds are this project's own, and most were set after values of an earlier
edition or of independent code had been seen: they say what a verdict means, and are no predictions.

A verdict is about the sentence as far as it was tried here: what is said of GPT-2, GPT-J and Llamas
of 7 to 70 billion parameters is measured on smaller models of the same architecture, which each row
names. Descents are tuned on held-out prompts before they are judged, for statements that a method
works and for statements that it fails alike. Whatever is fitted is judged on data that it has not
seen. Every statement has a planted case, whose answer is known; a statement whose planted case came
out wrong would be *not tested*. Models that share a tokenizer count as one; where an experiment
makes its own models, the row says so."""
FIRST_NUMBERS = """\
What each author would look for first:

- Godey: the cone by layer of a trained model and of its random-weight control: the numbers of S1;
  of every layer: `headscan scan MODEL --text TEXT --null`, [real models](methods/real-models.md).
- Thrampoulidis: similarity of words and contexts with the predicted geometry, and the collapse of
  contexts with equal supports: P7 and P8 of free features, P11 and P12 of a transformer.
- Badger: tokens recovered at the first and at a deep block, by descent beside an exact search: A1
  to A7 by model; by depth and size: [measurements](benchmarks.md)."""


def ledger_page(result: ReproduceResult) -> str:
    """Return the ledger as Markdown: a table, details, and what is not tested."""
    seconds = sum(record.seconds for record in result.claims)
    lines = [
        "# The ledger",
        "",
        summary(result.claims),
        "",
        HOW_TO_READ,
        "",
        *_models(result),
        *(f"- *{name}*: {meaning}" for name, meaning in (MEANINGS | NOTES).items()),
        "",
        FIRST_NUMBERS,
        "",
        "## The statements",
        "",
        "| | Statement | Verdict | Measured | Numbers by model (the value that decides) "
        "| Control |",
        "|---|---|---|---|---|---|",
        *(_row(record) for record in result.claims),
        "",
        *_not_tried(result),
        *_independent(result),
        "## Not tested, and why",
        "",
        "| Document | Statement | Why |",
        "|---|---|---|",
        *(f"| {document} | {statement} | {why} |" for document, statement, why in NOT_TESTED),
        "",
        "## Details",
        "",
    ]
    for record in result.claims:
        lines += _details(record)
    lines.append(f"All experiments took {seconds / 60:.0f} minutes of one processor.")
    return "\n".join(lines) + "\n"


def _models(result: ReproduceResult) -> list[str]:
    """Return a line on each model that was tried."""
    lines = []
    for model in result.models:
        size = f"{(model.parameters or 0) / 1e6:,.1f} M parameters"
        about = f"- {model.name}: {model.architecture}, {model.depth} blocks of width {model.width}"
        lines.append(f"{about}, V = {model.vocabulary:,}, {size}. {model.dequantised}".rstrip())
    return [*lines, ""] if lines else []


def _not_tried(result: ReproduceResult) -> list[str]:
    """Return a list of the statements that this run did not try."""
    tried = {record.id for record in result.claims}
    rows = [
        f"- {id}: {statement.statement} `headscan reproduce {id}`"
        for id, statement in all_statements().items()
        if id not in tried
    ]
    lead = "The run was of some statements only, or was stopped; `make ledger` goes on with these."
    return ["## Not tried in this run", "", lead, "", *rows, ""] if rows else []


def _independent(result: ReproduceResult) -> list[str]:
    """Return a table of our numbers beside those that code of others found."""
    rows = []
    for record in result.claims:
        for evidence in record.evidence:
            value = SAME_PROTOCOL.get((record.id, evidence.model, evidence.name))
            if value is not None:
                low, high = evidence.interval
                inside = low - 5e-4 <= value <= high + 5e-4  # it is printed with three digits
                ours = with_interval(evidence.value, evidence.interval)
                cells = (evidence.model, record.id, evidence.name, ours, f"{value:g}")
                rows.append(f"| {' | '.join(cells)} | {'inside' if inside else 'outside'} |")
    head = ["| Model | | Number | Here | Independent code | |", "|---|---|---|---|---|---|"]
    return ["## Numbers of independent code", "", *head, *rows, ""] if rows else []


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _row(record: ClaimRecord) -> str:
    notes = list(dict.fromkeys(finding.note for finding in record.findings if finding.note))
    verdict = f"{SIGNS[record.verdict]} {record.verdict}"
    if notes and record.verdict not in ("not tested", "undecided"):
        verdict += f" ({', '.join(notes)})"
    tested = [finding for finding in record.findings if finding.values]
    numbers = "; ".join(_numbers(record, finding) for finding in tested)
    controls = "; ".join(
        f"{control.name} {with_interval(control.value, control.interval)}"
        for finding in tested[:1]
        for control in finding.controls[:2]
    )
    statement = f"{record.statement} ({record.document}; {record.place})"
    cells = (
        record.id,
        statement,
        verdict,
        record.measured,
        numbers,
        controls or record.control,
    )
    return f"| {' | '.join(map(_cell, cells))} |"


def _numbers(record: ClaimRecord, finding: ModelFinding) -> str:
    """Return a model's verdict with its value least in favour; of a model all of whose values lie
    outside, that which is nearest to the bound.
    """
    counts = record.counts

    def margin(item: Measurement) -> float:
        low, high = item.interval
        gaps = []
        if counts.low is not None:
            gaps.append(low - counts.low)
        if counts.high is not None:
            gaps.append(counts.high - high)
        return min(gaps)

    choose = min if finding.verdict in ("supported", "undecided") else max
    nearest = choose(finding.values, key=margin)
    sign = SIGNS[finding.verdict]
    return f"{finding.model} {sign} {with_interval(nearest.value, nearest.interval)}"


def _details(record: ClaimRecord) -> list[str]:
    """Return the protocol and every number of a statement."""
    planted = with_interval(record.planted.value, record.planted.interval)
    place = f"{DOCUMENTS[record.document]}: {record.place}"
    protocol = {
        "Verdict": f"{record.verdict}",
        "Place": place,
        "Measured": record.measured,
        "Counts": str(record.counts),
        "Control": record.control,
        "Turned by": record.turned_by,
        "Planted case": f"{record.planted.name}: {planted}",
        "Free choice": record.range,
        "Published": record.published,
        "Independent code": INDEPENDENT.get(record.id, ""),
        "Instead": record.corrected,
        "Command": f"`{record.command}`" if record.command else "",
    }
    lines = [f"### {record.id}. {record.statement}", ""]
    lines += [f"- {name}: {text}" for name, text in protocol.items() if text]
    lines += ["", "| Model | Number | Value |", "|---|---|---|"]
    for finding in record.findings:
        lines += _number_rows(finding)
    lines.append("")
    reasons: Sequence[ModelFinding] = [finding for finding in record.findings if finding.why]
    for finding in reasons:
        note = f" ({finding.note})" if finding.note else ""
        lines += [f"{finding.model}{note}: {finding.why}", ""]
    return lines


def _number_rows(finding: ModelFinding) -> list[str]:
    rows = []
    for kind, measurements in (("", finding.values), ("beside: ", finding.controls)):
        for item in measurements:
            value = with_interval(item.value, item.interval)
            rows.append(f"| {finding.model} | {kind}{_cell(item.name)} | {value} {item.unit} |")
    return rows
