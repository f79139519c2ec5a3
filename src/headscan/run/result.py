"""A result is a number, a table, a picture and a page: what every verb returns, and how it is kept
on disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeAlias, TypeVar
from typing import Protocol as Interface

from headscan.run.errors import BadInput
from headscan.run.files import check_writable
from headscan.run.rows import Finding, ModelRecord, Protocol, plain
from headscan.run.saving import DOCUMENT, SCHEMA, read_together, replace_together, sha256

if TYPE_CHECKING:
    import numpy as np
    import plotly.graph_objects as go
    from pandas import DataFrame as DataFrame
    from rich.console import RenderableType

    Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
else:
    # in words: pandas is slow to import
    Arrays = dict
    DataFrame = "pandas.DataFrame"

FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    StopIteration,
    TypeError,
    ValueError,
)
"""What is raised where the parts of a result do not go together."""
ARRAYS = "arrays.safetensors"
PAGE = "report.html"

HEADER = ("kind", "headscan", "schema", "highest_level")
"""What result.json holds beside the fields."""


def dataframe(rows: Any, columns: Sequence[str] | None = None) -> DataFrame:
    """Rows (or columns by name) as a pandas table; pandas is loaded only where a table is asked
    for.
    """
    import pandas as pd

    return pd.DataFrame(rows, columns=None if columns is None else list(columns))


def tidy(rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return rows as a pandas table: an interval NAME_interval becomes NAME_low and NAME_high.

    >>> list(tidy([{"site": "block.0", "rank": 2.0, "rank_interval": (1.0, 3.0)}]).columns)
    ['site', 'rank', 'rank_low', 'rank_high']
    """
    entries = []
    for row in rows:
        entry: dict[str, Any] = {}
        for name, value in row.items():
            if name.endswith("interval"):
                start = name.removesuffix("interval")
                entry[f"{start}low"], entry[f"{start}high"] = value or (None, None)
            else:
                entry[name] = value
        entries.append(entry)
    return dataframe(entries)


class Presenter(Interface):
    """The functions that show a result: the module `headscan.report.present`.

    A result may not import the package that draws it, which builds upon this one; `headscan` sets
    `Result.presenter`.
    """

    def page(self, result: Any) -> str:
        """Return the result as one self-contained HTML page."""

    def plot(self, result: Any, name: str | None, **options: Any) -> go.Figure:
        """Return the figure of this name, or the first."""

    def table(self, result: Any, *, whole: bool = False) -> RenderableType:
        """Return the result for the terminal; `whole` adds all the page's tables."""

    def figures(self, result: Any, folder: Path, formats: Sequence[str]) -> list[Path]:
        """Write the page's figures in these formats into a folder and return the paths."""

    def latex(self, result: Any, name: str | None) -> str:
        """Return the table of this title, or the first, for a paper."""

    def snippet(self, result: Any) -> str:
        """Return the result for a notebook, as HTML: findings, one picture, a small table."""


F = TypeVar("F", bound=Callable[..., Any])


def _refusing(show: F) -> F:
    """Return a method that shows a result as one that refuses a loaded result in one sentence.

    What was loaded may be another program's, whose lists are empty and whose arrays are missing.
    """

    @wraps(show)
    def call(result: Result, *positional: Any, **named: Any) -> Any:
        try:
            return show(result, *positional, **named)
        except FAULTS as error:
            if not result.loaded or isinstance(error, BadInput):
                raise
            raise BadInput(
                f"This result of the verb '{result.kind}' cannot be shown, as its parts do not go "
                f"together ({type(error).__name__}: {error})."
            ) from error

    return call  # type: ignore[return-value]


