"""The measures beyond the core as tables for the terminal."""

from __future__ import annotations

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headscan.report import extras
from headscan.report.words import DASH

__all__ = ["extra_tables"]

ROWS = 14  # of one table; the page has all


def extra_tables(document: dict, clean) -> list[RenderableType]:
    """One table a probe, at most fourteen rows each; `clean` makes untrusted text safe to print."""
    found: list[RenderableType] = []
    for group in extras.sections(document):
        for made in group["tables"]:
            found.append(Text(f"\n{made['title']}", style="bold"))
            found.append(Text(clean(made["sentence"]), style="dim"))
            found += [Text(clean(note), style="dim") for note in made["notes"]]
            if made["rows"]:
                found.append(_table(made, clean))
            if len(made["rows"]) > ROWS:
                found.append(
                    Text(f"... {len(made['rows']) - ROWS} more rows in the page and in result.json", style="dim")
                )
    return found


def _table(made: dict, clean) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("", overflow="fold", min_width=9)
    shown = [k for k, column in enumerate(made["columns"]) if not column.get("without")]  # the page has those, too
    for k in shown:
        table.add_column(made["columns"][k]["title"], justify="right")
    for row in made["rows"][:ROWS]:
        label = Text(clean(row["label"]))
        label.append(f" {row['null']}" if row["null"] else "", style="dim")
        cells = [row["cells"][k]["value"] for k in shown]
        table.add_row(label, *(Text(DASH if value is None else clean(value)) for value in cells))
    return table
