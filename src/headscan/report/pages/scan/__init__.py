"""The page of a scan: the head here, a module a section beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headscan.report.kit import Head, Raw, Word, page
from headscan.report.kit.reading import Entry, bounds, entries, mapping, number, strings, text
from headscan.report.kit.words import end, grouped, interval, named
from headscan.report.pages.scan import anatomy, cat_scan, certainty, course, differences, more, numbers, shape
from headscan.report.pages.scan._cone import drawing
from headscan.report.pages.scan._layers import by_layer, knows, leading
from headscan.report.pages.scan._sites import last_block, models, of_model
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from headscan.geometry.result import ScanResult

__all__ = ["anatomy", "cat_scan", "certainty", "course", "differences", "more", "numbers", "scan", "shape"]


@page("scan")
def scan(result: ScanResult) -> Head:
    """The models' names, the text, and a cone for each model's last block."""
    document: Entry = result.document
    names = models(document)
    if not names or not entries(document, "sites"):
        raise BadInput("The result is no scan: it has no models or no sites.")
    heads = [cone_of(document, name) for name in names]
    plots: dict[str, Callable[..., go.Figure]] = {
        measure: partial(by_layer, document, measure) for measure in mapping(document, "measures")
    }
    return Head(
        [named(name) for name in names], subtitle(document), switch=knows(document, "average_cosine"), plots=plots,
        words=words(document),
        top=[Raw("scan_cones.html.j2", {"heads": heads, "several": len(names) > 1})],
    )  # fmt: skip


def subtitle(document: Entry) -> str:
    """How much of which text, seen from where."""
    protocol = mapping(document, "protocol")
    told, settings = mapping(protocol, "text"), mapping(protocol, "settings")
    counted = [number(told, "tokens"), *(number(entry, "tokens") for entry in entries(document, "sites"))]
    tokens = next((int(count) for count in counted if count is not None), None)
    context = number(protocol, "context") or number(settings, "context")
    count = len(models(document))
    source = f" of {named(text(told, 'source'))}" if told.get("source") else ""
    return (
        f"{grouped(tokens) if tokens else 'The'} tokens{source}, in windows of {context or '—'}, seen from inside "
        f"{f'{count} models' if count > 1 else 'the model'} at {len(entries(document, 'sites'))} sites."
    )


def cone_of(document: Entry, model: str) -> dict[str, object]:
    """What the top of the page says of one model: the cone of its last block."""
    entry: Entry = last_block(of_model(entries(document, "sites"), model)) or {}
    field = leading(entry, "average_cosine")
    return {
        "name": named(model), "site": text(entry, "site"), "cosine": number(entry, field),
        "cone": drawing(entry.get(field)), "interval": interval(bounds(entry, field)),
        "notes": strings(entry, "notes"), "sinks": sinks_of(of_model(entries(document, "sites"), model)),
    }  # fmt: skip


def sinks_of(found: list[Entry]) -> str:
    """What a model's sinks do, in a sentence; nothing where they do little."""
    worst = max(found, key=lambda entry: number(entry, "sink_energy") or 0.0, default={})
    energy = number(worst, "sink_energy") or 0.0
    if energy < 0.1:
        return ""
    with_them, rest = (number(worst, name) for name in ("effective_rank", "effective_rank_without_sinks"))
    ranks = f" and leave an effective rank of {with_them:.1f} of {rest:.0f}" if with_them and rest else ""
    share, places = number(worst, "sink_share") or 0.0, ".1%" if energy > 0.99 else ".0%"
    return (
        f"Without sink tokens: {share:.1%} of the tokens are {number(worst, 'sink_length') or 0:.0f} times as long as the "
        f"others at {text(worst, 'site')}, where they carry {energy:{places}} of the energy{ranks}."
    )


def words(document: Entry) -> list[Word]:
    """The scan's measures, for the glossary."""
    found = []
    for name, measure in mapping(document, "measures").items():
        if isinstance(measure, dict):
            ends = measure.get("range") or (None, None)
            span = f"{end(ends[0], '−∞')} to {end(ends[1], '∞')}"
            found.append(
                Word(text(measure, "title", name), text(measure, "sentence"), name, text(measure, "formula"), span,
                     text(measure, "source"))
            )  # fmt: skip
    return found
