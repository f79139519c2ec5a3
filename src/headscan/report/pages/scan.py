"""The page of a scan: the head with its cones, the CAT scan, all numbers, differences, what the
intervals rest on.
"""

from __future__ import annotations

import base64
import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from headscan.measures.measure import WITHOUT_SINKS, leading
from headscan.report.kit import (
    Cell,
    Figure,
    Head,
    Line,
    Panels,
    Prose,
    Raw,
    Section,
    Table,
    Term,
    page,
    palette,
    section,
)
from headscan.report.kit.figures import lines
from headscan.report.kit.parts import Part, cell_of
from headscan.report.kit.words import named, value_of
from headscan.report.kit.words import number as written
from headscan.report.pages.scan_layers import (
    NULLS,
    add_band,
    by_layer,
    knows,
    last_block,
    models,
    of_model,
    term,
)
from headscan.report.pages.scan_shape import checkpoints
from headscan.run import Row
from headscan.run.errors import BadInput
from headscan.training.healthy_runs import Curves, ReferenceRun, curves_of, runs_like
from headscan.training.records import GeometrySnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headscan.run import Row
    from headscan.scanner.result import ScanResult
    from headscan.training.result import TrainResult

# ---- The cone that an average cosine amounts to, as numbers for a drawing.
#
# If unit vectors have the mean cosine c to one another, their mean has (for many vectors) the
# length √c, and that is also their mean cosine to the mean's direction: seen from the origin they
# lie about the axis at the angle arccos √c.

RADIUS = 100.0
TILT = 0.24  # height of a circle seen from the side, by its width
ARC = 34.0


class Drawing(NamedTuple):
    """Lengths for `pieces.html.j2`: apex at (0, 0), axis upwards, unit sphere of radius 100;
    `touch`: where a side ends.
    """

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
    """The half-angle in degrees, from 0 (all point the same way) to 90 (no common direction); None
    when undefined.

    >>> round(half_angle(0.97)), round(half_angle(0.4)), half_angle(-0.01), half_angle(None)
    (10, 51, 90.0, None)
    """
    value = value_of(cosine)
    return None if value is None else math.degrees(math.acos(math.sqrt(min(max(value, 0.0), 1.0))))


def drawing(cosine: object) -> Drawing | None:
    """The drawing of a cosine; None where it is undefined."""
    if (angle := half_angle(cosine)) is None:
        return None
    sine = math.sin(math.radians(angle))
    cos = math.cos(math.radians(angle))
    height = RADIUS * cos
    rim = RADIUS * sine
    flat = TILT * rim
    # where the silhouette touches the rim; a cone so wide that its rim surrounds the apex has no
    # silhouette
    touch = None
    if height > flat:
        touch = (
            round(rim * math.sqrt(1 - (flat / height) ** 2), 2),
            round(-height + flat**2 / height, 2),
        )
    return Drawing(
        angle,
        round(height, 2),
        round(rim, 2),
        round(flat, 2),
        touch,
        round(ARC * sine, 2),
        round(-ARC * cos, 2),
    )


@page("scan")
def scan(result: ScanResult) -> Head:
    """The head of a scan's page: its sentence and the table of all sites."""
    names = models(result)
    if not names or not result.sites:
        raise BadInput("The result is no scan: it has no models or no sites.")
    plots = {measure: partial(by_layer, result, measure) for measure in result.measures}
    return Head(
        [named(name) for name in names],
        _subtitle(result),
        switch=knows(result, "average_cosine"),
        plots=plots,
        words=[term(words, name) for name, words in result.measures.items()],
        top=[
            Raw(
                "scan_cones.html.j2",
                {"heads": [_cone_of(result, name) for name in names], "several": len(names) > 1},
            )
        ],
    )


