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

from headscan_lab.ledger.claim import CLAIMS, Claim
from headscan_lab.ledger.experiment import DOCUMENTS

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
    title: str, said: str, rows: list[tuple[str, str, str]], head: str, *, sidebar: bool = False
) -> str:
    """A page that lists others: (page in the same folder, name, sentence) a row; on demand the
    sidebar has them, too.
    """
    lines = [f"# {title}", "", said, "", f"| {head} | what it is |", "|---|---|"]
    lines += [f"| [{name}]({page}.md) | {what} |" for page, name, what in rows]
    tree = (
        ["```{toctree}", ":hidden:", "", *(page for page, *_ in rows), "```", ""] if sidebar else []
    )
    return "\n".join([*lines, "", *tree])


def entries(pages: Pages) -> Pages:
    """All of them by their places; of `pages`, which were written, the ledger and the checkup get
    links to theirs.
    """
    made = _measures() | _findings() | _formats() | _claims(pages["ledger.md"])
    made["ledger.md"] = re.sub(
        r"^\| (\d+) \|", r"| [\1](claims/\1.md) |", pages["ledger.md"], flags=re.MULTILINE
    )
    made["checkup.md"] = re.sub(
        r"^\| (HS\d+) \|",
        lambda found: (
            f"| [{found[1]}](findings/{found[1]}.md) |" if found[1] in CONDITIONS else found[0]
        ),
        pages["checkup.md"],
        flags=re.MULTILINE,
    )
    return made


def _measures() -> Pages:
    lines = [
        "# Measures",
        "",
        "Numbers of a site's cloud of vectors; [tables beyond them](measures/index.md).",
    ]
    found = ordered_measures()
    for group in dict.fromkeys(one.words.group for one in found):
        lines += [
            "",
            f"## {group.capitalize()}",
            "",
            "| measure | what it is | range |",
            "|---|---|---|",
        ]
        for one in (each for each in found if each.words.group == group):
            link = f"[{one.words.title}](measure/{one.name}.md)"
            lines.append(
                f"| {link}<br>`{one.name}` | {cell(one.words.sentence)} | "
                f"{cell(measures_page.span(one))} |"
            )
    made = {"measures.md": "\n".join([*lines, ""])}
    for one in found:
        text = measures_page.entry(one).replace("### ", "# ", 1)
        example = inspect.cleandoc(one.function.__doc__ or "").partition(">>>")[2]
        shown = (
            f"\n```python\n>>> from headscan.measures import {one.name}\n>>>{example}\n```\n"
            if example
            else ""
        )
        text += (
            f"{shown}\nAll [measures](../measures.md); how [intervals](../intervals.md) are made.\n"
        )
        made[f"measure/{one.name}.md"] = leaf(text)
    return made


def _findings() -> Pages:
    rows = [(code, f"{code}: {one.title}", cell(one.meaning)) for code, one in CONDITIONS.items()]
    said = (
        "What a [checkup](../checkup.md) names, by code; `--fail-on CODES` ends with exit status "
        "3 where one was found."
    )
    return {"findings/index.md": listing("Findings", said, rows, "finding")} | {
        f"findings/{code}.md": leaf(_finding(code, one)) for code, one in CONDITIONS.items()
    }


def _finding(code: str, one: Condition) -> str:
    side = "at least" if one.least else "at most"
    alarm = "Many healthy models have it: it is a notice." if one.known else "It is an alarm."
    if one.alarm is not None:
        alarm = (
            f"Many healthy models have it up to {one.alarm:g}: it is a notice until there, and an "
            "alarm from there on."
        )
    if one.brings:
        also = "it is an alarm, too, and" if one.known else "it is"
        alarm += (
            f" It may bring about {', '.join(one.brings)}: beside an alarm of these {also} named "
            "first."
        )
    return "\n\n".join(
        [
            f"# {code}: {one.title}",
            one.meaning,
            f"**Question.** {QUESTIONS[one.question]}",
            f"**The number.** {one.sentence} ({one.unit})",
            f"**Named** where it is {side} {one.threshold:g}. {alarm} Where the number's 95 % "
            "interval holds the threshold, an alarm is called not certain. The threshold is a "
            "convention, no test of significance.",
            f"**How it is found.** {inspect.getdoc(one.seen)}",
            f"**What to do.** {one.todo}",
            f"**What it does not say.** {one.limits}",
            f"**Source.** {one.source}.",
            f"    headscan checkup MODEL --text TEXT --fail-on {code}",
            "All [findings](index.md); how [thresholds](../checkup.md#findings) came about; "
            "what was [tried on injected faults](../checkup.md#tried-on-injected-faults).\n",
        ]
    )


def _claims(ledger: str) -> Pages:
    told = {
        row.split("|")[1].strip(): re.split(r"(?<!\\)\|", row)[3:6]
        for row in ledger.splitlines()
        if row.startswith("|")
    }
    return {
        f"claims/{number}.md": leaf(_claim(one, told.get(number))) for number, one in CLAIMS.items()
    }


