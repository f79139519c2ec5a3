"""A result is a number, a table, a picture and a page: what every verb returns, and how it is kept
on disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeAlias
from typing import Protocol as Interface

from headscan.run.errors import BadInput
from headscan.run.files import check_writable, write_atomic
from headscan.run.rows import Finding, ModelRecord, Protocol, plain

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

SCHEMA = 2
"""The version of result.json's schema; 0.1 wrote none."""

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
    """

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Result]]] = {}
    looks_for: ClassVar[bool] = True
    """Whether the verb looks for findings."""
    presenter: ClassVar[Presenter]
    protocol: Protocol
    models: list[ModelRecord] = field(default_factory=list)
    findings: Sequence[Finding] = field(default_factory=list)
    arrays: Annotated[Arrays, _NotJson] = field(default_factory=dict, metadata={"json": False})

    def __init_subclass__(cls) -> None:
        Result.kinds[cls.kind] = cls

    @cached_property
    def document(self) -> dict[str, Any]:
        """Return what result.json holds: `kind`, `headscan`, `schema`, then the fields."""
        own = plain(self)
        assert isinstance(own, dict)
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

    def page(self) -> str:
        """Return the result as one self-contained HTML page; `save` writes it as report.html."""
        return self.presenter.page(self)

    def table(self, *, whole: bool = False) -> RenderableType:
        """The result as a `rich` table for the terminal; `whole` with all the page's tables and
        findings.
        """
        return self.presenter.table(self, whole=whole)

    def save_figures(
        self, folder: str | os.PathLike[str], formats: Sequence[str] = ("svg", "pdf")
    ) -> list[Path]:
        """Write the page's figures into a folder, one file a figure and format (svg, pdf, png); the
        paths. Raises BadInput where the folder cannot be written, kaleido (`headscan[figures]`) or
        a Chrome is missing, or there is no figure.
        """
        return self.presenter.figures(self, check_writable(folder), formats)

    def to_latex(self, table: str | None = None) -> str:
        """Return one table of the page as LaTeX (booktabs), intervals behind their numbers.

        `table` is its title; by default it is the first that is not folded. Raises BadInput, with
        the titles that there are, for another one.
        """
        return self.presenter.latex(self, table)

    def _repr_html_(self) -> str:
        return self.presenter.snippet(self)

    def __repr__(self) -> str:
        said = [
            f"  {f'{one.code} {one.name}'.strip()}: {one.sentence}" for one in self.findings[:3]
        ]
        names = ", ".join(model.name for model in self.models)
        head = f"{type(self).__name__}({names})" if names else f"{type(self).__name__}()"
        return "\n".join([head, *said, "  .frame() .plot() .page() .save(folder)"])

    def json(self) -> str:
        """`document` as JSON text."""
        return json.dumps(self.document, ensure_ascii=False, indent=1, allow_nan=False)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write arrays.safetensors, report.html and, last, result.json into a folder; each whole or
        not at all. Raises BadInput where the folder cannot be written.
        """
        from numpy import ascontiguousarray
        from safetensors.numpy import save

        path = check_writable(folder)
        page = self.page()
        arrays = path / "arrays.safetensors"
        if self.arrays:
            write_atomic(
                arrays,
                save({name: ascontiguousarray(array) for name, array in self.arrays.items()}),
            )
        else:
            arrays.unlink(missing_ok=True)
        write_atomic(path / "report.html", page)
        write_atomic(path / "result.json", self.json())
        return path

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
    """A saved result's plain data and arrays; BadInput where there is none, or one of another
    schema.
    """
    from safetensors.numpy import load_file

    path = Path(folder)
    try:
        if not (path / "result.json").is_file():
            raise FileNotFoundError
        document = json.loads((path / "result.json").read_text(encoding="utf-8"))
        kind = document["kind"]
        if not isinstance(kind, str):
            raise TypeError("no name of a verb")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"{folder} holds no readable result.json.") from None
    if document.get("schema") != SCHEMA:
        wrote = document.get("headscan") or "another program"
        raise BadInput(
            f"{folder} holds a result ({kind}) that headscan {wrote} wrote in an older form "
            f"(schema {document.get('schema', 1)}, this version reads {SCHEMA}): run the command "
            "in its protocol again."
        )
    arrays = path / "arrays.safetensors"
    try:
        return document, load_file(arrays) if arrays.exists() else {}
    except Exception as error:
        raise BadInput(f"{arrays} is damaged: {error}") from None
