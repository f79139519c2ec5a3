"""Draw the README's first picture from a scan: each layer of a model as a slice, above the same
with random weights.

    headscan scan MODEL --text TEXT --max-tokens 4096 --null --out DIR [--sites GLOBS]
    python scripts/cat_scan_picture.py DIR/result.json docs/images/layers.svg --name
    "Qwen2.5-Coder-1.5B-Instruct"

A slice shows the half-angle of the cone that a layer's tokens lie in, seen from the origin: arccos
√c, with c the average cosine of two tokens (sink tokens set aside). Below, c itself with its 95 %
interval. Every number is read from the result.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH = 960
LEFT = 66
RIGHT = 16
DEEP = 130
FIELD = "average_cosine_without_sinks"
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 12px; fill: #59636e }
.ball, .grid { fill: none; stroke: #d1d9e0 } .axis { stroke: #818b98; stroke-width: 1 }
.trained { fill: #c4500c; stroke: #c4500c } .random { fill: #1f6fb2; stroke: #1f6fb2 }
.line { fill: none !important; stroke-width: 2.5 } .random.line { stroke-dasharray: 6 4 }
.band { stroke: none; opacity: .2 }
.name.trained, .name.random { stroke: none; font-weight: 600 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .small { fill: #9198a1 }
.ball, .grid { stroke: #3d444d }
.trained { fill: #f0883e; stroke: #f0883e } .random { fill: #58a6ff; stroke: #58a6ff } }
""".replace("\n", " ").strip()


@dataclass(frozen=True)
class Course:
    """The average cosine of each site, with its interval."""

    sites: list[str]
    values: list[float]
    low: list[float]
    high: list[float]

    @classmethod
    def of(cls, rows: list[dict[str, Any]], model: object) -> Course:
        """Return the course of a model's rows, in the order of the result."""
        model_rows = [
            row for row in rows if row["model"] == model and isinstance(row.get(FIELD), float)
        ]
        ends = [row[f"{FIELD}_interval"] or [row[FIELD], row[FIELD]] for row in model_rows]
        return cls(
            [str(row["site"]) for row in model_rows],
            [row[FIELD] for row in model_rows],
            *map(list, zip(*ends, strict=True)),
        )


def main() -> None:
    """Read the result, write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--name", help="what the model is called; default: its name in the result")
    arguments = parser.parse_args()
    document = json.loads(arguments.result.read_text())
    model = document["sites"][0]["model"]
    trained = Course.of(document["sites"], model)
    random = Course.of([row for row in document["nulls"] if row["null"] == "random-init"], model)
    if trained.sites != random.sites:
        raise SystemExit("The result has no random weights at every site: scan with --null.")
    arguments.picture.write_text(draw(trained, random, arguments.name or model) + "\n")


def draw(trained: Course, random: Course, name: str) -> str:
    """The SVG."""
    step = (WIDTH - LEFT - RIGHT) / len(trained.sites)
    across = [LEFT + step * (index + 0.5) for index in range(len(trained.sites))]
    radius = min(38.0, 0.44 * step)
    first = 28 + radius
    second = 62 + 3 * radius
    both = (
        ("trained", trained, first, name),
        ("random", random, second, f"{name}, random weights"),
    )
    top = second + radius + 24
    bottom = top + DEEP

    def height(cosine: float) -> float:
        return bottom - DEEP * min(max(cosine, 0.0), 1.0)

    def path(points: list[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{x:.1f} {height(y):.1f}" for x, y in points)

    parts = []
    for kind, course, middle, label in both:
        parts.append(
            f'<text class="name {kind}" x="{LEFT}" y="{middle - radius - 10:.1f}">{label}</text>'
        )
        parts += [
            part
            for x, c in zip(across, course.values, strict=True)
            for part in section(kind, x, middle, radius, c)
        ]
    for level in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = height(level)
        parts.append(
            f'<path class="{"axis" if level == 0 else "grid"}" d="M{LEFT} '
            f'{y:.1f}H{WIDTH - RIGHT}"/>'
        )
        parts.append(
            f'<text class="small" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{level:g}</text>'
        )
    parts.append(
        f'<text class="small" transform="translate(20 {(top + bottom) / 2:.0f}) rotate(-90)" '
        'text-anchor="middle">'
        "average cosine</text>"
    )
    for kind, course, _, _ in both:
        band = [
            *zip(across, course.high, strict=True),
            *reversed([*zip(across, course.low, strict=True)]),
        ]
        parts.append(f'<path class="{kind} band" d="{path(band)}Z"/>')
        parts.append(
            f'<path class="{kind} line" d="{path([*zip(across, course.values, strict=True)])}"/>'
        )
    labelled_every = math.ceil(60 / step)  # a label takes so many pixels
    for index, site in enumerate(trained.sites):
        if index % labelled_every == 0:
            shown = site.replace("block.", "block " if labelled_every == 1 else "").replace(
                "_", " "
            )
            parts.append(
                f'<text class="small" x="{across[index]:.1f}" y="{bottom + 18:.1f}" '
                f'text-anchor="middle">{shown}</text>'
            )
    alt = "; ".join(
        f"{name}: {min(course.values):.2f} to {max(course.values):.2f}, at the end "
        f"{course.values[-1]:.2f}"
        for _, course, _, name in both
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 28:.0f}" '
        'role="img" aria-labelledby="t d">'
        '<title id="t">The cone of every layer</title><desc id="d">Average cosine by layer. '
        f"{alt}.</desc>"
        f"<style>{STYLE}</style>{''.join(parts)}</svg>"
    )


def section(kind: str, x: float, y: float, radius: float, cosine: float) -> list[str]:
    """One slice: a circle for all directions, and the sector that the tokens lie in."""
    angle = math.acos(math.sqrt(min(max(cosine, 0.0), 1.0)))
    dx = radius * math.sin(angle)
    dy = radius * math.cos(angle)
    sector = (
        f"M{x:.1f} {y:.1f}L{x - dx:.1f} {y - dy:.1f}A{radius:.1f} {radius:.1f} 0 0 1 {x + dx:.1f} "
        f"{y - dy:.1f}Z"
    )
    title = f"<title>{math.degrees(angle):.0f}°, average cosine {cosine:.2f}</title>"
    ball = f'<circle class="ball" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>'
    return [ball, f'<path class="{kind}" d="{sector}">{title}</path>']


if __name__ == "__main__":
    main()
