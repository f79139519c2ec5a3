"""What a number is, said once: its title, sentence, formula, unit, range and source, and how it is
written.

A result's field carries its term in its type; pages, terminal, LaTeX, glossary, CSV and JSON schema
take their words from it:

    @dataclass(frozen=True)
    class ChannelRow:
        site: str
        bits: Annotated[float, Term("leak", "Bits a token that the channel gives away.",
            unit="bits", range=(0, None))]

    terms_of(ChannelRow)["bits"].unit
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

Bounds: TypeAlias = tuple[float | None, float | None]
"""Least and greatest value; None where there is no end."""


class _OnInstances:
    """A method that pydantic finds on an annotation but not on the class, whose schema stays a
    dataclass's.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method

    def __get__(self, term: "Term | None", owner: type) -> Any:
        if term is None:
            raise AttributeError("__get_pydantic_json_schema__")
        return self.method.__get__(term, owner)


@dataclass(frozen=True)
class Term:
    """The words of a number, a method, a verdict or anything else that a reader meets. Subclasses
    may add fields.

    >>> Term("Average cosine", unit="°", range=(0, 90)).extent
    '0 to 90 °'
    >>> Term("gap").heading, Term("relative gap", column="gap").heading
    ('gap', 'gap')
    """

    title: str
    sentence: str = ""
    formula: str = ""
    unit: str = ""
    range: Bounds = (None, None)
    source: str = ""
    undefined: str = ""  # for which inputs there is no value
    interval: str = ""  # why there is no interval, where there is none
    name: str = ""  # as it is called in code, JSON and options
    column: str = ""  # a short title for narrow tables, with a line break where one helps
    group: str = ""  # a title above several columns, or the section that it belongs to
    places: int | None = None  # decimals; else three significant digits
    percent: bool = False  # shown times 100
    scientific: bool = False  # shown as 1.2 × 10⁻⁵
    spread: bool = False  # its interval is shown in the terminal, too
    where: Literal["everywhere", "page", "terminal"] = "everywhere"

    @property
    def heading(self) -> str:
        return self.column or self.title

    @property
    def extent(self) -> str:
        """The range with its unit: '−1 to 1', '0 to ∞ bits'; "" where neither is known."""
        if self.range == (None, None):
            return self.unit
        ends = zip(self.range, ("−∞", "∞"), strict=True)
        low, high = (
            end if bound is None else f"{bound:g}".replace("-", "−") for bound, end in ends
        )
        return f"{low} to {high} {self.unit}".rstrip()

    def description(self) -> str:
        """Sentence, formula, and where it is undefined and published, in one text."""
        parts = (
            self.sentence,
            self.formula and f"{self.formula}.",
            self.undefined and f"Undefined for {self.undefined}.",
            self.interval and f"No interval: {self.interval}.",
            self.source and f"Source: {self.source}.",
        )
        return " ".join(part for part in parts if part)

    @_OnInstances
    def __get_pydantic_json_schema__(
        self, core: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        schema: dict[str, Any] = {
            "title": self.title,
            "description": self.description(),
            "unit": self.unit,
        }
        schema |= {"minimum": self.range[0], "maximum": self.range[1]}
        return handler(core) | {
            key: value for key, value in schema.items() if value not in ("", None)
        }


def terms_of(kind: type) -> dict[str, Term]:
    """The term of each field of a dataclass by the field's name; a field without one is called by
    its name.

    >>> @dataclass
    ... class Row:
    ...     site: str
    ...     gap: Annotated[float, Term("relative gap", range=(0, None))]
    >>> [term.title for term in terms_of(Row).values()]
    ['site', 'relative gap']

    Raises TypeError: `kind` is no dataclass.
    """
    if not is_dataclass(kind):
        raise TypeError(f"{kind} is no dataclass")
    return _terms_of(kind)


@cache
def _terms_of(kind: Any) -> dict[str, Term]:
    hints = get_type_hints(kind, include_extras=True)
    terms = dict[str, Term]()
    for name in (field.name for field in fields(kind)):
        extra = get_args(hints[name])[1:] if get_origin(hints[name]) is Annotated else ()
        terms[name] = next(
            (item for item in extra if isinstance(item, Term)), Term(name.replace("_", " "))
        )
    return terms
