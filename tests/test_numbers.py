"""Every number of every result has an interval, or lab/docs/methods/intervals.md says why it has
none.
"""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
VERBS = {path.stem: json.loads(path.read_text()) for path in (DOCS / "schemas").glob("*.json")}


def numbers(
    schema: dict[str, Any], root_schema: dict[str, Any], path: str = "", above: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the places where a schema has fractional numbers: a.b[].c, `*` for any name."""
    if "$ref" in schema:
        name = schema["$ref"].split("/")[-1]
        if name not in above:
            yield from numbers(root_schema["$defs"][name], root_schema, path, (*above, name))
        return
    for subschema in (*schema.get("anyOf", ()), *schema.get("prefixItems", ())):
        yield from numbers(subschema, root_schema, path, above)
    if schema.get("type") == "number":
        yield path
    for name, subschema in schema.get("properties", {}).items():
        yield from numbers(subschema, root_schema, f"{path}.{name}".lstrip("."), above)
    for key, sign in (("additionalProperties", ".*"), ("items", "[]")):
        if isinstance(schema.get(key), dict):
            yield from numbers(schema[key], root_schema, (path + sign).lstrip("."), above)


def rows() -> list[tuple[list[str], list[str], str]]:
    """Verbs, patterns and what is said of them, of each line of the table."""
    table_rows = []
    section = (
        (DOCS.parent / "lab" / "docs" / "methods" / "intervals.md")
        .read_text()
        .split("## Number by number")[1]
        .split("\n## ")[0]
    )
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0] not in ("verb", "---"):
            verbs = sorted(VERBS) if cells[0] == "all" else re.split(", ", cells[0])
            table_rows.append((verbs, re.findall(r"`([^`]+)`", cells[1]), cells[2]))
    return table_rows


def matches(pattern: str, number: str) -> bool:
    return fnmatchcase(number.replace("[]", "#"), pattern.replace("[]", "#"))


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_number_has_an_interval_or_a_reason(verb):
    all_numbers = set(numbers(VERBS[verb], VERBS[verb]))
    numeric = {number for number in all_numbers if "interval" not in number}
    patterns = [
        (pattern, reason)
        for verbs, patterns, reason in rows()
        if verb in verbs
        for pattern in patterns
    ]
    assert (
        sorted(
            number
            for number in numeric
            if not any(matches(pattern, number) for pattern, _ in patterns)
        )
        == []
    )
    for pattern, reason in patterns:
        promised = {number for number in numeric if matches(pattern, number)}
        if reason.startswith("`NAME_interval`") and not pattern.endswith(
            "NAME"
        ):  # rows whose columns are open
            assert (
                sorted(
                    number
                    for number in promised
                    if not {f"{number}_interval[]", f"{number}_interval"} & all_numbers
                )
                == []
            )
        elif reason.startswith("`interval`"):
            assert all(
                any(
                    name.startswith(number.rpartition(".")[0] + ".interval") for name in all_numbers
                )
                for number in promised
            )
        elif reason.startswith("`"):
            named = reason.split("`")[1]
            assert (
                not promised
                or any(name.startswith(named) for name in all_numbers)
                or "interval" not in named
            ), named


def test_no_line_of_the_table_is_idle():
    all_numbers = {verb: set(numbers(schema, schema)) for verb, schema in VERBS.items()}
    for verbs, patterns, _ in rows():
        for pattern in patterns:
            matched = any(
                matches(pattern, number) for verb in verbs for number in all_numbers[verb]
            )
            assert matched or pattern.endswith("NAME"), pattern
