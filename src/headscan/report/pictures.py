"""The sampled clouds of a scan, packed for the page: coordinates as 16-bit integers in base64, one scale a site."""

from __future__ import annotations

import base64
import re

import numpy as np

from headscan.report import sites
from headscan.report.words import number, value_of

__all__ = ["clouds", "pack"]

FULL = 32767


def clouds(document: dict, arrays: dict[str, np.ndarray]) -> list[dict]:
    """For each model with a picture: its sampled tokens, and its sites with their packed coordinates."""
    found = []
    for name in sites.models(document):
        picture = document.get("pictures", {}).get(name)
        if not picture:
            continue
        count = len(picture["tokens"])
        blocks = sum(re.search(r"block\.\d+$", e["site"]) is not None for e in sites.of_model(document["sites"], name))
        slides = []
        for entry in sites.of_model(document["sites"], name):
            points = arrays.get(f"picture/{name}/{entry['site']}")
            if points is None or np.shape(points) != (count, 3):
                continue
            shares = arrays.get(f"picture_share/{name}/{entry['site']}")
            label = sites.place(entry, blocks).label
            slides.append(slide(entry, np.asarray(points, dtype=np.float64), shares) | {"label": label})
        if slides and count:
            fields = ("tokens", "before", "after", "frequency", "position", "id")
            found.append(
                {"name": name, "sites": slides} | {key: list(picture.get(key) or [None] * count) for key in fields}
            )
    return found


def slide(entry: dict, points: np.ndarray, shares: np.ndarray | None) -> dict:
    """One site of the picture, with the words its caption needs."""
    cosine = value_of(entry.get("average_cosine"))
    packed, scale = pack(points)
    return {
        "site": entry["site"], "points": packed, "scale": scale,
        "cosine": number(cosine), "without": number(value_of(entry.get("average_cosine_without_first"))),
        "shares": [] if shares is None else [round(float(s), 4) for s in np.ravel(shares)],
    }  # fmt: skip


def pack(points: np.ndarray) -> tuple[str, float]:
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