class _NotJson:
    """Marks a field that pydantic leaves alone: it is kept beside the JSON."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """What a verb found. Subclasses are frozen dataclasses with typed fields and a `kind`; JSON is
    made of the fields.

    Attributes:
        protocol: how it was made.
        models: what was examined.
        findings: what the numbers say in words.
        arrays: named numpy arrays, kept in arrays.safetensors beside the JSON.
        files: SHA-256 of the files that were saved with result.json; empty before `save`.
    """

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Result]]] = {}
    looks_for: ClassVar[bool] = True
    """Whether the verb looks for findings."""
    draws: ClassVar[bool] = True
    """Whether the verb's results have a figure."""
    presenter: ClassVar[Presenter]
    loaded: ClassVar[bool] = False
    """Whether it was read from a folder; an instance that was loaded says so itself."""
    protocol: Protocol
    models: list[ModelRecord] = field(default_factory=list)
    findings: Sequence[Finding] = field(default_factory=list)
    arrays: Annotated[Arrays, _NotJson] = field(default_factory=dict, metadata={"json": False})
    files: dict[str, str] = field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        Result.kinds[cls.kind] = cls
        if "frame" in cls.__dict__:
            cls.frame = _refusing(cls.frame)  # type: ignore[method-assign]

    @cached_property
    def document(self) -> dict[str, Any]:
        """Return what result.json holds: `kind`, `headscan`, `schema`, then the fields; not the
        hashes of files, which are known when the page is written.
        """
        own = plain(self)
        assert isinstance(own, dict)
        own.pop("files")
        return {
            "kind": self.kind,
            "headscan": self.protocol.versions.get("headscan"),
            "schema": SCHEMA,
            "highest_level": self.highest_level,
            **own,
        }

    def frame(self) -> DataFrame:
        """The result as a pandas table, one row an entry."""
        raise NotImplementedError

    @_refusing
    def plot(self, what: str | None = None, **options: Any) -> go.Figure:
        """The result as a plotly figure; `what` names one where there are several."""
        return self.presenter.plot(self, what, **options)

    @property
    def highest_level(self) -> str:
        """Return the highest level of the findings that count, as a list of results shows it.

        It is "nothing looked for" of verbs without findings; a checkup may be "not examined".
        """
        if not self.looks_for:
            return "nothing looked for"
        levels = {finding.level for finding in self.findings if not finding.passed}
        if "alarm" in levels:
            return "alarm"
        return "notice" if "notice" in levels else "fine"

    @_refusing
    def page(self) -> str:
        """Return the result as one self-contained HTML page; `save` writes it as report.html."""
        return self.presenter.page(self)

    @_refusing
    def table(self, *, whole: bool = False) -> RenderableType:
        """The result as a `rich` table for the terminal; `whole` with all the page's tables and
        findings.
        """
        return self.presenter.table(self, whole=whole)

    @_refusing
    def save_figures(
        self, folder: str | os.PathLike[str], formats: Sequence[str] = ("svg", "pdf")
    ) -> list[Path]:
        """Write the page's figures into a folder, one file a figure and format (svg, pdf, png); the
        paths. Raises BadInput where the folder cannot be written, kaleido (`headscan[figures]`) or
        a Chrome is missing, or there is no figure.
        """
        return self.presenter.figures(self, check_writable(folder), formats)

    @_refusing
    def to_latex(self, table: str | None = None) -> str:
        """Return one table of the page as LaTeX (booktabs), intervals behind their numbers.

        `table` is its title; by default it is the first that is not folded. Raises BadInput, with
        the titles that there are, for another one.
        """
        return self.presenter.latex(self, table)

    @_refusing
    def _repr_html_(self) -> str:
        return self.presenter.snippet(self)

    def __repr__(self) -> str:
        said = [
            f"  {f'{one.code} {one.name}'.strip()}: {one.sentence}" for one in self.findings[:3]
        ]
        names = ", ".join(model.name for model in self.models)
        head = f"{type(self).__name__}({names})" if names else f"{type(self).__name__}()"
        plot = " .plot()" if self.draws else ""
        return "\n".join([head, *said, f"  .frame(){plot} .page() .save(folder)"])

    def json(self) -> str:
        """Return result.json: `document`, and the hashes of the files that were saved with it."""
        document = self.document | ({"files": self.files} if self.files else {})
        return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write result.json, report.html and arrays.safetensors into a folder, all or none of them.

        A reader finds all the old files or all the new ones. Raises BadInput where the folder
        cannot be written.
        """
        path = check_writable(folder)
        self.saved(path)
        return path

    def saved(self, folder: Path) -> Self:
        """Save the result, and return it with the hashes of its files."""
        from numpy import ascontiguousarray
        from safetensors.numpy import save

        files = {ARRAYS: b"", PAGE: self.page().encode("utf-8")}
        if self.arrays:
            arrays = {name: ascontiguousarray(array) for name, array in self.arrays.items()}
            files[ARRAYS] = save(arrays)
        hashes = {name: sha256(data) for name, data in files.items() if data}
        result = replace(self, files=hashes)
        files[DOCUMENT] = result.json().encode("utf-8")
        replace_together(folder, files)
        return result

    @classmethod
    def of_document(cls, document: dict[str, Any], arrays: Arrays | None = None) -> Self:
        """The result that a result.json describes; BadInput, with the place, where it is not one of
        this kind.
        """
        from pydantic import TypeAdapter, ValidationError

        fields = {key: value for key, value in document.items() if key not in HEADER}
        try:
            made = TypeAdapter(cls).validate_python(fields | {"arrays": {}})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise BadInput(
                f"This is no result of the verb '{cls.kind}': {place}: {first['msg']}."
            ) from None
        object.__setattr__(made, "arrays", dict(arrays or {}))
        object.__setattr__(made, "loaded", True)
        return made

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON schema of `document`."""
        from pydantic import TypeAdapter

        made = TypeAdapter(cls).json_schema(mode="serialization")
        made["properties"].pop("arrays", None)
        made["properties"] = {
            "kind": {"const": cls.kind},
            "headscan": {"type": "string", "description": "The version that wrote it."},
            "schema": {"const": SCHEMA},
            "highest_level": {"type": "string", "description": "Of its findings."},
        } | made["properties"]
        made["required"] = [
            *HEADER,
            *(n for n in made.get("required", []) if n != "arrays"),
        ]
        return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """The result that `save` wrote."""
        document, arrays = read_document(folder)
        if document["kind"] != cls.kind:
            raise BadInput(
                f"{folder} holds a result of the verb '{document['kind']}', not '{cls.kind}'."
            )
        return cls.of_document(document, arrays)


