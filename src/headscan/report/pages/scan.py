"""The page of a scan: the head here, a module a section beside it."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from headscan.report.kit import Cell, Column, Head, Line, Prose, Raw, Section, Table, Word, page, section
from headscan.report.kit.parts import Part
from headscan.report.kit.reading import Entry, bounds, entries, mapping, number, strings, text
from headscan.report.kit.words import end, grouped, interval, named, value_of
from headscan.report.kit.words import number as written
from headscan.report.pages.scan_layers import (
    NULLS,
    WITHOUT,
    by_layer,
    field_of,
    knows,
    last_block,
    leading,
    models,
    of_model,
)
from headscan.run.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headscan.scanner.result import ScanResult


# ---- The cone that an average cosine amounts to, as numbers for a drawing.
#
# If unit vectors have the mean cosine c to one another, their mean has (for many vectors) the length √c, and that is also
# their mean cosine to the mean's direction: seen from the origin they lie about the axis at the angle arccos √c.

RADIUS = 100.0
TILT = 0.24  # height of a circle seen from the side, by its width
ARC = 34.0


@dataclass(frozen=True)
class Drawing:
    """Lengths for `pieces.html.j2`: apex at (0, 0), axis upwards, unit sphere of radius 100; `touch`: where a side ends."""

    angle: float
    height: float
    rim: float
    flat: float
    touch: tuple[float, float] | None
    arc_x: float
    arc_y: float
    arc: float = ARC
    radius: float = RADIUS
    equator: float = RADIUS * TILT


def half_angle(cosine: object) -> float | None:
    """The half-angle in degrees, from 0 (all point the same way) to 90 (no common direction); None when undefined.

    >>> round(half_angle(0.97)), round(half_angle(0.4)), half_angle(-0.01), half_angle(None)
    (10, 51, 90.0, None)
    """
    value = value_of(cosine)
    return None if value is None else math.degrees(math.acos(math.sqrt(min(max(value, 0.0), 1.0))))


def drawing(cosine: object) -> Drawing | None:
    """The drawing of a cosine; None where it is undefined."""
    angle = half_angle(cosine)
    if angle is None:
        return None
    sine, cos = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    height, rim = RADIUS * cos, RADIUS * sine
    flat = TILT * rim
    # Where the silhouette touches the rim; a cone so wide that its rim surrounds the apex has no silhouette.
    touch = None
    if height > flat:
        touch = round(rim * math.sqrt(1 - (flat / height) ** 2), 2), round(-height + flat**2 / height, 2)
    return Drawing(
        angle, round(height, 2), round(rim, 2), round(flat, 2), touch, round(ARC * sine, 2), round(-ARC * cos, 2)
    )


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


# ---- The CAT scan: the sampled clouds, packed for the page as 16-bit integers in base64, one scale a site.

FULL = 32767
FIELDS = ("tokens", "before", "after", "frequency", "position", "id")


@section("scan", 30)
def cat_scan(result: ScanResult) -> Section | None:
    """Each dot is a token of the text, where the layer puts it."""
    found = clouds(result.document, result.arrays)
    if not found:
        return None
    scripts = ("projection.js", "cat_scan.js")
    raw = Raw("scan_clouds.html.j2", {"clouds": found}, {"clouds": found}, scripts, ("cat_scan.css",))
    lead = (
        "Each dot is a token of the text, where the layer puts it. The ring is the origin: a cone is seen from its tip."
    )
    return Section("The CAT scan", lead, [raw], "scan")


def clouds(document: Entry, arrays: Mapping[str, npt.NDArray[np.generic]]) -> list[dict[str, object]]:
    """For each model with a picture: its sampled tokens, and its sites with their packed coordinates."""
    found: list[dict[str, object]] = []
    for name in models(document):
        picture = mapping(mapping(document, "pictures"), name)
        tokens = picture.get("tokens")
        count = len(tokens) if isinstance(tokens, list) else 0
        slides = []
        for entry in of_model(entries(document, "sites"), name):
            points = arrays.get(f"picture/{name}/{text(entry, 'site')}")
            if points is not None and np.shape(points) == (count, 3):
                shares = arrays.get(f"picture_share/{name}/{text(entry, 'site')}")
                aside = arrays.get(f"picture_sink/{name}/{text(entry, 'site')}")
                slides.append(_slide(entry, np.asarray(points, dtype=np.float64), shares, aside))
        if slides and count:
            fields = {key: picture.get(key) or [None] * count for key in FIELDS}
            found.append({"name": named(name), "sites": slides, **fields})
    return found


def _slide(
    entry: Entry, points: npt.NDArray[np.float64], shares: npt.NDArray[np.generic] | None,
    aside: npt.NDArray[np.generic] | None,
) -> dict[str, object]:  # fmt: skip
    """One site of the picture, with the words its caption needs."""
    packed, scale = pack(points)
    site = text(entry, "site")
    short = site.replace("embedding", "emb").replace("final_norm", "norm").replace("block.", "")
    return {
        "site": site, "points": packed, "scale": scale, "label": short,
        "cosine": written(number(entry, "average_cosine")), "without": written(number(entry, leading(entry, "average_cosine"))),
        "sinks": [] if aside is None else np.flatnonzero(aside).tolist(),
        "shares": [] if shares is None else [round(float(s), 4) for s in np.ravel(shares).tolist()],
    }  # fmt: skip


def pack(points: npt.NDArray[np.float64]) -> tuple[str, float]:
    """Coordinates [k, 3] as base64 of little-endian int16, row by row, and the number to multiply them with.

    The error is at most max|x| / 65534. A row with a value that is not finite becomes (−32768, ...), which stands for
    'no point here'.

    >>> text, scale = pack(np.array([[1.0, -0.5, 0.0]]))
    >>> (np.frombuffer(base64.b64decode(text), "<i2") * scale).round(3).tolist()
    [1.0, -0.5, 0.0]
    """
    finite = np.isfinite(points).all(1)
    size = float(np.abs(points[finite]).max()) if finite.any() else 0.0
    scale = size / FULL if size > 0 else 1.0
    whole = np.full(points.shape, -FULL - 1, dtype="<i2")
    whole[finite] = np.rint(points[finite] / scale).astype("<i2")
    return base64.b64encode(whole.tobytes()).decode("ascii"), scale


# ---- All numbers of the core measures, without sink tokens and with them.

CORE = (
    "average_cosine", "mean_norm", "mean_vector_norm", "top_direction_share", "effective_rank", "participation_ratio", "isoscore",
)  # fmt: skip


@section("scan", 100)
def numbers(result: ScanResult) -> Section:
    """A table a model and null."""
    document: Entry = result.document
    measures = mapping(document, "measures")
    core = [name for name in measures if mapping(measures, name).get("core")] or list(CORE)
    columns = [Column("site"), Column("tokens"), Column("width")]
    for name in core:
        measure = mapping(measures, name)
        title = text(measure, "title", name.replace("_", " "))
        places = 4 if str(measure.get("range")) in ("[0.0, 1.0]", "[-1.0, 1.0]", "[0, 1]", "[-1, 1]") else None
        columns += [Column(word, group=title, places=places) for word in ("without", "with")]
    tables = []
    for model in models(document):
        for null in (None, *NULLS):
            found = of_model(entries(document, "nulls" if null else "sites"), model, null)
            notes = list(dict.fromkeys(note for entry in found for note in strings(entry, "notes")))
            title = f"{named(model)}: {NULLS[null]}" if null else named(model)
            rows = [_numbers_line(entry, core, notes) for entry in found]
            tables.append(Table(columns, rows, title, folded=bool(null), footnotes=notes, where="page"))
    lead = (
        "Small figures are 95 % intervals. “Without” leaves out sink tokens: longer than three times the median of "
        "their window."
    )
    return Section("All numbers", lead, tables)


def _numbers_line(entry: Entry, core: list[str], notes: list[str]) -> Line:
    """Each measure without and with sinks, and the numbers of the notes that belong to the site."""
    own = strings(entry, "notes")
    why = " ".join(own) or "not defined here"
    cells: list[Cell] = [Cell(number(entry, "tokens"), why=why), Cell(number(entry, "width"), why=why)]
    for name in core:
        for field in (field_of(name, "without"), field_of(name, "with")):
            cells.append(Cell(number(entry, field), bounds(entry, field), why))
    return Line(text(entry, "site"), cells, marks=[notes.index(note) + 1 for note in own])


# ---- What the intervals rest on, and how far numbers of so short a text lie off on average: a sentence a model, then a table.

LEAD = (
    "Documents are independent of each other; windows of one text that runs on are not, and are counted as that. The bias "
    "is what a finite text does to a number on average: intervals reach further to that side."
)


@section("scan", 98)
def certainty(result: ScanResult) -> Section | None:
    """The effective number of clusters, and the biases of the core measures."""
    document: Entry = result.document
    measures = mapping(document, "measures")
    biased = [name for name in measures if any(f"{name}_bias" in entry for entry in entries(document, "sites"))]
    parts: list[Part] = []
    for model in models(document):
        found = [entry for entry in of_model(entries(document, "sites"), model, None) if entry.get("clusters")]
        if not found:
            continue
        parts.append(Prose(f"{named(model)}: {_rests(found)}{_worst(found, biased, measures)}."))
        columns = [Column("site"), Column("clusters", text=True), Column("in effect")]
        columns += [Column(text(mapping(measures, name), "title", name), group="bias") for name in biased]
        parts.append(
            Table(columns, [_certainty_line(entry, biased) for entry in found], named(model), folded=True, where="page")
        )
    return Section("What the intervals rest on", LEAD, parts) if parts else None


def _rests(found: list[Entry]) -> str:
    counts = [number(entry, "effective_clusters") or 0.0 for entry in found]
    low, high = round(min(counts)), round(max(counts))
    kinds = " or ".join(dict.fromkeys(text(entry, "clusters") for entry in found))
    return f"intervals rest on {kinds}, in effect {low if low == high else f'{low} to {high}'} independent ones"


def _worst(found: list[Entry], biased: list[str], measures: Entry) -> str:
    """The largest bias of the tokens that are no sinks, as a share of its number."""
    shares = [
        (bias / value, name, text(entry, "site"))
        for entry in found
        for name in biased
        if (bias := number(entry, f"{name}{WITHOUT}_bias")) is not None and (value := number(entry, f"{name}{WITHOUT}"))
    ]
    if not shares:
        return ""
    share, name, site = max(shares, key=lambda one: abs(one[0]))
    title = text(mapping(measures, name), "title", name).lower()
    return f"; the largest bias of a finite text is {share:+.1%} ({title} at {site})".replace("%", " %")


def _certainty_line(entry: Entry, biased: list[str]) -> Line:
    cells = [Cell(text(entry, "clusters")), Cell(number(entry, "effective_clusters"))]
    return Line(
        text(entry, "site"), [*cells, *(Cell(number(entry, f"{name}_bias"), None, "not known") for name in biased)]
    )
