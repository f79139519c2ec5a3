"""Numbers and untrusted text as people should read them, for pages, plots and terminal alike."""

from __future__ import annotations

import html
import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headscan.run.vocabulary import Term

DASH = "—"  # shown for a value that is not defined
MINUS = "−"
SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def value_of(value: object) -> float | None:
    """Return the value as a finite float, or None for null, NaN, infinity and all else.

    To a reader these are all "not defined".
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def grouped(value: int) -> str:
    """Return an integer in groups of three, as in sentences.

    >>> grouped(1912320), grouped(-4096)
    ('1,912,320', '−4,096')
    """
    return f"{value:,}".replace("-", MINUS)


def number(value: object, digits: int = 3, places: int | None = None) -> str:
    """Return a value with about `digits` significant digits (or exactly `places` decimals).

    The minus sign is a true one.

    A whole number from 10 on is a count, and has no decimals.

    >>> number(0.97552), number(63.021), number(-0.04), number(None), number(0.0000312)
    ('0.976', '63.0', '−0.040', '—', '3.1 × 10⁻⁵')
    >>> number(64.0), number(0.99999)
    ('64', '1.00')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return grouped(value)
    finite = value_of(value)
    if finite is None:
        return DASH
    if places is not None:
        return f"{finite:z.{places}f}".replace("-", MINUS)
    size = abs(finite)
    if size == 0:
        return "0"
    if size >= 10 ** (digits + 3) or size < 10.0**-digits:
        return _scientific(finite)
    if size >= 10**digits or (size >= 10 and finite.is_integer()):
        return grouped(round(finite))
    if round(size, digits) >= 1:
        size = max(size, 1.0)
        decimals = digits - 1 - math.floor(math.log10(size))
    elif size < 0.01:
        decimals = digits + 1
    else:
        decimals = digits
    return f"{finite:.{max(decimals, 0)}f}".replace("-", MINUS)


def _scientific(value: float) -> str:
    """Return a value as '1.2 × 10⁻⁵'."""
    mantissa, exponent = f"{value:.1e}".split("e")
    power = str(int(exponent)).translate(SUPERSCRIPT)
    return f"{mantissa.replace('-', MINUS)} × 10{power}"


def literal(text: object) -> str:
    """Return untrusted text such that plotly shows it as it is.

    Plotly reads a small HTML of its own (`<b>`, entities), templates (`%{x}`) and TeX between
    dollar signs in every label; control and direction characters, which would reorder the words
    around them, are shown as U+FFFD.

    >>> literal("<b>%{x} $a$")
    '&lt;b&gt;&#37;{x} &#36;a&#36;'
    """
    escaped = html.escape(clean(text), quote=False)
    return escaped.replace("$", "&#36;").replace("%", "&#37;")


def clean(text: object) -> str:
    """Return untrusted text with U+FFFD for control and direction characters.

    Such characters could rewrite the terminal.
    """
    return CONTROLS.sub("\ufffd", str(text))


def in_unit(sentence: str, unit: str) -> str:
    """Return a sentence about tokens as one about what was read, such as "vectors".

    >>> in_unit("The average length of a token's vector, over all tokens.", "rows")
    "The average length of a row's vector, over all rows."
    >>> in_unit("The average length of a token's vector.", "vectors")
    'The average length of a vector.'
    """
    if unit == "tokens":
        return sentence
    single = unit.removesuffix("s")
    sentence = re.sub(r"\btoken's vector", "vector", sentence) if single == "vector" else sentence
    sentence = re.sub(r"\btokens' vectors", unit, sentence) if single == "vector" else sentence
    return re.sub(r"\btoken(?=s|\b)", single, sentence)


def named(source: str) -> str:
    """Return the name in what may be a path; an id of a hub (one slash) stays whole.

    >>> named("/data/runs/my-model/"), named("EleutherAI/pythia-70m"), named("./runs/gpt")
    ('my-model', 'EleutherAI/pythia-70m', 'gpt')
    """
    starts_as_path = source.startswith(("/", ".", "~"))
    looks_like_path = source.count("/") > 1 and re.fullmatch(r"[\w./~-]+", source)
    if not starts_as_path and not looks_like_path:
        return source
    return source.rstrip("/").rpartition("/")[2] or source


def written(value: object, term: Term) -> str:
    """Return a value in the form that its term asks for.

    >>> from headscan.run.vocabulary import Term
    >>> written(0.5, Term("share", percent=True)), written("a", Term("t"))
    ('50.0 %', 'a')
    >>> written(1e-5, Term("residual", scientific=True))
    '1.0 × 10⁻⁵'
    """
    if isinstance(value, str):
        return value
    finite = value_of(value)
    if finite is None:
        return DASH
    if term.percent:
        places = 1 if term.places is None else term.places
        return f"{100 * finite:.{places}f} %".replace("-", MINUS)
    if term.scientific:
        return _scientific(finite) if finite else "0"
    if isinstance(value, int):
        return number(value)
    return number(value, places=term.places)
