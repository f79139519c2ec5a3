"""Plain data: what JSON can say, and rows of it whose columns are known only when they are made."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
else:
    Json = object  # what pydantic takes anything for

Interval: TypeAlias = tuple[float, float]
Cell: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"


def plain(value: object) -> Json:
    """The value as JSON can say it: dataclasses as objects, arrays as lists, NaN and infinities as
    null.

    Fields of a dataclass that begin with an underscore, or whose metadata says `json=False`, are
    left out.

    >>> plain({"a": (1, float("nan"))})
    {'a': [1, None]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name))
            for field in fields(value)
            if not field.name.startswith("_") and field.metadata.get("json", True)
        }
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, FunctionType):
        return value.__qualname__
    if hasattr(value, "tolist"):  # numpy's arrays and numbers, torch's tensors
        return plain(value.tolist())
    return str(value)


class Row(Mapping[str, Cell]):
    """Named plain values; NAME_interval belongs to NAME, and `notes` say why a value is not there.

    >>> row = Row(site="block.0", rank=0.5, rank_interval=(0.4, 0.6), notes=["few tokens"])
    >>> row["site"], row.number("rank"), row.interval("rank"), row.number("nothing"), row.notes
    ('block.0', 0.5, (0.4, 0.6), None, ['few tokens'])
    """

    __slots__ = ("_cells",)

    def __init__(self, cells: Mapping[str, object] | None = None, /, **named_cells: object) -> None:
        self._cells: dict[str, Cell] = {
            str(name): plain(value) for name, value in {**(cells or {}), **named_cells}.items()
        }

    def __getitem__(self, name: str) -> Cell:
        return self._cells[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __or__(self, cells: Mapping[str, object]) -> Row:
        return Row({**self._cells, **cells})

    def __ror__(self, cells: Mapping[str, object]) -> Row:
        return Row({**cells, **self._cells})

    def __eq__(self, row: object) -> bool:
        return isinstance(row, Mapping) and self._cells == dict(row)

    __hash__ = None  # type: ignore[assignment]

    def number(self, name: str) -> float | None:
        """A finite number, or None where there is none."""
        value = self._cells.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return value
        return None

    def interval(self, name: str) -> Interval | None:
        """The 95 % interval of a number, None where it has none."""
        value = self._cells.get(f"{name}_interval")
        if (
            isinstance(value, list)
            and len(value) == 2
            and all(isinstance(end, int | float) for end in value)
        ):
            return float(value[0]), float(value[1])
        return None

    def numbers(self, name: str) -> list[float]:
        """The finite numbers of a list; [] where there is none."""
        value = self._cells.get(name)
        return (
            [number for number in value if isinstance(number, int | float)]
            if isinstance(value, list)
            else []
        )

    def text(self, name: str) -> str:
        """A word or sentence; "" where there is none."""
        value = self._cells.get(name)
        return "" if value is None else str(value)

    @property
    def notes(self) -> list[str]:
        """What a reader must know, as sentences."""
        value = self._cells.get("notes")
        return [str(note) for note in value] if isinstance(value, list) else []

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in self._cells.items()
            if not isinstance(value, list | dict)
        )
        return f"Row({shown})"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(
            cls, core_schema.dict_schema(core_schema.str_schema())
        )


# ---- What every result says of how it was made: protocol, models, text, findings.


