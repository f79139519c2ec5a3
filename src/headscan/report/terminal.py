"""A scan in short for the terminal: one row a site, nulls below, findings as sentences; it fits 80 columns."""

from __future__ import annotations

import re

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscan.report import sites
from headscan.report.extras_terminal import extra_tables
from headscan.report.words import DASH, grouped, number, value_of

__all__ = ["scan_table"]

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
LEVELS = {"alert": ("!", "bold red"), "notice": ("·", "yellow"), "good": ("+", "green")}
COLUMNS = ("effective_rank", "participation_ratio", "isoscore", "top_direction_share", "mean_norm")


def scan_table(document: dict) -> RenderableType:
    """A rich renderable of a scan: `rich.print(scan_table(document))`.

    Names and findings come from models and texts: control characters in them are shown as U+FFFD, and square brackets
    are no markup.
    """
    parts: list[RenderableType] = []
    for name in sites.models(document):
        parts += [heading(document, name), model_table(document, name)]
    parts += extra_tables(document, clean)
    notes = dict.fromkeys(note for entry in document.get("sites", []) for note in entry.get("notes") or [])
    parts += [Text(f"{DASH} {clean(note)}", style="dim") for note in notes]
    if document.get("findings"):
        parts.append(Text())
        parts += [finding(item, len(sites.models(document)) > 1) for item in document["findings"]]
    return Group(*parts)


def heading(document: dict, name: str) -> Text:
    """'tiny-gpt: 497 280 tokens of stories.txt'."""
    protocol = document.get("protocol", {})
    tokens = max((e.get("tokens") or 0 for e in document["sites"] if e["model"] == name), default=0)
    text = Text(f"\n{clean(name)}", style="bold")
    source = protocol.get("text", {}).get("source")
    text.append(f"  {grouped(tokens)} tokens" + (f" of {clean(source)}" if source else ""), style="not bold dim")
    return text


def model_table(document: dict, name: str) -> Table:
    """The sites of one model; below a rule the nulls at the last block."""
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    found.add_column("site", overflow="fold", min_width=9)
    heads = (
        "average cosine",
        "without\nfirst",
        "eff.\nrank",
        "part.\nratio",
        "iso-\nscore",
        "top\nshare",
        "mean\nnorm",
    )
    for head in heads:
        found.add_column(head, justify="right", no_wrap=head != "average cosine")
    own = sites.of_model(document["sites"], name)
    for index, entry in enumerate(own):
        found.add_row(clean(entry["site"]), *cells(entry), end_section=index == len(own) - 1)
    last = sites.last_block(own)
    for null in ("random-init", "gaussian"):
        twins = sites.of_model(document.get("nulls", []), name, null)
        twin = next((e for e in twins if last and e["site"] == last["site"]), None)
        if twin:
            found.add_row(Text(null), *cells(twin), style="dim")
    return found


def cells(entry: dict) -> list[Text]:
    """The numbers of a row; the interval stands small behind the average cosine."""
    cosine = Text(fixed(entry.get("average_cosine")))
    bounds = entry.get("average_cosine_interval")
    if isinstance(bounds, (list, tuple)) and len(bounds) == 2 and None not in map(value_of, bounds):
        cosine.append(f" [{fixed(bounds[0])}, {fixed(bounds[1])}]", style="dim")
    rest = [Text(number(value_of(entry.get(key)))) for key in COLUMNS]
    return [cosine, Text(fixed(entry.get("average_cosine_without_first"))), *rest]


def fixed(value: object) -> str:
    """A cosine with three decimals."""
    found = value_of(value)
    return DASH if found is None else number(found, places=3)


def finding(item: dict, named: bool) -> Text:
    """'! CONE: any two tokens of the last block point the same way, mean cosine 0.97 (block.5)'."""
    sign, style = LEVELS.get(item.get("level", ""), LEVELS["notice"])
    text = Text(f"{sign} ", style=style)
    text.append(clean(item.get("code", "")), style=style)
    text.append(f": {clean(item.get('text', ''))}")
    said = {"model": not named, "site": str(item.get("site")) in str(item.get("text"))}
    where = [clean(item[key]) for key in said if item.get(key) and not said[key]]
    return text.append(f" ({', '.join(where)})" if where else "", style="dim")


def clean(value: object) -> str:
    """Untrusted text without control and direction characters, which could rewrite the terminal."""
    return CONTROLS.sub("\ufffd", str(value))
