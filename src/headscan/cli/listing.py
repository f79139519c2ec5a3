"""The list of the results in a folder, as a page: `headscan open FOLDER`."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import headscan
from headscan.run import write_atomic

SIGNS = {
    "alarm": "!",
    "not examined": "?",
    "notice": "·",
    "fine": "+",
    "nothing looked for": "–",
}
"""The sign of each highest level of a result, the most urgent first."""


class ListedResult(NamedTuple):
    """One row of the list; `codes` are those of the highest level."""

    folder: str
    started: str
    verb: str
    models: str
    level: str
    codes: str


def write_index(folder: Path) -> Path:
    """Write `index.html` into a folder of results, the newest first, and return its path.

    Raises:
        BadInput: where the folder holds no result.
    """
    from headscan.report.kit.html import html
    from headscan.report.kit.parts import Head, Line, Page, Provenance, Section, Table

    files = sorted(folder.glob("*/result.json"), key=lambda file: -file.stat().st_mtime)
    results = [row for row in map(_listed, files) if row is not None]
    if not results:
        raise headscan.BadInput(f"There is no result in {folder}: run a verb first.")

    lines = []
    for result in results:
        level = f"{SIGNS.get(result.level, '')} {result.level}".strip()
        cells = [level, result.codes, result.verb, result.models, result.started]
        lines.append(Line(result.folder, cells, href=f"{quote(result.folder)}/report.html"))
    columns = ["result", "highest level", "findings", "verb", "models", "when (UTC)"]
    noun = "result" if len(results) == 1 else "results"
    page = Page(
        kind="results",
        head=Head([f"{len(results)} {noun}"], _summary(results), alarm=False),
        sections=[Section("Results", "The newest first.", [Table(columns, lines)], "results")],
        findings=[],
        glossary=[],
        provenance=Provenance("", "", [], ""),
        version=headscan.__version__,
    )
    index = folder / "index.html"
    write_atomic(index, html(page).encode())
    return index


def _summary(results: list[ListedResult]) -> str:
    """Return how many results have each level."""
    levels = [result.level for result in results]
    counts = [f"{level} in {levels.count(level)}" for level in SIGNS if level in levels]
    return f"Highest level: {', '.join(counts)}."


def _listed(file: Path) -> ListedResult | None:
    """Return the row of a result.json; None where it cannot be read.

    Neither the result is made of it nor are its arrays read: a long list must not take seconds.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        kind = str(document["kind"])
        level = str(document["highest_level"])
        codes = {
            str(finding["code"])
            for finding in document["findings"]
            if finding["level"] == level and not finding["passed"]
        }
        return ListedResult(
            folder=file.parent.name,
            started=_minute(str(document["protocol"]["started"])),
            verb=f"compare --{kind}" if kind in ("damage", "changes") else kind,
            models=", ".join(str(model["name"]) for model in document.get("models", [])),
            level=level,
            codes=", ".join(sorted(codes)),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _minute(started: str) -> str:
    return datetime.fromisoformat(started).strftime("%Y-%m-%d\u00a0%H:%M")