def _subtitle(result: ScanResult) -> str:
    """How much of which text, seen from where."""
    text = result.protocol.text
    counts = [text.tokens if text else None, *(row.number("tokens") for row in result.sites)]
    tokens = next((f"{int(count):,}" for count in counts if count is not None), "The")
    count = len(models(result))
    source = f" of {named(text.source)}" if text and text.source else ""
    context = (text and text.context) or result.protocol.settings.get("context")
    windows = (text and text.apart) or f"windows of {context or '—'}"
    said = f"{tokens} tokens{source}, in {windows}, "
    return said + f"{f'{count} models, ' if count > 1 else ''}{len(result.sites)} sites."


def _cone_of(result: ScanResult, model: str) -> dict[str, object]:
    """What the top of the page says of one model: the cone of its last block."""
    rows = of_model(result.sites, model)
    row = last_block(rows)
    assert row is not None
    field = leading(row, "average_cosine")
    ends = row.interval(field) if row.number(field) is not None else None
    return {
        "name": named(model),
        "site": row.text("site"),
        "cosine": row.number(field),
        "cone": drawing(row.number(field)),
        "interval": " to ".join(map(written, ends or ())),
        "notes": row.notes,
        "sinks": _sinks_of(rows),
    }


def _sinks_of(rows: list[Row]) -> str:
    """What a model's sinks do, in a sentence; nothing where they do little."""
    worst = max(rows, key=lambda row: row.number("sink_energy") or 0.0)
    energy = worst.number("sink_energy") or 0.0
    if energy < 0.1:
        return ""
    with_them = worst.number("effective_rank")
    rest = worst.number("effective_rank_without_sinks")
    ranks = (
        f" and leave an effective rank of {with_them:.1f} of {rest:.0f}"
        if with_them and rest
        else ""
    )
    share = worst.number("sink_share") or 0.0
    places = ".1%" if energy > 0.99 else ".0%"
    said = (
        f"Without sink tokens: {share:.1%} of the tokens are "
        f"{worst.number('sink_length') or 0:.0f} times as long as the "
    )
    return (
        said + f"others at {worst.text('site')}, where they carry {energy:{places}} of the "
        f"energy{ranks}."
    )


# ---- The CAT scan: the sampled clouds, packed for the page as 16-bit integers in base64, one scale a site.

FULL = 32767
FIELDS = ("tokens", "before", "after", "frequency", "position", "id")


@section("scan", 30)
def cat_scan(result: ScanResult) -> Section | None:
    if not (shown := clouds(result)):
        return None
    scripts = ("projection.js", "cat_scan.js")
    later = {
        "contexts": [{side: cloud.pop(side) for side in ("before", "after")} for cloud in shown],
        **_near(result),
    }
    raw = Raw(
        "scan_clouds.html.j2",
        {"clouds": shown},
        {"clouds": shown},
        scripts,
        ("cat_scan.css",),
        later,
    )
    lead = (
        "Each dot is the vector of one token at this layer. The ring marks the origin, the tip of "
        "a cone."
    )
    return Section("The CAT scan", lead, [raw], "scan")


def clouds(result: ScanResult) -> list[dict[str, object]]:
    """For each model with a picture: its sampled tokens, and its sites with their packed
    coordinates.
    """
    shown: list[dict[str, object]] = []
    for name in models(result):
        slides = [
            _slide(
                row,
                np.asarray(result.arrays[f"picture/{name}/{row.text('site')}"], dtype=np.float64),
                result.arrays,
            )
            for row in _pictured(result, name)
        ]
        if slides:
            picture = result.pictures[name]
            fields = {key: getattr(picture, key) or [None] * len(picture.tokens) for key in FIELDS}
            shown.append({"name": named(name), "sites": slides, **fields})
    return shown


def _pictured(result: ScanResult, name: str) -> list[Row]:
    """The sites of a model that have a point for each of its sampled tokens."""
    count = len(result.pictures[name].tokens) if name in result.pictures else 0
    points = {
        row.text("site"): result.arrays.get(f"picture/{name}/{row.text('site')}")
        for row in result.sites
    }
    there = {
        site
        for site, one in points.items()
        if one is not None and count and np.shape(one) == (count, 3)
    }
    return [row for row in of_model(result.sites, name) if row.text("site") in there]


