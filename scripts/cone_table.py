"""Write the tables of lab/docs/methods/cone.md from saved scans: which branch builds the cone, what
it says, how much is gauge.

    headscan scan MODEL --text TEXT --measures anatomy,common_direction --max-tokens 8192 --out
    FOLDER      (one a model) python scripts/cone_table.py FOLDER [FOLDER ...]

Every share and correlation with its 95 % interval; nothing is computed here.
"""

from __future__ import annotations

import argparse

import headscan
from headscan.run.rows import Row
from headscan.scanner.result import ScanResult

NAMED = 3
AWAY = -0.05
APART = 0.1
"""So many of the largest branches are named; those below AWAY; bands whose share is APART from
their share of the tokens.
"""


def cell(row: Row, name: str = "share", decimals: int = 2) -> str:
    """The number and its interval."""
    value = row.number(name)
    interval = row.interval(name)
    if value is None:
        return "none"
    ends = "" if interval is None else f" [{interval[0]:.{decimals}f}, {interval[1]:.{decimals}f}]"
    return f"{value:.{decimals}f}{ends}"


def part(row: Row) -> str:
    """`block 3 MLP 0.23 [...]`."""
    name = (
        row.text("part")
        .replace("block.", "block ")
        .replace(".mlp", " MLP")
        .replace(".attention", " attention")
    )
    return f"{name.replace('.mixer', ' mixer')} {cell(row)}"


def built(result: ScanResult) -> str:
    """A line of the first table: of the last block."""
    rows = [row for row in result.tables["anatomy"] if not row.get("null")]
    blocks = [
        row.text("site")
        for row in rows
        if row["kind"] == "branch" and row.text("site").rsplit(".", 1)[-1].isdigit()
    ]
    last_rows = [row for row in rows if row["site"] == blocks[-1]]
    site = next(row for row in result.sites if row["site"] == blocks[-1])
    branches = sorted(
        (r for r in last_rows if r["kind"] == "branch"), key=lambda row: -(row.number("share") or 0)
    )
    away = [row for row in branches[::-1] if (row.number("share") or 0) < AWAY]
    coordinates = sorted(
        (r for r in last_rows if r["kind"] == "coordinate"),
        key=lambda row: -(row.number("share") or 0),
    )
    top = [row for row in coordinates if not row.text("part").startswith("other")][:2]
    bands = [
        f"{row.text('part')} {cell(row)} for {row.number('tokens'):.2f}"
        for row in last_rows
        if row["kind"] in ("band", "position")
        and abs((row.number("share") or 0) - (row.number("tokens") or 0)) > APART
    ]
    blocks_total: dict[str, float] = {}
    for row in branches:
        if row.text("part").startswith("block."):
            key = row.text("part").split(".")[1]
            blocks_total[key] = blocks_total.get(key, 0.0) + (row.number("share") or 0.0)
    order = sorted(blocks_total, key=lambda key: -blocks_total[key])[:3]
    cells = [
        result.models[0].name,
        cell(site, "average_cosine"),
        "; ".join(part(row) for row in branches[:NAMED]),
        "; ".join(part(row) for row in away[:3]) or "none",
        ", ".join(f"{key} {blocks_total[key]:.2f}" for key in order),
        f"{sum(row.number('share') or 0 for row in top):.2f}",
        "; ".join(bands) or "none",
    ]
    return "| " + " | ".join(cells) + " |"


def says(result: ScanResult) -> str | None:
    """A line of the second table; None of a model without a linear head."""
    rows = [row for row in result.tables.get("common_direction", []) if not row.get("null")]
    if not rows or rows[0].number("correlation") is None:
        return None
    row = rows[0]
    cells = [
        result.models[0].name,
        cell(row, "correlation"),
        f"{row.number('permuted'):.2f}",
        f"{row.number('random'):.2f}",
        cell(row, "cosine", 3),
        cell(row, "cosine_after", 3),
        f"{row.number('stream_gauge') or 0:.3f}",
        row.text("says"),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+")
    results = [headscan.load(folder) for folder in parser.parse_args().folders]
    scans = [result for result in results if isinstance(result, ScanResult)]
    print(
        "| model | mean cosine | built by | taken away by | by block | two coordinates | bands "
        "apart |"
    )
    print("|---|---|---|---|---|---|---|")
    print("\n".join(built(result) for result in scans))
    print(
        "\n| model | r | permuted | random | cosine at the head | after | stream | says "
        "|\n|---|---|---|---|---|---|---|---|"
    )
    lines = [says(result) for result in scans]
    print("\n".join(line for line in lines if line))


if __name__ == "__main__":
    main()
