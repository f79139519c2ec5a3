"""The shell of every page: one HTML file that carries its own styles, scripts, plotly.js and data, and asks for nothing.

A page of a kind is a Jinja template in `templates/` that extends `page.html.j2` and fills its blocks, with macros from
`parts.html.j2`, plus what it needs of `assets/`. In the template, `figure("name", ...)` puts a place for a plotly figure;
`assets/page.js` draws it, in the reader's light or dark, and again in light for print. Scripts of the page's own read the
data with `Headscan.data`.

>>> import plotly.graph_objects as go
>>> html = render("page.html.j2", title="A page", figures={}, data={"token": "</script>"})
>>> "</script>" in html.split('id="data"')[1].split("\\n")[0][:40]
False
"""

from __future__ import annotations

import json
import math
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

import headscan
from headscan.report import palette, words

__all__ = ["asset", "plain", "render", "script_json"]

CONFIG = {"displayModeBar": False, "displaylogo": False, "responsive": True, "scrollZoom": False, "doubleClick": False}
POLICY = (
    # The page is data about untrusted text: whatever slipped through could still neither load nor send anything.
    # plotly's WebGL part compiles its shaders' attribute setters with `new Function`, hence unsafe-eval.
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def render(
    template: str, *, title: str, data: dict | None = None, figures: dict[str, go.Figure] | None = None,
    scripts: tuple[str, ...] = (), styles: tuple[str, ...] = (), depth: int = 0, **context: Any,
) -> str:  # fmt: skip
    """One self-contained HTML page.

    Args:
        template: a file of `templates/`; everything it prints is escaped.
        title: of the browser's tab.
        data: plain JSON-able data for the page's own scripts; NaN and infinities become null.
        figures: plotly figures in the light palette by the names that the template's `figure(...)` calls use.
        scripts, styles: files of `assets/` besides `page.js` and `page.css`.
        depth: the largest number of lines in one `plots.spectrum`, whose colours need dark partners.
        context: everything else the template uses.

    Returns:
        The page's text, without lone surrogates, so that it can be written as UTF-8.
    """
    payload = {
        "data": data or {},
        "figures": {name: json.loads(figure.to_json()) for name, figure in (figures or {}).items()},
        "config": CONFIG,
        "swap": palette.swaps(depth),
        "roles": {name: list(pair) for name, pair in palette.ROLES.items()},
        "frequency": list(palette.FREQUENCY),
    }
    page = environment().get_template(template).render(
        title=title, version=headscan.__version__, policy=Markup(POLICY), payload=script_json(payload),
        plotly=Markup(get_plotlyjs()), styles=[asset(n) for n in ("page.css", *styles)],
        scripts=[asset(n) for n in ("page.js", *scripts)], root=colour_variables(), **context,
    )  # fmt: skip
    return page.encode("utf-8", "replace").decode("utf-8")


@cache
def environment() -> jinja2.Environment:
    """The templates, with escaping always on and undefined names an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("headscan.report", "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        "number": words.number, "interval": words.interval, "grouped": words.grouped, "end": words.end,
    }  # fmt: skip
    return made


@cache
def asset(name: str) -> Markup:
    """A style or script of this package, to be put into the page as it is."""
    return Markup((resources.files("headscan.report") / "assets" / name).read_text(encoding="utf-8"))


def colour_variables() -> Markup:
    """The palette's roles as CSS variables: light, and dark where a screen asks for it."""
    light, dark = ("".join(f"--{n}:{pair[k]};" for n, pair in palette.ROLES.items()) for k in (0, 1))
    scales = zip(palette.FREQUENCY, palette.DEPTH, strict=True)
    gradient = [f"--frequency:{', '.join(f)};--depth:{', '.join(d)}" for f, d in scales]
    return Markup(
        f":root{{{light}{gradient[0]}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}{gradient[1]}}}}}"
    )


def script_json(value: Any) -> Markup:
    """JSON that may stand inside a script element: no character of it can end the element or open a comment.

    >>> script_json({"token": "</script>&"})
    Markup('{"token":"\\\\u003c/script\\\\u003e\\\\u0026"}')
    """
    text = json.dumps(plain(value), separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def plain(value: Any) -> Any:
    """The value with NaN and infinities as null, which JSON has no words for.

    >>> plain({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
