"""One page a measure, finding, claim and format, each made from what is registered, and the lists
of them.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

from headscan_lab.ledger.statement import DOCUMENTS, STATEMENTS, Statement

from headscan.diagnosis import CONDITIONS, Condition
from headscan.run import Result
from headscan.scanner.selection import ordered_measures
from headscan.states import FORMATS

sys.path.append(str(Path(__file__).resolve().parents[1]))
import measures as measures_page
import schemas

__all__ = ["Pages", "cell", "entries", "listing", "sentence"]

QUESTIONS = {
    "shape": "What shape?",
    "cause": "What caused it?",
    "leak": "What is still in it?",
    "cure": "What helps?",
}
Pages = dict[str, str]


def cell(text: str) -> str:
    """Text within a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def sentence(text: str | None) -> str:
    """The first paragraph of a docstring."""
    return cell((text or "").split("\n\n")[0])


def leaf(text: str) -> str:
    """A page that a list leads to, and not the sidebar: with hundreds of these each page would take
    twice as long to make.
    """
    return f"---\norphan: true\n---\n\n{text}"


def listing(
    title: str,
    introduction: str,
    rows: list[tuple[str, str, str]],
    head: str,
    *,
    sidebar: bool = False,
) -> str:
    """A page that lists others: (page in the same folder, name, sentence) a row; on demand the
    sidebar has them, too.
    """
    lines = [f"# {title}", "", introduction, "", f"| {head} | what it is |", "|---|---|"]
    lines += [
        f"| [{name}]({page}.md) | {sentence_of_row} |" for page, name, sentence_of_row in rows
    ]
    tree = (
        ["```{toctree}", ":hidden:", "", *(page for page, *_ in rows), "```", ""] if sidebar else []
    )
    return "\n".join([*lines, "", *tree])


def entries(pages: Pages) -> Pages:
    """All of them by their places; of `pages`, which were written, the ledger and the checkup get
    links to theirs.
    """
    pages_by_path = _measures() | _findings() | _formats() | _claims(pages["ledger.md"])
    pages_by_path["ledger.md"] = re.sub(
        r"^\| ([SPAL]\d+) \|", r"| [\1](claims/\1.md) |", pages["ledger.md"], flags=re.MULTILINE
    )
    pages_by_path["methods/checkup.md"] = re.sub(
        r"^\| (HS\d+) \|",
        lambda match: (
            f"| [{match[1]}](../findings/{match[1]}.md) |" if match[1] in CONDITIONS else match[0]
        ),
        pages["methods/checkup.md"],
        flags=re.MULTILINE,
    )
    return pages_by_path


def _measures() -> Pages:
    lines = [
        "# Measures",
        "",
        "Numbers of a site's cloud of vectors; [tables beyond them](generated/tables.md).",
    ]
    measures = ordered_measures()
    for group in dict.fromkeys(measure.words.group for measure in measures):
        lines += [
            "",
            f"## {group.capitalize()}",
            "",
            "| measure | what it is | range |",
            "|---|---|---|",
        ]
        for measure in (grouped for grouped in measures if grouped.words.group == group):
            link = f"[{measure.words.title}](measure/{measure.name}.md)"
            lines.append(
                f"| {link}<br>`{measure.name}` | {cell(measure.words.sentence)} | "
                f"{cell(measures_page.span(measure))} |"
            )
    pages_by_path = {"measures.md": "\n".join([*lines, ""])}
    for measure in measures:
        text = measures_page.entry(measure).replace("### ", "# ", 1)
        example = inspect.cleandoc(measure.function.__doc__ or "").partition(">>>")[2]
        shown = (
            f"\n```python\n>>> from headscan.measures import {measure.name}\n>>>{example}\n```\n"
            if example
            else ""
        )
        text += (
            f"{shown}\nAll [measures](../measures.md); how [intervals](../intervals.md) are made.\n"
        )
        pages_by_path[f"measure/{measure.name}.md"] = leaf(text)
    return pages_by_path


def _findings() -> Pages:
    rows = [
        (code, f"{code}: {condition.title}", cell(condition.meaning))
        for code, condition in CONDITIONS.items()
    ]
    introduction = (
        "What a [checkup](../checkup.md) names, by code; `--fail-on CODES` ends with exit status "
        "3 where one was found."
    )
    return {"findings/index.md": listing("Findings", introduction, rows, "finding")} | {
        f"findings/{code}.md": leaf(_finding(code, condition))
        for code, condition in CONDITIONS.items()
    }


def _finding(code: str, condition: Condition) -> str:
    side = "at least" if condition.least else "at most"
    alarm = "Many healthy models have it: it is a notice." if condition.known else "It is an alarm."
    if condition.alarm is not None:
        alarm = (
            f"Many healthy models have it up to {condition.alarm:g}: it is a notice until there, "
            "and an alarm from there on."
        )
    if condition.brings:
        also = "it is an alarm, too, and" if condition.known else "it is"
        alarm += (
            f" It may bring about {', '.join(condition.brings)}: beside an alarm of these {also} "
            "named first."
        )
    returned = (inspect.getdoc(condition.seen) or "").removeprefix("Return ")
    return "\n\n".join(
        [
            f"# {code}: {condition.title}",
            condition.meaning,
            f"**Question.** {QUESTIONS[condition.question]}",
            f"**The number.** {condition.sentence} ({condition.unit})",
            f"**Named** where it is {side} {condition.threshold:g}. {alarm} Where the number's 95 "
            "% interval holds the threshold, an alarm is called not certain. The threshold is a "
            "convention, no test of significance.",
            f"**The check** returns {returned}",
            f"**What to do.** {condition.todo}",
            f"**What it does not say.** {condition.limits}",
            f"**Source.** {condition.source}.",
            f"    headscan checkup MODEL --text TEXT --fail-on {code}",
            "All [findings](index.md); how [thresholds](../methods/checkup.md#findings) came "
            "about; what was "
            "[tried on injected faults](../methods/checkup.md#tried-on-injected-faults).\n",
        ]
    )