def _slide(
    row: Row, points: npt.NDArray[np.float64], arrays: Mapping[str, npt.NDArray[Any]]
) -> dict[str, object]:
    """One site of the picture, with the words its caption needs."""
    packed, scale = pack(points)
    site = row.text("site")
    key = f"{row.text('model')}/{row.text('site')}"
    shares = arrays.get(f"picture_share/{key}", np.zeros(0))
    sinks = arrays.get(f"picture_sink/{key}", np.zeros(0))
    return {
        "site": site,
        "points": packed,
        "scale": scale,
        "label": site.replace("embedding", "emb")
        .replace("final_norm", "norm")
        .replace("block.", ""),
        "cosine": written(row.number("average_cosine")),
        "without": written(row.number(leading(row, "average_cosine"))),
        "sinks": np.flatnonzero(sinks).tolist(),
        "shares": [round(float(s), 4) for s in np.ravel(shares).tolist()],
    }


KEPT = 8000
"""Of so many tokens times sites a page holds the neighbours (some 150 kB); of a deeper model those
of fewer tokens.
"""


def _near(result: ScanResult) -> dict[str, object]:
    """The neighbours of the first `kept` tokens, packed, a list of sites for each of `clouds`; ""
    where they are not known.
    """
    pairs = [
        [
            (
                result.arrays.get(f"picture_near/{key}"),
                result.arrays.get(f"picture_near_cosine/{key}"),
            )
            for key in keys
        ]
        for name in models(result)
        if (keys := [f"{name}/{row.text('site')}" for row in _pictured(result, name)])
    ]
    kept = KEPT // max(sum(map(len, pairs)), 1)
    packed = [
        [
            neighbours(a[:kept], b[:kept]) if a is not None and b is not None else ""
            for a, b in sites
        ]
        for sites in pairs
    ]
    return {"near": packed, "kept": kept}


def neighbours(near: npt.NDArray[Any], cosines: npt.NDArray[Any]) -> str:
    """Neighbours as base64: the low bytes of their rows (int16, −1: none), the high bytes, then the
    cosines in hundredths (int8), each less the one before it: planes of like bytes deflate best.
    """
    rows = near.astype("<i2").view(np.uint8).reshape(-1, 2).T
    hundredths = np.rint(100 * np.nan_to_num(cosines)).astype(np.int16)
    steps = np.diff(hundredths, axis=1, prepend=np.int16(0)).astype(np.int8)
    return base64.b64encode(rows.tobytes() + steps.tobytes()).decode("ascii")


