"""Every number of every result has an interval, or docs/intervals.md says why it has none."""

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
    schema: dict[str, Any], whole: dict[str, Any], path: str = "", above: tuple[str, ...] = ()
) -> Iterator[str]:
    """Where a schema has numbers that are no whole ones: a.b[].c, `*` for any name."""
    if "$ref" in schema:
        name = schema["$ref"].split("/")[-1]
        if name not in above:
            yield from numbers(whole["$defs"][name], whole, path, (*above, name))
        return
    for one in (*schema.get("anyOf", ()), *schema.get("prefixItems", ())):
        yield from numbers(one, whole, path, above)
    if schema.get("type") == "number":
        yield path
    for name, one in schema.get("properties", {}).items():
        yield from numbers(one, whole, f"{path}.{name}".lstrip("."), above)
    for key, sign in (("additionalProperties", ".*"), ("items", "[]")):
        if isinstance(schema.get(key), dict):
            yield from numbers(schema[key], whole, (path + sign).lstrip("."), above)


def rows() -> list[tuple[list[str], list[str], str]]:
    """Verbs, patterns and what is said of them, of each line of the table."""
    found = []
    section = (DOCS / "intervals.md").read_text().split("## Number by number")[1].split("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0] not in ("verb", "---"):
            verbs = sorted(VERBS) if cells[0] == "all" else re.split(", ", cells[0])
            found.append((verbs, re.findall(r"`([^`]+)`", cells[1]), cells[2]))
    return found


def matches(pattern: str, number: str) -> bool:
    return fnmatchcase(number.replace("[]", "#"), pattern.replace("[]", "#"))


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_number_has_an_interval_or_a_reason(verb):
    every = set(numbers(VERBS[verb], VERBS[verb]))
    there = {one for one in every if "interval" not in one}
    said = [
        (pattern, words)
        for verbs, patterns, words in rows()
        if verb in verbs
        for pattern in patterns
    ]
    assert (
        sorted(one for one in there if not any(matches(pattern, one) for pattern, _ in said)) == []
    )
    for pattern, words in said:
        promised = {one for one in there if matches(pattern, one)}
        if words.startswith("`NAME_interval`") and not pattern.endswith(
            "NAME"
        ):  # rows whose columns are open
            assert (
                sorted(
                    one for one in promised if not {f"{one}_interval[]", f"{one}_interval"} & every
                )
                == []
            )
        elif words.startswith("`interval`"):
            assert all(
                any(each.startswith(one.rpartition(".")[0] + ".interval") for each in every)
                for one in promised
            )
        elif words.startswith("`"):
            named = words.split("`")[1]
            assert (
                not promised
                or any(each.startswith(named) for each in every)
                or "interval" not in named
            ), named


def test_no_line_of_the_table_is_idle():
    every = {verb: set(numbers(schema, schema)) for verb, schema in VERBS.items()}
    for verbs, patterns, _ in rows():
        for pattern in patterns:
            found = any(matches(pattern, one) for verb in verbs for one in every[verb])
            assert found or pattern.endswith("NAME"), pattern
