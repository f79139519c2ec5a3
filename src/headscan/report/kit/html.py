"""A page as one HTML file that carries its own styles, scripts, plotly.js and data.

plotly.js is 4.8 MB; it is embedded deflated (1.8 MB as text) and inflated by the browser's own
`DecompressionStream` (in every browser since 2023). In older browsers, and without JavaScript, a
sentence says so, and all numbers are in the tables. The files that a reader can take away
(result.json, the tables as CSV) are embedded in the same way.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from headscan.report.kit import palette
from headscan.report.kit.alt_text import describe
from headscan.report.kit.parts import Cell, Figure, Page, Panels, Part, Raw, figures_of
from headscan.report.kit.words import number, written
from headscan.run import Term, plain

TEMPLATE_PACKAGES = ["headscan.report"]
"""The packages that have `templates` and `assets`; a plug-in with pages of its own adds itself."""

# The digits of base 85 (RFC 1924).
DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
PLOTLY_CONFIG = {
    "displayModeBar": False,
    "displaylogo": False,
    "responsive": False,
    "scrollZoom": False,
    "doubleClick": "reset",
}
# The page is data about untrusted text: if markup slipped through, it could neither run, nor load
# or send anything.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {style}; img-src data: blob:; base-uri "
    "'none'; form-action 'none'"
)
STYLE_ATTRIBUTE = re.compile(r'(<[a-zA-Z][^<>]*?) style="([^"<>]*)"')
PLOTLY_STYLE_ID = re.compile(r'getElementById\("([0-9a-f]{64})"\)')
# With more titles than this, or a longer one, the page's heading is set smaller.
MOST_LARGE_TITLES = 2
LONGEST_LARGE_TITLE = 40


def html(page: Page) -> str:
    """Return the page's text: about 2 MB, nearly all of it plotly.js.

    It has no lone surrogates, so that it can be written as UTF-8.
    """
    parts = list(page.parts())
    figures = [figure for part in parts for figure in figures_of(part)]
    raws = [part for part in parts if isinstance(part, Raw)]
    drawn = {figure.name: figure.drawn() for figure in figures}
    figures_json = script_json({name: json.loads(plot.to_json()) for name, plot in drawn.items()})
    own_scripts = dict.fromkeys(name for raw in raws for name in raw.scripts)
    scripts = [asset(name) for name in ("page.js", "tools.js", *own_scripts)]
    template = environment().get_template("kit.html.j2")
    text = template.render(
        page=page,
        payload=script_json(_payload(raws, drawn, figures_json)),
        plotly=plotly_packed() if drawn or own_scripts else "",
        figures=packed(figures_json),
        files=packed(page.provenance.document),
        later=packed(script_json(_merged([raw.later for raw in raws]))),
        alt={figure.name: _alt_text(figure, drawn[figure.name]) for figure in figures},
        numbers=_figure_numbers(parts),
        style=_style(raws),
        scripts=scripts,
        run=[*scripts, get_plotlyjs()],
        plotly_style=plotly_style(),
        contents=contents(page),
        long=_has_long_title(page.head.titles),
    )
    return text.encode("utf-8", "replace").decode("utf-8")


def _payload(
    raws: Sequence[Raw], drawn: dict[str, go.Figure], figures_json: str
) -> dict[str, object]:
    """Return the data that the page's scripts read as `Headscan`."""
    most_traces = max((len(figure.data) for figure in drawn.values()), default=0)
    swaps = palette.swaps(most_traces)
    return {
        "data": _merged([raw.data for raw in raws]),
        "config": PLOTLY_CONFIG,
        "swap": {light: dark for light, dark in swaps.items() if light in figures_json},
        "roles": {name: list(pair) for name, pair in palette.ROLES.items()},
        "frequency": list(palette.FREQUENCY),
    }


def _merged(mappings: Sequence[Any]) -> dict[str, object]:
    """Return one dictionary with the entries of all mappings."""
    merged: dict[str, object] = {}
    for mapping in mappings:
        merged.update(mapping)
    return merged


def _alt_text(figure: Figure, drawn: go.Figure) -> str:
    """Return the text that is read instead of the figure."""
    return f"{figure.alt.rstrip('. ')}. {describe(drawn)}".strip()


def _figure_numbers(parts: Sequence[Part]) -> dict[str, int]:
    """Map the first figure of each part with a caption to its number, counted from 1."""
    numbers: dict[str, int] = {}
    for part in parts:
        if isinstance(part, Figure | Panels) and part.caption and figures_of(part):
            numbers[figures_of(part)[0].name] = len(numbers) + 1
    return numbers


def _style(raws: Sequence[Raw]) -> Markup:
    own_styles = dict.fromkeys(name for raw in raws for name in raw.styles)
    return Markup("\n").join([colour_variables(), *map(asset, ("page.css", *own_styles))])


def _has_long_title(titles: Sequence[str]) -> bool:
    longest = max(map(len, titles), default=0)
    return len(titles) > MOST_LARGE_TITLES or longest > LONGEST_LARGE_TITLE