def _claims(ledger: str) -> Pages:
    verdicts = {
        row.split("|")[1].strip(): re.split(r"(?<!\\)\|", row)[3].strip()
        for row in ledger.splitlines()
        if re.match(r"\| [SPAL]\d+ \|", row)
    }
    return {
        f"claims/{id}.md": leaf(_claim(statement, verdicts.get(id, "not run")))
        for id, statement in STATEMENTS.items()
    }


def _claim(statement: Statement, verdict: str) -> str:
    rows = {
        "Document": f"{DOCUMENTS[statement.document]}; {statement.place}",
        "Measured": statement.measured,
        "Counts as holding": str(statement.counts),
        "Control": statement.control,
        "Turned by": statement.turned_by,
        "Range of the free choice": statement.range,
    }
    if statement.command:
        rows["On a model of yours"] = f"`{statement.command}`"
    lines = [
        f"# Statement {statement.id}",
        statement.statement,
        f"**Verdict: {verdict}.**",
        "## Protocol",
        "\n".join(
            [
                "| part | what was laid down |",
                "|---|---|",
                *(f"| {name} | {cell(text)} |" for name, text in rows.items()),
            ]
        ),
        f"    headscan reproduce {statement.id}",
        "All statements: [the ledger](../ledger.md).\n",
    ]
    return "\n\n".join(lines)


def _formats() -> Pages:
    schemas.schemas()  # imports every kind of result
    kinds = {
        kind: result_class
        for kind, result_class in sorted(Result.kinds.items())
        if result_class.__module__.startswith("headscan")
    }
    rows = [
        (kind, kind, sentence(inspect.getdoc(result_class))) for kind, result_class in kinds.items()
    ]
    stored = [
        (f"states-{name}", file_format.title, cell(file_format.sentence))
        for name, file_format in FORMATS.items()
    ]
    introduction = (
        "A verb writes `result.json`, described here a kind a page, `arrays.safetensors` beside "
        "it where there are arrays, and `report.html`. Stored states are read in the formats "
        "below them. Every JSON has `kind`, `headscan` and `schema`."
    )
    pages_by_path = {
        "formats/index.md": listing("File formats", introduction, rows + stored, "format")
    }
    pages_by_path |= {
        f"formats/{kind}.md": leaf(_schema(kind, result_class.json_schema()))
        for kind, result_class in kinds.items()
    }
    for name, file_format in FORMATS.items():
        tried = (
            f"Tried: {file_format.tried}"
            if file_format.tried
            else "Not tried with files that the library itself wrote."
        )
        use = "    headscan scan PATH\n    headscan invert MODEL --states PATH --at SITE"
        parts = [
            f"# {file_format.title}",
            file_format.sentence,
            inspect.getdoc(file_format) or "",
            tried,
            use,
            "More: [stored states](../states.md).",
        ]
        pages_by_path[f"formats/states-{name}.md"] = leaf("\n\n".join(dict.fromkeys(parts)) + "\n")
    return pages_by_path


def _schema(kind: str, schema: dict[str, Any]) -> str:
    lines = [f"# result.json of `{kind}`", "", *_fields(schema)]
    for name, definition in schema.get("$defs", {}).items():
        lines += ["", f"## {name}", "", *_fields(definition)]
    return "\n".join(
        [*lines, "", f"The same as a [JSON schema](../schemas/{kind}.json), draft 2020-12.", ""]
    )


def _fields(schema: dict[str, Any]) -> list[str]:
    docstring = inspect.cleandoc(schema.get("description", ""))
    prose, _, attributes = docstring.partition("Attributes:")
    meant = " ".join(attributes.split())
    lines = [prose.strip(), "", f"Fields: {meant}" if meant else "", ""]
    if "enum" in schema:
        return [*lines, "One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + "."]
    required = schema.get("required", ())
    lines += ["| field | type | notes |", "|---|---|---|"]
    for name, property_ in schema.get("properties", {}).items():
        notes = property_.get("description") or ("" if name in required else "may be left out")
        lines.append(f"| `{name}` | {cell(_type(property_))} | {cell(notes)} |")
    return lines


def _type(property_: dict[str, Any]) -> str:
    """A JSON schema's type in words."""
    if "$ref" in property_:
        name = property_["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in property_ or "enum" in property_:
        return ", ".join(
            f"`{json.dumps(value)}`" for value in property_.get("enum", [property_.get("const")])
        )
    if "anyOf" in property_:
        return " or ".join(dict.fromkeys(map(_type, property_["anyOf"])))
    if "prefixItems" in property_:
        return f"[{', '.join(map(_type, property_['prefixItems']))}]"
    if property_.get("type") == "array":
        return f"list of {_type(property_.get('items', {}))}"
    if isinstance(property_.get("additionalProperties"), dict):
        return f"object of {_type(property_['additionalProperties'])}"
    return {
        "number": "number",
        "integer": "whole number",
        "string": "text",
        "boolean": "true or false",
    }.get(property_.get("type", ""), property_.get("type", "anything"))
