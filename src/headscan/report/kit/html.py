"""A page as one HTML file that carries its own styles, scripts, plotly.js and data, and asks for nothing.

plotly.js is 4.8 MB; it is embedded deflated (1.8 MB as text) and inflated by the browser's own `DecompressionStream`
(in every browser since 2023). Older ones, and those without JavaScript, are told so in a sentence and have all numbers in
the tables. What a reader can take away (result.json, the tables as CSV) is embedded in the same way.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import jinja2
import numpy as np
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from headscan.report.kit import palette, words
from headscan.report.kit.parts import Cell, Column, Figure, Page, Panels, Raw, figures_of
from headscan.report.kit.words import describe

if TYPE_CHECKING:
    import plotly.graph_objects as go

DIGITS = (
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"  # of base 85 (RFC 1924)
)
PLACES = (4, 3, 2, 1, 0)
CONFIG = {"displayModeBar": False, "displaylogo": False, "responsive": False, "scrollZoom": False, "doubleClick": False}
POLICY = (
    # The page is data about untrusted text: whatever slipped through could still neither load nor send anything.
    # plotly's WebGL part compiles its shaders' attribute setters with `new Function`, hence unsafe-eval.
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def html(page: Page) -> str:
    """The page's text, about 2 MB, nearly all of it plotly.js; without lone surrogates, so that it can be written as UTF-8."""
    figures = {figure.name: figure.made() for part in page.parts() for figure in figures_of(part)}
    raws = [part for part in page.parts() if isinstance(part, Raw)]
    data: dict[str, object] = {}
    for raw in raws:
        data |= raw.data
    drawn = script_json({name: json.loads(figure.to_json()) for name, figure in figures.items()})
    payload = {
        "data": data,
        "config": CONFIG,
        "swap": dark_partners(drawn, max((len(figure.data) for figure in figures.values()), default=0)),
        "roles": {name: list(pair) for name, pair in palette.ROLES.items()},
        "frequency": list(palette.FREQUENCY),
    }
    own = dict.fromkeys(name for raw in raws for name in raw.scripts)
    text = environment().get_template("kit.html.j2").render(
        page=page, policy=Markup(POLICY), payload=script_json(payload), plotly=plotly_packed() if figures or own else "",
        figures=packed(drawn),
        files=packed(page.shown.data), alt=alternatives(page, figures), numbers=numbering(page),
        styles=[asset(name) for name in ("page.css", *dict.fromkeys(name for raw in raws for name in raw.styles))],
        scripts=[asset(name) for name in ("page.js", *own)], root=colour_variables(), long=long_titles(page),
    )  # fmt: skip
    return text.encode("utf-8", "replace").decode("utf-8")


def dark_partners(drawn: str, most: int) -> dict[str, str]:
    """Light -> dark for the palette's colours that figures use, which hold at most so many lines."""
    return {light: dark for light, dark in palette.swaps(most).items() if light in drawn}


def long_titles(page: Page) -> bool:
    """Whether the titles are too many or too long for large letters."""
    return len(page.head.titles) > 2 or max(map(len, page.head.titles), default=0) > 40


def numbering(page: Page) -> dict[str, int]:
    """The number of every figure (or row of panels, by the first one's name) that has a caption."""
    captioned = [
        part for part in page.parts() if isinstance(part, Figure | Panels) and part.caption and figures_of(part)
    ]
    return {figures_of(part)[0].name: place for place, part in enumerate(captioned, 1)}


def alternatives(page: Page, figures: Mapping[str, go.Figure]) -> dict[str, str]:
    """For every figure the sentence read in its place: what it is, and the numbers of its lines."""
    parts: list[Figure] = [figure for part in page.parts() for figure in figures_of(part)]
    return {part.name: f"{part.alt.rstrip('. ')}. {describe(figures[part.name])}".strip() for part in parts}


@cache
def environment() -> jinja2.Environment:
    """The templates, with escaping always on and undefined names an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("headscan.report", "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    filters: dict[str, Callable[..., object]] = {
        "number": words.number, "grouped": words.grouped, "named": words.named, "written": words.written, "bounds": bounds,
    }  # fmt: skip
    made.filters |= filters
    return made


def bounds(cell: Cell, column: Column) -> str:
    """A cell's interval as its column writes numbers: '0.961 to 0.990'."""
    return " to ".join(words.written(end, column) for end in cell.interval) if cell.interval else ""


@cache
def asset(name: str) -> Markup:
    """A style or script of this package, to be put into the page as it is."""
    return Markup((resources.files("headscan.report") / "assets" / name).read_text(encoding="utf-8"))


@cache
def plotly_packed() -> Markup:
    """plotly.js, packed."""
    return packed(get_plotlyjs())


def packed(text: str) -> Markup:
    """A text, deflated (zlib), in base 85 (a quarter longer, where base 64 is a third) with / for <: no markup can arise."""
    deflated = zlib.compress(text.encode("utf-8", "replace"))
    sized = len(deflated).to_bytes(4, "big") + deflated
    return Markup(_base85(sized).decode("ascii").replace("<", "/"))


def _base85(given: bytes) -> bytes:
    """`base64.b85encode` with padding, in a twentieth of its time."""
    words = np.frombuffer(given + bytes(-len(given) % 4), dtype=">u4").astype(np.uint32)
    digits = np.empty((len(words), len(PLACES)), dtype=np.uint8)
    for place in PLACES:
        words, digits[:, place] = np.divmod(words, 85)
    return np.frombuffer(DIGITS, dtype=np.uint8)[digits].tobytes()


def colour_variables() -> Markup:
    """The palette's roles as CSS variables: light, and dark where a screen asks for it."""
    light, dark = ("".join(f"--{n}:{pair[k]};" for n, pair in palette.ROLES.items()) for k in (0, 1))
    scales = zip(palette.FREQUENCY, palette.DEPTH, strict=True)
    gradients = [f"--frequency:{', '.join(f)};--depth:{', '.join(d)}" for f, d in scales]
    return Markup(
        f":root{{{light}{gradients[0]}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}{gradients[1]}}}}}"
    )


def script_json(value: object) -> Markup:
    """JSON that may stand inside a script element: no character of it can end the element or open a comment.

    >>> script_json({"token": "</script>&", "x": float("inf")})
    Markup('{"token":"\\\\u003c/script\\\\u003e\\\\u0026","x":null}')
    """
    text = json.dumps(words.plain(value), separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