@dataclass(frozen=True, kw_only=True)
class TextRecord:
    """A text by its content.

    `sha256` is over the characters that were read (documents parted by the byte 0xFF), None where
    nothing was read again after a resume; `tokens` counts those that entered the statistics,
    `unknown` how many of them are the tokenizer's unknown token, `dropped` those at the end that
    filled no window. `alone`: each window is a document, or a part of a long one, with special
    tokens, as sentence encoders read. `context`: tokens of a window; of documents read alone, of
    the longest window that may be read. `specials`: how often the string of each special token
    stands in the text, which is read as text. `start`: how windows begin, and `added` the tokens
    that the tokenizer adds to a text, in front and behind.
    """

    source: str
    sha256: str | None = None
    characters: int | None = None
    documents: int | None = None
    tokens: int | None = None
    windows: int | None = None
    dropped: int | None = None
    unknown: int | None = None
    tokenizer: str | None = None
    alone: bool = False
    context: int | None = None
    unit: str = "tokens"  # of what was read: "vectors" of a column of embeddings
    specials: dict[str, int] = field(default_factory=dict)
    start: str = "none"
    added: list[str] = field(default_factory=list)

    @property
    def read(self) -> str | None:
        """What findings stand on, in words.

        >>> TextRecord(source="x", tokens=2048, windows=16).read
        '2,048 tokens in windows of 128'
        >>> TextRecord(source="x.npy", tokens=2000, windows=16, unit="vectors").read
        '2,000 vectors'
        """
        if not self.tokens or not self.windows:
            return None
        cut = f" in {self.cut}" if self.cut else ""
        return f"{self.tokens:,} {self.unit}{cut}"

    @property
    def cut(self) -> str:
        """How the text was cut: "windows of 128"; empty of vectors that are no tokens."""
        if self.unit != "tokens" or not self.tokens or not self.windows:
            return ""
        length = self.tokens // self.windows
        if self.context is not None and self.tokens > self.context:
            length = self.context
        return self.apart or f"windows of {length}"

    @property
    def apart(self) -> str | None:
        """How many texts, or pieces of longer ones, were read each by itself; None of windows of
        one length.

        >>> TextRecord(source="x", tokens=1920, windows=5, documents=1, alone=True).apart
        '5 pieces of 1 text, each read by itself'
        """
        windows = self.windows or 0
        texts = min(self.documents or windows, windows)
        sentence = f"{texts:,} text{'s' * (texts != 1)}, each read by itself"
        return (
            (f"{windows:,} pieces of {sentence}" if texts < windows else sentence)
            if self.alone
            else None
        )

    @property
    def unknown_share(self) -> float:
        """The share of the tokens that are the tokenizer's unknown token."""
        return (self.unknown or 0) / self.tokens if self.tokens else 0.0

    @property
    def sentences(self) -> list[str]:
        """What a reader of the numbers has to know of the text.

        >>> TextRecord(source="x", specials={"<unk>": 3}).sentences
        ["The text contains '<unk>', the string of a special token, 3 times; it was read as text."]
        """
        return self._beginnings() + [
            f"The text contains {string!r}, the string of a special token, {count:,} "
            f"time{'s' * (count != 1)}; it was read as text."
            for string, count in self.specials.items()
        ]

    def _beginnings(self) -> list[str]:
        """How windows begin, where that is a question."""
        added = " ".join(self.added)
        if self.alone or (self.start == "none" and not added):
            return []
        if self.start == "none":
            sentence = f"Windows are read without {added}, which the tokenizer adds to a text"
            return [f"{sentence}: see --start."]
        if not added:
            return ["The tokenizer adds nothing to a text, so that windows are text alone."]
        return [f"Windows are read with {added} added, in positions that no number of a site has."]

    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """What a model is and where it came from.

    `dequantised` says that weights of few bits were unpacked and saved in full precision; "" where
    they were not. `sha256` has the hex digest of each file that the model was read from.
    """

    name: str
    source: str | None = None
    revision: str | None = None
    model_class: str = ""
    architecture: str | None = None
    parameters: int | None = None
    dtype: str | None = None
    device: str | None = None
    depth: int | None = None
    width: int | None = None
    vocabulary: int | None = None
    context: int | None = None
    quantize: str | None = None
    random_init: int | None = None
    dequantised: str = ""
    notes: list[str] = field(default_factory=list)
    sha256: dict[str, str] = field(default_factory=dict)


Level: TypeAlias = Literal["alarm", "notice", "fine"]
"""How telling a finding is, the same in JSON, terminal, page, card, list and exit status."""


@dataclass(frozen=True, kw_only=True)
class FindingDetails:
    """What a condition of a checkup adds to the sentence of a finding; empty for other findings."""

    title: str = ""
    advice: str = ""
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What numbers say in words: a code, how telling it is, a sentence, where it was seen, and the
    number itself. `headscan.run.kinds` makes them.
    """

    code: str  # as in docs/findings.md
    level: Level
    sentence: str
    model: str | None = None
    site: str | None = None
    value: float | None = None
    unit: str = ""  # what the value is, as a page writes below it
    read: str | None = None  # the text that it stands on: so many tokens, in windows of so many
    name: str = ""  # of the code, in capitals; a checkup's conditions have a title
    passed: Literal["", "ignored", "known"] = (
        ""  # it does not count: by --ignore, or because --baseline has it, too
    )

    @property
    def details(self) -> FindingDetails:
        """Return title, advice and unit, as pages show them."""
        return FindingDetails(unit=self.unit)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a result was made: enough to make it again.

    `settings` has the value that was used of every option; `by_default` names those that were not
    given and whose default depends on the source.
    """

    verb: str
    command: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    by_default: list[str] = field(default_factory=list)
    seed: int | None = None
    text: TextRecord | None = None
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None
    processes: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    started: str = ""
    seconds: float | None = None
    notes: list[str] = field(default_factory=list)
