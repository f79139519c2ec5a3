"""The CAT scan: the sampled clouds of a scan, packed for its page.

Coordinates are 16-bit integers in base64, with one scale a site.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headscan.measures.measure import leading
from headscan.report.kit import Raw, Section, section
from headscan.report.kit.words import named, number
from headscan.report.pages.scan_colour import ColumnColours, column_colours
from headscan.report.pages.scan_layers import models, of_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headscan.run import Row
    from headscan.scanner.result import Picture, ScanResult

LARGEST_INTEGER = 32767
TOKEN_FIELDS = ("tokens", "before", "after", "frequency", "position", "id")
CONTEXT_FIELDS = ("before", "after")
MOST_NEIGHBOURS = 8000
"""Tokens times sites whose neighbours a page holds (some 150 kB); deeper models have fewer tokens.
"""


@section("scan", 30)
def cat_scan(result: ScanResult) -> Section | None:
    """Return the sampled tokens of each model at its sites; None where nothing was sampled."""
    shown_clouds = clouds(result)
    if not shown_clouds:
        return None
    # The contexts of the tokens are long: the page unpacks them when a picture is first drawn.
    contexts = []
    for cloud in shown_clouds:
        contexts.append({field: cloud.pop(field) for field in CONTEXT_FIELDS})
    colours = _colours(result)
    column = None
    if colours is not None:
        column = colours.data
        for context, values in zip(contexts, colours.values, strict=True):
            context["values"] = values
    raw = Raw(
        "scan_clouds.html.j2",
        context={"clouds": shown_clouds, "column": column},
        data={"clouds": shown_clouds, "column": column},
        scripts=("projection.js", "cat_scan.js"),
        styles=("cat_scan.css",),
        later={"contexts": contexts, **_packed_neighbours(result)},
    )
    lead = (
        "Each dot is the vector of one token at this layer. The ring marks the origin, the tip of "
        "a cone."
    )
    tables = [] if colours is None else [colours.table]
    return Section("The CAT scan", lead, [raw, *tables], "scan")


def _colours(result: ScanResult) -> ColumnColours | None:
    """Return the colours of the clouds by a column; None where none was chosen."""
    colourings = {}
    for model in models(result):
        if _pictured(result, model):
            colouring = result.pictures[model].colour
            if colouring is None:
                return None
            colourings[named(model)] = colouring
    return column_colours(colourings)


def clouds(result: ScanResult) -> list[dict[str, object]]:
    """Return the cloud of each model with a picture: its sampled tokens, and its packed sites."""
    shown_clouds: list[dict[str, object]] = []
    for model in models(result):
        rows = _pictured(result, model)
        if rows:
            slides = [_slide(row, result.arrays) for row in rows]
            fields = _token_fields(result.pictures[model])
            shown_clouds.append({"name": named(model), "sites": slides, **fields})
    return shown_clouds


def _token_fields(picture: Picture) -> dict[str, object]:
    """Return the fields of the sampled tokens; a field that is not known is a list of None."""
    unknown = [None] * len(picture.tokens)
    return {field: getattr(picture, field) or unknown for field in TOKEN_FIELDS}


def _pictured(result: ScanResult, model: str) -> list[Row]:
    """Return the sites of a model that have a point for each of its sampled tokens."""
    if model not in result.pictures or not result.pictures[model].tokens:
        return []
    shape = (len(result.pictures[model].tokens), 3)
    rows = []
    for row in of_model(result.sites, model):
        points = result.arrays.get(f"picture/{model}/{row.text('site')}")
        if points is not None and np.shape(points) == shape:
            rows.append(row)
    return rows


def _slide(row: Row, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, object]:
    """Return a site of the picture, with the numbers of its caption."""
    site = row.text("site")
    key = f"{row.text('model')}/{site}"
    points, scale = pack(np.asarray(arrays[f"picture/{key}"], dtype=np.float64))
    shares = arrays.get(f"picture_share/{key}", np.zeros(0))
    sinks = arrays.get(f"picture_sink/{key}", np.zeros(0))
    label = site.replace("embedding", "emb").replace("final_norm", "norm").replace("block.", "")
    return {
        "site": site,
        "points": points,
        "scale": scale,
        "label": label,
        "cosine": number(row.number("average_cosine")),
        "without": number(row.number(leading(row, "average_cosine"))),
        "sinks": np.flatnonzero(sinks).tolist(),
        "shares": [round(float(share), 4) for share in np.ravel(shares).tolist()],
    }


def _packed_neighbours(result: ScanResult) -> dict[str, object]:
    """Return the packed neighbours of the first `kept` tokens, at each site of each cloud.

    They are "" at a site where they are not known.
    """
    keys_by_cloud = []
    for model in models(result):
        keys = [f"{model}/{row.text('site')}" for row in _pictured(result, model)]
        if keys:
            keys_by_cloud.append(keys)
    site_count = sum(map(len, keys_by_cloud))
    token_count = MOST_NEIGHBOURS // max(site_count, 1)
    packed = []
    for keys in keys_by_cloud:
        packed.append([_neighbours_at(key, token_count, result.arrays) for key in keys])
    return {"near": packed, "kept": token_count}


def _neighbours_at(key: str, token_count: int, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    near = arrays.get(f"picture_near/{key}")
    cosines = arrays.get(f"picture_near_cosine/{key}")
    if near is None or cosines is None:
        return ""
    return neighbours(near[:token_count], cosines[:token_count])


def neighbours(near: npt.NDArray[Any], cosines: npt.NDArray[Any]) -> str:
    """Return neighbours as base64, in planes of like bytes, which deflate best.

    The planes are the low bytes of the neighbours' rows (int16, −1: none), the high bytes, then the
    cosines in hundredths (int8), each as its difference from the cosine before it.
    """
    row_bytes = near.astype("<i2").view(np.uint8).reshape(-1, 2).T
    hundredths = np.rint(100 * np.nan_to_num(cosines)).astype(np.int16)
    steps = np.diff(hundredths, axis=1, prepend=np.int16(0)).astype(np.int8)
    return base64.b64encode(row_bytes.tobytes() + steps.tobytes()).decode("ascii")


def pack(points: npt.NDArray[np.float64]) -> tuple[str, float]:
    """Return coordinates [k, 3] as base64 of little-endian int16, row by row, and their scale.

    The integers times the scale are the coordinates, with an error of at most max|x| / 65534. A row
    with a value that is not finite becomes (−32768, ...), which stands for 'no point here'.

    >>> text, scale = pack(np.array([[1.0, -0.5, 0.0]]))
    >>> (np.frombuffer(base64.b64decode(text), "<i2") * scale).round(3).tolist()
    [1.0, -0.5, 0.0]
    """
    finite = np.isfinite(points).all(1)
    largest = float(np.abs(points[finite]).max()) if finite.any() else 0.0
    scale = largest / LARGEST_INTEGER if largest > 0 else 1.0
    integers = np.full(points.shape, -LARGEST_INTEGER - 1, dtype="<i2")
    integers[finite] = np.rint(points[finite] / scale).astype("<i2")
    return base64.b64encode(integers.tobytes()).decode("ascii"), scale
