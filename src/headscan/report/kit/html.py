"""A page as one HTML file that carries its own styles, scripts, plotly.js and data; and what a
notebook shows of it.

plotly.js is 4.8 MB; it is embedded deflated (1.8 MB as text) and inflated by the browser's own
`DecompressionStream` (in every browser since 2023). Older ones, and those without JavaScript, are
told so in a sentence and have all numbers in the tables. What a reader can take away (result.json,
the tables as CSV) is embedded in the same way.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources

import jinja2
import numpy as np
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from headscan.report.kit import palette, words
from headscan.report.kit.parts import Cell, Figure, Page, Panels, Raw, Table, figures_of
from headscan.run import Term, plain

HOMES = ["headscan.report"]
"""The packages whose `templates` and `assets` pages are made of; a plug-in with pages of its own
adds itself.
"""

# The digits of base 85 (RFC 1924).
DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
CONFIG = {
    "displayModeBar": False,
    "displaylogo": False,
    "responsive": False,
    "scrollZoom": False,
    "doubleClick": "reset",
}
POLICY = (
    # The page is data about untrusted text: whatever slipped through could neither run, nor load or
    # send anything.
    "default-src 'none'; script-src {scripts}; style-src {style}; img-src data: blob:; base-uri "
    "'none'; form-action 'none'"
)
STYLED = re.compile(r'(<[a-zA-Z][^<>]*?) style="([^"<>]*)"')


def html(page: Page) -> str:
    """The page's text, about 2 MB, nearly all of it plotly.js; without lone surrogates, so that it
    can be written as UTF-8.
    """
    parts = list(page.parts())
    figures = [figure for part in parts for figure in figures_of(part)]
    made = {figure.name: figure.made() for figure in figures}
    raws = [part for part in parts if isinstance(part, Raw)]
    drawn = script_json({name: json.loads(figure.to_json()) for name, figure in made.items()})
    swaps = palette.swaps(max((len(figure.data) for figure in made.values()), default=0))
    payload = {
        "data": {key: value for raw in raws for key, value in raw.data.items()},
        "config": CONFIG,
        "swap": {light: dark for light, dark in swaps.items() if light in drawn},
        "roles": {name: list(pair) for name, pair in palette.ROLES.items()},
        "frequency": list(palette.FREQUENCY),
    }
    later = {key: value for raw in raws for key, value in raw.later.items()}
    captioned = [
        part
        for part in parts
        if isinstance(part, Figure | Panels) and part.caption and figures_of(part)
    ]
    own = dict.fromkeys(name for raw in raws for name in raw.scripts)
    titles = page.head.titles
    scripts = [asset(name) for name in ("page.js", "tools.js", *own)]
    styles = dict.fromkeys(name for raw in raws for name in raw.styles)
    text = (
        environment()
        .get_template("kit.html.j2")
        .render(
            page=page,
            payload=script_json(payload),
            plotly=plotly_packed() if made or own else "",
            figures=packed(drawn),
            files=packed(page.shown.data),
            later=packed(script_json(later)),
            alt={
                one.name: f"{one.alt.rstrip('. ')}. {words.describe(made[one.name])}".strip()
                for one in figures
            },
            numbers={figures_of(part)[0].name: place for place, part in enumerate(captioned, 1)},
            style=Markup("\n").join([colour_variables(), *map(asset, ("page.css", *styles))]),
            scripts=scripts,
            run=[*scripts, get_plotlyjs()],
            plotly_style=plotly_style(),
            contents=contents(page),
            long=len(titles) > 2 or max(map(len, titles), default=0) > 40,
        )
    )
    return text.encode("utf-8", "replace").decode("utf-8")


def contents(page: Page) -> list[tuple[str, str]]:
    """The anchors of a page and their titles, from the findings to the protocol."""
    listed = [("findings-title", "Findings")] if page.findings and page.head.listed else []
    ends = [("glossary", "What they mean")] if page.glossary else []
    return [
        *listed,
        *((one.name, one.title) for one in page.sections),
        *ends,
        ("protocol", "Protocol"),
    ]


@cache
def environment() -> jinja2.Environment:
    """The templates of all `HOMES`, with escaping always on and undefined names an error."""
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(home, "templates") for home in HOMES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": words.number,
        "written": words.written,
        "bounds": bounds,
        "unstyled": unstyled,
    }
    made.globals["policy"] = policy
    return made


def unstyled(markup: str) -> tuple[Markup, Markup]:
    """The markup with a number in place of each style attribute, which the page's policy forbids;
    and their rules.

    >>> unstyled('<p style="height:3px">a</p><p style="height:3px">b</p>')[1]
    Markup('[data-style="0"]{height:3px}')
    """
    places: dict[str, int] = {}
    numbered = STYLED.sub(
        lambda found: f'{found[1]} data-style="{places.setdefault(found[2], len(places))}"',
        str(markup),
    )
    return Markup(numbered), Markup(
        "\n".join(f'[data-style="{place}"]{{{rule}}}' for rule, place in places.items())
    )


def policy(scripts: Sequence[str], style: str) -> Markup:
    """The Content-Security-Policy of a page: it runs these scripts and this style, by their hashes,
    and nothing else.
    """
    return Markup(POLICY.format(scripts=" ".join(map(_hashed, scripts)), style=_hashed(style)))


@cache
def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def plotly_style() -> str:
    """The name of the style element that plotly's map library makes where the page has none of this
    name.
    """
    found = re.search(r'getElementById\("([0-9a-f]{64})"\)', get_plotlyjs())
    return found[1] if found else ""


def bounds(cell: Cell, term: Term) -> str:
    """A cell's interval as its column writes numbers: '0.961 to 0.990'."""
    return " to ".join(words.written(end, term) for end in cell.interval) if cell.interval else ""


