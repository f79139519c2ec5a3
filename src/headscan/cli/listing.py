"""The list of the results in a folder, as a page: `headscan open FOLDER`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import headscan
from headscan.run import write_atomic
from headscan.run.kinds import KINDS

LEVELS = {
    "alert": "alarm",
    "alarm": "alarm",
    "possible alarm": "possible alarm",
    "notice": "notice",
    "good": "fine",
    "fine": "fine",
}
"""The word for each level that a result.json has."""
URGENCY = ("alarm", "possible alarm", "notice", "fine")
NOTHING_LOOKED_FOR = "nothing looked for"
TOO_FEW = "too few tokens"
SIGNS = {
    "alarm": "!",
    "possible alarm": "?",
    "notice": "·",
    "fine": "+",
    TOO_FEW: "?",
    NOTHING_LOOKED_FOR: "–",
}
"""The sign of each level, the most urgent first."""
LOOKING = {"checkup", *(kind.verb for kind in KINDS)}
"""The verbs that look for findings."""


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
    results = [listed for file in files if (listed := _listed(file)) is not None]
    if not results:
        raise headscan.BadInput(f"There is no result in {folder}: run a verb first.")

    lines = []
    for result in results:
        level = f"{SIGNS[result.level]} {result.level}".strip()
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
        protocol = document["protocol"]
        kind = str(document["kind"])
        level, codes = _highest_level(document, str(protocol["verb"]))
        return ListedResult(
            folder=file.parent.name,
            started=_minute(str(protocol["started"])),
            verb="compare --damage" if kind == "damage" else kind,
            models=", ".join(str(model["name"]) for model in document.get("models", [])),
            level=level,
            codes=", ".join(codes),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _minute(started: str) -> str:
    return datetime.fromisoformat(started).strftime("%Y-%m-%d\u00a0%H:%M")


def _highest_level(document: Mapping[str, Any], verb: str) -> tuple[str, list[str]]:
    """Return the highest level of the findings that count, and the codes that have it."""
    codes_by_level: dict[str, set[str]] = {}
    for finding in document.get("findings", []):
        if not finding.get("passed"):
            codes_by_level.setdefault(_level(finding), set()).add(str(finding["code"]))
    for level in URGENCY[:2]:
        if level in codes_by_level:
            return level, sorted(codes_by_level[level])
    if any(examined.get("too_few") for examined in document.get("examinations", [])):
        return TOO_FEW, []
    for level in URGENCY[2:]:
        if level in codes_by_level:
            return level, sorted(codes_by_level[level])
    return ("fine" if verb in LOOKING else NOTHING_LOOKED_FOR), []


def _level(finding: Mapping[str, Any]) -> str:
    """Return the level of a finding; a condition that many healthy models have is a notice."""
    if finding.get("possible"):
        return "possible alarm"
    level = LEVELS.get(str(finding["level"]), "notice")
    return "notice" if level == "alarm" and finding.get("known") else level