def read_document(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Return a saved result's plain data and its arrays.

    Raises:
        BadInput: where there is no result, one of another schema, or files of two results.
    """
    path = Path(folder)
    try:
        files = read_together(path, optional=frozenset([PAGE]))
        document = json.loads(files[DOCUMENT].decode("utf-8"))
        kind = document["kind"]
        if not isinstance(kind, str):
            raise TypeError("no name of a verb")
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"{folder} holds no readable result.json.") from None
    if document.get("schema") != SCHEMA:
        wrote = document.get("headscan") or "another program"
        raise BadInput(
            f"{folder} holds a result ({kind}) that headscan {wrote} wrote in an older form "
            f"(schema {document.get('schema', 1)}, this version reads {SCHEMA}): run the command "
            "in its protocol again."
        )
    return document, _read_arrays(path, files.get(ARRAYS), known="files" in document)


def _read_arrays(folder: Path, data: bytes | None, *, known: bool) -> Arrays:
    """Return the arrays of a result; `known`: result.json says which files were saved with it."""
    from safetensors.numpy import load, load_file

    path = folder / ARRAYS
    try:
        if data is not None:
            return load(data)
        # another program's, which says no hash
        return load_file(path) if path.exists() and not known else {}
    except Exception as error:
        raise BadInput(f"{path} is damaged: {error}") from None