@cache
def asset(name: str) -> Markup:
    """A style or script of one of the `HOMES`, to be put into the page as it is."""
    files = [resources.files(home) / "assets" / name for home in HOMES]
    return Markup(next(file for file in files if file.is_file()).read_text(encoding="utf-8"))


@cache
def plotly_packed() -> Markup:
    return packed(get_plotlyjs())


def packed(text: str) -> Markup:
    """A text, deflated (zlib), in base 85 (a quarter longer, where base 64 is a third) with / for
    <: no markup can arise.
    """
    deflated = zlib.compress(text.encode("utf-8", "replace"))
    data = len(deflated).to_bytes(4, "big") + deflated
    # `base64.b85encode` with padding, in a twentieth of its time.
    rest = np.frombuffer(data + bytes(-len(data) % 4), dtype=">u4").astype(np.uint32)
    digits = np.empty((len(rest), 5), dtype=np.uint8)
    for place in range(4, -1, -1):
        rest, digits[:, place] = np.divmod(rest, 85)
    return Markup(
        np.frombuffer(DIGITS, dtype=np.uint8)[digits].tobytes().decode("ascii").replace("<", "/")
    )


def colour_variables() -> Markup:
    """The palette's roles as CSS variables: light, and dark where a screen or the page's own switch
    asks for it.
    """
    light, dark = (
        "".join(f"--{n}:{pair[k]};" for n, pair in palette.ROLES.items()) for k in (0, 1)
    )
    scales = zip(palette.FREQUENCY, palette.DEPTH, strict=True)
    gradients = [f"--frequency:{', '.join(f)};--depth:{', '.join(d)}" for f, d in scales]
    at_night = (
        "@media screen and "
        f"(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}{gradients[1]}}}}}"
    )
    return Markup(
        f":root{{{light}{gradients[0]}}}{at_night}@media "
        f"screen{{:root[data-theme=dark]{{{dark}{gradients[1]}}}}}"
    )


def script_json(value: object) -> Markup:
    """JSON that may stand inside a script element: no character of it can end the element or open a
    comment.

    >>> script_json({"token": "</script>&", "x": float("inf")})
    Markup('{"token":"\\\\u003c/script\\\\u003e\\\\u0026","x":null}')
    """
    text = json.dumps(plain(value), separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


# ---- In a notebook: the findings and a small table, without scripts, no wider than the cell.

ROWS = 6
COLUMNS = 5
FINDINGS = 5
SIGNS = {"alert": "!", "notice": "·", "good": "+"}


def notebook(page: Page) -> str:
    """The page's first words, findings and first table; colours follow the notebook's own."""
    tone = "font-weight:bold" if page.head.alarm else "opacity:.75"
    titles = ", ".join(page.head.titles)
    shown = [f"<b>{_safe(titles)}</b>", f'<div style="{tone}">{_safe(page.head.subtitle)}</div>']
    if page.findings:
        items = "".join(
            f"<li><b>{SIGNS.get(one.level, '·')} {_safe(one.code)}</b>: {_safe(one.sentence)}</li>"
            for one in page.findings[:FINDINGS]
        )
        shown.append(f'<ul style="list-style:none;margin:.5em 0;padding:0">{items}</ul>')
    parts = list(page.parts())
    shown += [part.notebook for part in parts if isinstance(part, Raw) and part.notebook][:1]
    tables = [
        part for part in parts if isinstance(part, Table) and part.lines and part.where != "page"
    ]
    shown += map(_table, tables[:1])
    shown.append(
        '<div style="opacity:.75">More: <code>.page</code> <code>.plot()</code> '
        "<code>.frame()</code></div>"
    )
    style = (
        "max-width:640px;overflow-x:auto;font:13px/1.45 "
        "Helvetica,Arial,sans-serif;overflow-wrap:anywhere"
    )
    return f'<div style="{style}">{"".join(shown)}</div>'


def _table(table: Table) -> str:
    """The first columns of the first rows."""
    heads = table.shown("terminal")[: COLUMNS + 1]
    style = 'style="text-align:{};padding:2px 10px 2px 0;font-weight:normal"'
    styles = [style.format("left" if one.text else "right") for one in heads]
    titles = "".join(
        f"<th {own}>{_safe(one.term.title)}</th>" for own, one in zip(styles, heads, strict=True)
    )
    rows = ""
    for line in table.lines[:ROWS]:
        cells = "".join(
            f"<td {own}>{_safe(words.written(line.cells[place - 1].value, term)[:60])}</td>"
            for own, (place, term, _) in zip(styles, heads, strict=True)
            if 0 < place <= len(line.cells)
        )
        label = f"{line.label} {line.note}".strip()
        rows += f"<tr><th {style.format('left')}>{_safe(label[:40])}</th>{cells}</tr>"
    more = (
        f'<div style="opacity:.75">{len(table.lines) - ROWS} more rows</div>'
        if len(table.lines) > ROWS
        else ""
    )
    style = "border-collapse:collapse;font:inherit;overflow-wrap:normal"
    return (
        "<table "
        f'style="{style}"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>{more}'
    )


def _safe(text: object) -> str:
    return escape(words.clean(text))