def pack(points: npt.NDArray[np.float64]) -> tuple[str, float]:
    """Coordinates [k, 3] as base64 of little-endian int16, row by row, and the number to multiply
    them with.

    The error is at most max|x| / 65534. A row with a value that is not finite becomes (−32768,
    ...), which stands for 'no point here'.

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


# ---- What the intervals rest on, and all numbers.


@section("scan", 98)
def certainty(result: ScanResult) -> Section | None:
    """The effective number of clusters of each model."""
    parts: list[Part] = []
    for model in models(result):
        if rows := [row for row in of_model(result.sites, model) if row.get("clusters")]:
            worth = sorted(
                (row.number(leading(row, "effective_clusters")) or 0.0, row.text("site"))
                for row in rows
            )
            (least, here), (most, there) = worth[0], worth[-1]
            ends = (
                f"{least:.0f} ({here}) to {most:.0f} ({there})"
                if round(least) < round(most)
                else f"{most:.0f}"
            )
            kinds = " or ".join(dict.fromkeys(row.text("clusters") for row in rows))
            said = (
                f"{named(model)}: the least certain interval of each site rests on {kinds} that "
                f"are worth about {ends}"
            )
            parts.append(Prose(f"{said} independent one{'s' * (round(most) > 1)}."))
    lead = (
        "Documents count as independent. Windows of one continuous text depend on each other, so "
        "they count as fewer."
    )
    return Section("What the intervals rest on", lead, parts) if parts else None


UNDEFINED = "not defined at one of the two"


@section("scan", 99)
def differences(result: ScanResult) -> Section | None:
    """What changes from layer to layer, from model to model, and from random weights: a row a pair,
    a column a measure.
    """
    if not result.differences:
        return None
    core = [name for name, words in result.measures.items() if words.core]
    pairs: dict[tuple[str, str, str, str], dict[str, Cell]] = {}
    for one in result.differences:
        pair = pairs.setdefault((one.model_a, one.site_a, one.model_b, one.site_b), {})
        pair[one.measure] = Cell(
            one.difference,
            None if one.interval is None else (one.interval[0], one.interval[1]),
            UNDEFINED,
        )
    lines = list[Line]()
    for (model_a, site_a, model_b, site_b), cells in pairs.items():
        minus = site_b if model_a == model_b else f"{named(model_b)} {site_b}"
        every = [cells.get(name, Cell(None, why=UNDEFINED)) for name in core]
        lines.append(Line(f"{named(model_a)} {site_a}", [minus, *every]))
    columns = ["of", "minus", *(result.measures[name].title for name in core)]
    lead = (
        "Sites that read the same text err together, so an interval of a difference is narrower "
        "than two intervals suggest. "
    )
    lead += (
        "Each layer minus the previous one; last minus first; each minus the same site of the "
        "previous model, and of random "
    )
    lead += "weights."
    return Section(
        "Differences", lead, [Table(columns, lines, "Differences", folded=True, where="page")]
    )


@section("scan", 100)
def numbers(result: ScanResult) -> Section:
    """The core measures without sink tokens and with them, a table a model and null."""
    core = [(name, words) for name, words in result.measures.items() if words.core]
    columns = [Term("site"), Term("tokens"), Term("width")]
    for _, words in core:
        places = 4 if words.range in ((0, 1), (-1, 1)) else None
        columns += [Term(word, group=words.title, places=places) for word in ("without", "with")]
    fields = [
        "tokens",
        "width",
        *(name + ending for name, _ in core for ending in (WITHOUT_SINKS, "")),
    ]
    tables = []
    for model in models(result):
        for null in (None, *NULLS):
            rows = of_model(result.nulls if null else result.sites, model, null)
            notes = list(dict.fromkeys(note for row in rows for note in row.notes))
            lines = []
            for row in rows:
                why = " ".join(row.notes) or "not defined here"
                cells = [cell_of(row, field, why) for field in fields]
                lines.append(
                    Line(
                        row.text("site"), cells, marks=[notes.index(note) + 1 for note in row.notes]
                    )
                )
            title = f"{named(model)}: {NULLS[null]}" if null else named(model)
            tables.append(
                Table(columns, lines, title, folded=bool(null), footnotes=notes, where="page")
            )
    lead = (
        "Small figures are 95 % intervals. “Without” leaves out sink tokens: longer than 3 times "
        "the median of their window."
    )
    return Section("All numbers", lead, tables)


# ---- A run's own curves beside the bands of healthy runs: on the page of a training run, and of a series of checkpoints.


SHOWN = (
    "average_cosine",
    "effective_rank",
    "top_direction_share",
    "mean_norm",
    "entropy",
    "max",
    "attention_ratio",
    "mlp_ratio",
)
TITLE = "Beside healthy runs"
# a longer text moves ranks
OF_ANY_TEXT = ("site", "average_cosine", "top_direction_share", "mean_norm")
STEP = re.compile(r"(?:^|[-_@/])(?:checkpoint|step|global_step)[-_]?(\d+)$")


@section("train", 32)
def run_beside(result: TrainResult) -> Section | None:
    """A run beside healthy runs of its size."""
    a_step = result.tokens / max(1, result.steps)
    curves = curves_of(result.scan, result.readings, result.curve)
    like = runs_like(result.models[0], a_step, result.recipe.steps, result.objective.name)
    return _beside(curves, like, a_step) if result.scan else None


@section("scan", 46)
def series_beside(result: ScanResult) -> Section | None:
    """A series of checkpoints, whose names say their steps, beside healthy runs."""
    steps = {name: int(found[1]) for name in checkpoints(result) if (found := STEP.search(name))}
    rows = [(step, row) for name, step in steps.items() for row in of_model(result.sites, name)]
    some = [
        GeometrySnapshot(step=step, sites=[Row({key: row.get(key) for key in OF_ANY_TEXT})])
        for step, row in rows
    ]
    note = (
        " Ranks are left out, for they grow with the text; steps are counted as theirs, whatever "
        "number of tokens yours had."
    )
    return (
        _beside(curves_of(some), runs_like(result.models[-1]), None, note)
        if len(steps) > 2
        else None
    )


def _beside(
    curves: Curves, known: ReferenceRun | str, tokens: float | None, note: str = ""
) -> Section:
    """Which numbers lie in the bands, at the last step and over all, and the curves over their
    bands.
    """
    if isinstance(known, str):
        return Section(
            TITLE,
            parts=[Prose(f"It cannot be held against healthy runs, no band is drawn: {known}.")],
        )
    # from the middle, in half-widths
    a_step = tokens or known.tokens_a_step
    away = dict[str, list[tuple[int, float]]]()
    for name, curve in curves.items():
        pairs = zip(curve, known.band(name, [step * a_step for step, _ in curve]), strict=True)
        if off := [
            (step, abs(2 * v - sum(band)) / max(band[1] - band[0], 1e-12))
            for (step, v), band in pairs
            if band
        ]:
            away[name] = off
    every = [off <= 1 for each in away.values() for _, off in each]
    last = max((each[-1][0] for each in away.values()), default=0)
    # what was read in the second half
    now = {name: off[-1][1] for name, off in away.items() if 2 * off[-1][0] >= last}
    out = sorted((name for name in now if now[name] > 1), key=lambda name: -now[name])
    words = ", ".join(f"{name} ({now[name]:.1f} half-widths from the middle)" for name in out[:3])
    said = (
        f"At step {last:,} {len(now) - len(out)} of {len(now)} numbers are within what "
        f"{known.runs} healthy runs of this size "
    )
    said += (
        f"show{f'; outside: {words}' * bool(out)}. Over all steps {sum(every)} of {len(every)} "
        "are (a healthy run: 95 %)."
    )
    shown = ["loss", *(f"block.{known.depth - 1}/{what}" for what in SHOWN), *out[:3]]
    shown += [
        name
        for name in away
        if ".*." in name and name.endswith("stable_rank") and len(away[name]) > 2
    ]
    panels = [
        Figure(
            f"beside-{k}",
            partial(_drawn, curves[name], known, name, a_step),
            name,
            height=210,
            title=name.replace("/", " "),
        )
        for k, name in enumerate(name for name in dict.fromkeys(shown) if name in away)
    ]
    parts: list[Part] = [
        Prose(said),
        Prose(f"{known.about}.{note}", where="page"),
        Panels(panels, "Bands: theirs.", small=True),
    ]
    return Section(
        TITLE,
        "Is a number usual at this step? A band should hold 95 % of further runs (*: mean of "
        "blocks).",
        parts,
    )


def _drawn(
    curve: list[tuple[int, float]], known: ReferenceRun, name: str, a_step: float
) -> go.Figure:
    """One curve over its band."""
    steps, values = zip(*curve, strict=True)
    figure = lines({"this run": (steps, values)}, "step", name.rpartition("/")[2].replace("_", " "))
    add_band(
        figure,
        [*steps],
        known.band(name, [step * a_step for step in steps]),
        palette.model_colour(0),
        "this run",
        {},
    )
    return figure
