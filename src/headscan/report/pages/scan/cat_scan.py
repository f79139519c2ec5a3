"""The CAT scan: the sampled clouds, packed for the page as 16-bit integers in base64, one scale a site."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headscan.report.kit import Raw, Section, section
from headscan.report.kit.reading import Entry, entries, mapping, number, text
from headscan.report.kit.words import named
from headscan.report.kit.words import number as written
from headscan.report.pages.scan._layers import leading
from headscan.report.pages.scan._sites import models, of_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headscan.geometry.result import ScanResult

__all__ = ["cat_scan", "clouds", "pack"]

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
