"""Numbers and untrusted text as people should read them, for pages, plots and terminal alike."""

from __future__ import annotations

import html
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import plotly.graph_objects as go

    from headscan.run.vocabulary import Term


DASH = "—"  # where a value is not defined
SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def value_of(value: object) -> float | None:
    """The value as a finite float, or None: null, NaN and infinity are all 'not defined' to a
    reader.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def grouped(value: int) -> str:
    """An integer in groups of three, parted by narrow spaces.

    >>> grouped(1912320).split(chr(0x202f))
    ['1', '912', '320']
    """
    return (f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)).replace(
        "-", "−"
    )


def number(value: object, digits: int = 3, places: int | None = None) -> str:
    """A value with about `digits` significant digits (or exactly `places` decimals) and a true
    minus sign.

    >>> number(0.97552), number(63.021), number(-0.04), number(None), number(0.0000312)
    ('0.976', '63.0', '−0.040', '—', '3.1 × 10⁻⁵')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return grouped(value)
    if (found := value_of(value)) is None:
        return DASH
    if places is not None:
        return f"{found:z.{places}f}".replace("-", "−")
    size = abs(found)
    if size == 0:
        return "0"
    if size >= 10 ** (digits + 3) or size < 10.0**-digits:
        return _powers(found)
    if size >= 10**digits:
        return grouped(round(found))
    decimals = digits - 1 - math.floor(math.log10(size)) if size >= 1 else digits + (size < 0.01)
    return f"{found:.{max(decimals, 0)}f}".replace("-", "−")


def _powers(found: float) -> str:
    mantissa, exponent = f"{found:.1e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(SUPERSCRIPT)}".replace(
        "-", "−", 1 if found < 0 else 0
    )


def literal(text: object) -> str:
    """Untrusted text such that plotly shows it as it is.

    Plotly reads a small HTML of its own (`<b>`, entities), templates (`%{x}`) and TeX between
    dollar signs in every label; control and direction characters, which would reorder the words
    around them, are shown as U+FFFD.

    >>> literal("<b>%{x} $a$")
    '&lt;b&gt;&#37;{x} &#36;a&#36;'
    """
    escaped = html.escape(CONTROLS.sub("\ufffd", str(text)), quote=False)
    return escaped.replace("$", "&#36;").replace("%", "&#37;")


def clean(text: object) -> str:
    """Untrusted text without control and direction characters, which could rewrite the terminal."""
    return CONTROLS.sub("\ufffd", str(text))


def named(source: str) -> str:
    """The name in what may be a path; an id of a hub (one slash) stays whole.

    >>> named("/data/runs/my-model/"), named("EleutherAI/pythia-70m"), named("./runs/gpt")
    ('my-model', 'EleutherAI/pythia-70m', 'gpt')
    """
    is_path = source.startswith(("/", ".", "~")) or (
        source.count("/") > 1 and re.fullmatch(r"[\w./~-]+", source)
    )
    return source.rstrip("/").rpartition("/")[2] or source if is_path else source


def written(value: object, term: Term) -> str:
    """A value as its term asks for it.

    >>> from headscan.run.vocabulary import Term
    >>> written(0.5, Term("share", percent=True)), written(1e-5, Term("residual", scientific=True)), written("a", Term("t"))
    ('50.0 %', '1.0 × 10⁻⁵', 'a')
    """
    if isinstance(value, str):
        return value
    if (finite := value_of(value)) is None:
        return DASH
    if term.percent:
        return f"{100 * finite:.{1 if term.places is None else term.places}f} %".replace("-", "−")
    if term.scientific:
        return _powers(finite) if finite else "0"
    return number(value, places=None if isinstance(value, int) else term.places)


# ---- The numbers of a figure in a sentence: what a reader who cannot see it is told.

MOST = 6  # traces; more would not be listened to


def describe(figure: go.Figure) -> str:
    """How each line of a figure runs, the values of its bars, the ends of its map.

    >>> import plotly.graph_objects as go
    >>> describe(go.Figure(go.Scatter(x=[0, 1, 2], y=[0.5, None, 0.25], name="loss")))
    'loss: from 0.500 to 0.250.'
    """
    traces = [
        trace
        for trace in figure.data
        if trace.visible is not False and not getattr(trace, "fill", None)
    ]
    told = [sentence for trace in traces[:MOST] if (sentence := _trace(trace))]
    rest = f" And {len(traces) - MOST} more." if len(traces) > MOST else ""
    return " ".join(told) + rest


def _trace(trace: Any) -> str:
    if trace.type == "heatmap":
        values = [found for row in trace.z for cell in row if (found := value_of(cell)) is not None]
        return (
            f"Values from {number(min(values))} to {number(max(values))}."
            if values
            else "No values."
        )
    across = trace.type == "bar" and trace.orientation == "h"
    given = list((trace.x if across else trace.y) if trace.y is not None else [])
    values = [found for cell in given if (found := value_of(cell)) is not None]
    if not values:
        return ""
    name = html.unescape(str(trace.name)) if trace.name else "Values"
    ends = f"from {number(values[0])} to {number(values[-1])}"
    low = min(values)
    high = max(values)
    between = (
        ""
        if {low, high} <= {values[0], values[-1]}
        else f", lowest {number(low)}, highest {number(high)}"
    )
    return f"{name}: {ends}{between}."


def noted(notes: Iterable[str]) -> list[str]:
    """Notes, with one line for all the numbers that have no interval for the same reason."""
    reasons: dict[str, dict[str, None]] = {}
    for note in notes:
        name, lacks, why = note.partition(" has no interval: ")
        reasons.setdefault(why if lacks else note, {})[
            name.split("_without_")[0] if lacks else ""
        ] = None
    return [
        why
        if "" in names
        else f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no interval: {why}"
        for why, names in reasons.items()
    ]