def _claim(one: Claim, told: list[str] | None) -> str:
    experiment = one.experiment
    rows = {
        "Document": f"{DOCUMENTS[one.document]}; {one.place}",
        "Model": one.model,
        "Data": one.data,
        "About": "a larger model, of which only a tendency can be told here"
        if one.large
        else "what is run here",
    }
    if experiment is not None:
        words = experiment.words
        power = experiment.power
        rows |= {
            "Experiment": sentence(inspect.getdoc(experiment)),
            "Quantity": words.quantity,
            "Counts as holding": str(one.counts),
            "Test": words.test,
            "Scope": words.scope,
            "Power asked for": f"{power.seeds} seeds"
            + (f", {power.tokens:,} tokens an arm" if power.tokens else ""),
            "Stand-ins": "; ".join(f"{each.name}: {each.why}" for each in experiment.stand_ins())
            or "none",
        }
    if one.control is not None:
        rows["Confounded where the control is"] = str(one.control)
    if one.command:
        rows["On the claim's own model"] = f"`{one.command}`"
    verdict, effect, why = (part.strip() for part in told or ("not run", "", ""))
    effect = effect and f"Effect {effect}. "
    lines = [
        f"# Claim {one.id}",
        one.statement,
        f"**Verdict: {verdict}.** {effect}{why}".rstrip(),
        "## Protocol",
        "\n".join(
            [
                "| part | what was laid down |",
                "|---|---|",
                *(f"| {name} | {cell(said)} |" for name, said in rows.items()),
            ]
        ),
        f"    headscan reproduce {one.id}",
        "All claims: [the ledger](../ledger.md).\n",
    ]
    return "\n\n".join(lines)


def _formats() -> Pages:
    schemas.schemas()  # imports every kind of result
    kinds = {
        kind: made
        for kind, made in sorted(Result.kinds.items())
        if made.__module__.startswith("headscan")
    }
    rows = [(kind, kind, sentence(inspect.getdoc(made))) for kind, made in kinds.items()]
    stored = [(f"states-{name}", one.title, cell(one.sentence)) for name, one in FORMATS.items()]
    said = (
        "A verb writes `result.json`, described here a kind a page, `arrays.safetensors` beside "
        "it where there are arrays, and `report.html`. Stored states are read in the formats "
        "below them. Every JSON has `kind`, `headscan` and `schema`."
    )
    made = {"formats/index.md": listing("File formats", said, rows + stored, "format")}
    made |= {
        f"formats/{kind}.md": leaf(_schema(kind, one.json_schema())) for kind, one in kinds.items()
    }
    for name, one in FORMATS.items():
        tried = (
            f"Tried: {one.tried}"
            if one.tried
            else "Not tried with files that the library itself wrote."
        )
        use = "    headscan scan PATH\n    headscan invert MODEL --states PATH --at SITE"
        parts = [
            f"# {one.title}",
            one.sentence,
            inspect.getdoc(one) or "",
            tried,
            use,
            "More: [stored states](../states.md).",
        ]
        made[f"formats/states-{name}.md"] = leaf("\n\n".join(dict.fromkeys(parts)) + "\n")
    return made


def _schema(kind: str, schema: dict[str, Any]) -> str:
    lines = [f"# result.json of `{kind}`", "", *_fields(schema)]
    for name, one in schema.get("$defs", {}).items():
        lines += ["", f"## {name}", "", *_fields(one)]
    return "\n".join(
        [*lines, "", f"The same as a [JSON schema](../schemas/{kind}.json), draft 2020-12.", ""]
    )


def _fields(schema: dict[str, Any]) -> list[str]:
    said = inspect.cleandoc(schema.get("description", ""))
    prose, _, attributes = said.partition("Attributes:")
    meant = " ".join(attributes.split())
    lines = [prose.strip(), "", f"Fields: {meant}" if meant else "", ""]
    if "enum" in schema:
        return [*lines, "One of " + ", ".join(f"`{one}`" for one in schema["enum"]) + "."]
    required = schema.get("required", ())
    lines += ["| field | type | notes |", "|---|---|---|"]
    for name, one in schema.get("properties", {}).items():
        notes = one.get("description") or ("" if name in required else "may be left out")
        lines.append(f"| `{name}` | {cell(_type(one))} | {cell(notes)} |")
    return lines


def _type(one: dict[str, Any]) -> str:
    """A JSON schema's type in words."""
    if "$ref" in one:
        name = one["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in one or "enum" in one:
        return ", ".join(f"`{json.dumps(value)}`" for value in one.get("enum", [one.get("const")]))
    if "anyOf" in one:
        return " or ".join(dict.fromkeys(map(_type, one["anyOf"])))
    if "prefixItems" in one:
        return f"[{', '.join(map(_type, one['prefixItems']))}]"
    if one.get("type") == "array":
        return f"list of {_type(one.get('items', {}))}"
    if isinstance(one.get("additionalProperties"), dict):
        return f"object of {_type(one['additionalProperties'])}"
    return {
        "number": "number",
        "integer": "whole number",
        "string": "text",
        "boolean": "true or false",
    }.get(one.get("type", ""), one.get("type", "anything"))