def contents(page: Page) -> list[tuple[str, str]]:
    """Return the anchors of a page and their titles, from the findings to the protocol."""
    entries = []
    if page.findings and page.head.listed:
        entries.append(("findings-title", "Findings"))
    entries += [(section.name, section.title) for section in page.sections]
    if page.glossary:
        entries.append(("glossary", "What they mean"))
    if page.provenance.document:
        entries.append(("protocol", "Protocol"))
    return entries


@cache
def environment() -> jinja2.Environment:
    """Return the environment of all templates; escaping is on, undefined names are errors."""
    loaders = [jinja2.PackageLoader(package, "templates") for package in TEMPLATE_PACKAGES]
    templates = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "number": number,
        "written": written,
        "bounds": bounds,
        "unstyled": unstyled,
    }
    templates.globals["policy"] = policy
    return templates


def unstyled(markup: str) -> tuple[Markup, Markup]:
    """Return the markup with a number in place of each style attribute, and the rules for them.

    The page's policy forbids style attributes.

    >>> unstyled('<p style="height:3px">a</p><p style="height:3px">b</p>')[1]
    Markup('[data-style="0"]{height:3px}')
    """
    indices: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        tag, declarations = match.groups()
        index = indices.setdefault(declarations, len(indices))
        return f'{tag} data-style="{index}"'

    without_styles = STYLE_ATTRIBUTE.sub(numbered, str(markup))
    rules = [f'[data-style="{index}"]{{{declarations}}}' for declarations, index in indices.items()]
    return Markup(without_styles), Markup("\n".join(rules))


def policy(scripts: Sequence[str], style: str) -> Markup:
    """Return the Content-Security-Policy of a page.

    It allows these scripts and this style, by their hashes, and nothing else.
    """
    hashes = " ".join(map(_hash_source, scripts))
    return Markup(CONTENT_SECURITY_POLICY.format(scripts=hashes, style=_hash_source(style)))


@cache
def _hash_source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def plotly_style() -> str:
    """Return the id that plotly's map library looks for before it adds a style element."""
    match = PLOTLY_STYLE_ID.search(get_plotlyjs())
    return match[1] if match else ""


def bounds(cell: Cell, term: Term) -> str:
    """Return a cell's interval as its column writes numbers: '0.961 to 0.990'."""
    if cell.interval is None:
        return ""
    low, high = cell.interval
    return f"{written(low, term)} to {written(high, term)}"


@cache
def asset(name: str) -> Markup:
    """Return a style or script of a package's `assets`, to be put into the page as it is."""
    files = [resources.files(package) / "assets" / name for package in TEMPLATE_PACKAGES]
    file = next(file for file in files if file.is_file())
    return Markup(file.read_text(encoding="utf-8"))


@cache
def plotly_packed() -> Markup:
    """Return plotly.js, packed."""
    return packed(get_plotlyjs())


def packed(text: str) -> Markup:
    """Return a text deflated (zlib) and written in base 85, with / for <, so that no markup arises.

    Base 85 makes it a quarter longer, where base 64 would make it a third longer.
    """
    deflated = zlib.compress(text.encode("utf-8", "replace"))
    data = len(deflated).to_bytes(4, "big") + deflated
    # `base64.b85encode` with padding, in a twentieth of its time.
    padded = data + bytes(-len(data) % 4)
    quotients = np.frombuffer(padded, dtype=">u4").astype(np.uint32)
    digits = np.empty((len(quotients), 5), dtype=np.uint8)
    for position in range(4, -1, -1):
        quotients, digits[:, position] = np.divmod(quotients, 85)
    letters = np.frombuffer(DIGITS, dtype=np.uint8)[digits]
    return Markup(letters.tobytes().decode("ascii").replace("<", "/"))


def colour_variables() -> Markup:
    """Return the palette's roles as CSS variables.

    They are light, and dark where a screen or the page's own switch asks for it.
    """
    light = _theme_variables(0)
    dark = _theme_variables(1)
    preferred = f"(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
    switched = f"{{:root[data-theme=dark]{{{dark}}}}}"
    return Markup(f":root{{{light}}}@media screen and {preferred}@media screen{switched}")


def _theme_variables(theme: int) -> str:
    """Return the declarations of the light (0) or the dark (1) theme."""
    roles = [f"--{name}:{pair[theme]};" for name, pair in palette.ROLES.items()]
    frequency = ", ".join(palette.FREQUENCY[theme])
    depth = ", ".join(palette.DEPTH[theme])
    return f"{''.join(roles)}--frequency:{frequency};--depth:{depth}"


def script_json(value: object) -> Markup:
    """Return JSON that may stand inside a script element.

    No character of it can end the element or open a comment.

    >>> script_json({"token": "</script>&", "x": float("inf")})
    Markup('{"token":"\\\\u003c/script\\\\u003e\\\\u0026","x":null}')
    """
    text = json.dumps(plain(value), separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
