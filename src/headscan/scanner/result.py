"""The result of a scan."""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

from headscan.measures.measure import (
    WITHOUT_FIRST,
    WITHOUT_SINKS,
    Group,
    MeasureWords,
    ProbeWords,
)
from headscan.run.result import Arrays, DataFrame, Result, dataframe
from headscan.run.rows import Row, plain
from headscan.scanner.colouring import Colouring
from headscan.scanner.differences import Difference


@dataclass(frozen=True)
class Picture:
    """The sampled tokens of one model.

    Attributes:
        tokens: as people can read them.
        before, after: the text around each.
        frequency: the count of each in the text.
        id: token ids.
        position: in their windows.
        colour: the column of a table that colours them; None where none was chosen.
    """

    tokens: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    frequency: list[int] = field(default_factory=list)
    id: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    colour: Colouring | None = None


@dataclass(frozen=True, kw_only=True)
class ProbeRecord(ProbeWords):
    """The description of a probe, with the seconds that its rows took beside the pass.

    `notes` give the reasons why models have no such rows.
    """

    seconds: float | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, repr=False)
class ScanResult(Result):
    """The shape of one or more models' representations on one text.

    A site's row has every measure as NAME, NAME_interval (95 %), both as NAME_without_sinks and
    NAME_without_first, `singular_values`, the sinks and outlying coordinates (see
    `headscan.measures.outliers`), and `notes` that give the reason where a value is missing.
    `arrays` has the pictures' coordinates on each site's top three directions (those of the tokens
    that are no sinks), `picture/MODEL/SITE` [k, 3], the shares of energy there,
    `picture_share/MODEL/SITE` [3], and which of the sampled tokens are sinks,
    `picture_sink/MODEL/SITE` [k]; and the neighbours of each in all dimensions,
    `picture_near/MODEL/SITE` [k, 10] with their cosines, `picture_near_cosine/MODEL/SITE`
    (`headscan.scanner.picture.nearest`).

    Attributes:
        sites: one row for each site, in the order of depth.
        nulls: the same of the nulls, with `null` = "random-init" or "gaussian".
        tables: the rows of each probe.
    """

    kind: ClassVar[str] = "scan"
    sites: list[Row]
    nulls: list[Row] = field(default_factory=list)
    measures: dict[str, MeasureWords] = field(default_factory=dict)
    probes: list[ProbeRecord] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    tables: dict[str, list[Row]] = field(default_factory=dict, metadata={"json": False})
    pictures: dict[str, Picture] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @cached_property
    def document(self) -> dict[str, Any]:
        return super().document | {name: plain(rows) for name, rows in self.tables.items()}

    @classmethod
    def of_document(cls, document: dict[str, Any], arrays: Arrays | None = None) -> Self:
        fields = dict(document)
        tables = {}
        for name in _probe_names(document):
            tables[name] = fields.pop(name, [])
        return super().of_document(fields | {"tables": tables}, arrays)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        schema = super().json_schema()
        tables = schema["properties"].pop("tables")
        return schema | {"additionalProperties": tables["additionalProperties"]}

    def site(self, name: str, model: str | None = None) -> Row:
        """Return the row of one site, of a model or of the first model that has it."""
        for row in self.sites:
            if row["site"] == name and model in (None, row["model"]):
                return row
        known = ", ".join(row.text("site") for row in self.sites)
        raise KeyError(f"no site {name}; there are {known}")

    def __getitem__(self, name: str | tuple[str, str]) -> Row:
        """Return the row of a site: `result["block.0"]`, or `result["gpt2", "block.0"]`.

        The model is needed where several models have the site.
        """
        if isinstance(name, tuple):
            model, site = name
            return self.site(site, model)
        models = [row.text("model") for row in self.sites if row["site"] == name]
        if len(models) > 1:
            raise KeyError(f"{', '.join(models)} have {name}: write result[MODEL, {name!r}]")
        return self.site(name)

    def __len__(self) -> int:
        """Return the number of rows of sites."""
        return len(self.sites)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.sites)

    def __contains__(self, site: object) -> bool:
        return any(row["site"] == site or (row["model"], row["site"]) == site for row in self.sites)

    def __bool__(self) -> bool:
        return True  # also without sites

    def frame(
        self, group: str | None = None, *, nulls: bool = False, long: bool = True
    ) -> DataFrame:
        """Return a pandas table with the index model and site, one row for each measure.

        Its columns are measure, value, low and high (of the 95 % interval).

        Args:
            group: the name of a probe (`words`, `zipf`, `head`, ...; see `probes`), whose table is
                returned, or `differences`.
            nulls: add the rows of the nulls.
            long: False gives one row for each site, with a column for each measure and each end
                of its interval, NAME_low and NAME_high.
        """
        if group == "differences":
            return dataframe([vars(difference) for difference in self.differences])
        if group is not None:
            return self._table(group, nulls=nulls)
        rows = self.sites
        if nulls:
            rows = [Row(null=None) | row for row in self.sites] + self.nulls
        entries = []
        for row in rows:
            if long:
                entries += _long(row, self.measures)
            else:
                entries.append(_wide(row))
        return dataframe(entries).set_index(["model", "site"]) if entries else dataframe([])

    def _table(self, group: str, *, nulls: bool) -> DataFrame:
        """Return the table of a probe, without lists that are not intervals."""
        if group not in self.tables:
            known = ", ".join(self.tables) or "none: scan with measures=..."
            raise KeyError(f"no group {group}; there are {known}")
        entries = []
        for row in self.tables[group]:
            if row.get("null") is None or nulls:
                entries.append(_without_lists(row))
        return dataframe(entries)


def _probe_names(document: dict[str, Any]) -> list[str]:
    """Return the names of the probes that a saved result has tables of."""
    probes = document.get("probes")
    names = []
    for probe in probes if isinstance(probes, list) else []:
        if isinstance(probe, dict) and isinstance(probe.get("name"), str):
            names.append(probe["name"])
    return names


def _without_lists(row: Row) -> dict[str, Any]:
    fields = {}
    for key, value in row.items():
        if not isinstance(value, list) or key.endswith("_interval"):
            fields[key] = value
    return fields


def _ends(row: Row, name: str) -> tuple[float | None, float | None]:
    return row.interval(name) or (None, None)


def _wide(row: Row) -> dict[str, Any]:
    """Return a site's scalar fields, and each interval as two."""
    fields: dict[str, Any] = {}
    for key, value in row.items():
        if key.endswith("_interval"):
            name = key.removesuffix("_interval")
            fields[f"{name}_low"], fields[f"{name}_high"] = _ends(row, name)
        elif not isinstance(value, list):
            fields[key] = value
    return fields


def _long(row: Row, measures: Container[str]) -> list[dict[str, Any]]:
    """Return a row for each measure of a site: its value and interval."""
    leading = {key: row[key] for key in ("model", "site", "null") if key in row}
    entries = []
    for key in row:
        measure = key.removesuffix(WITHOUT_SINKS).removesuffix(WITHOUT_FIRST)
        if f"{key}_interval" in row or measure in measures:
            low, high = _ends(row, key)
            value = row.number(key)
            entries.append(leading | {"measure": key, "value": value, "low": low, "high": high})
    return entries
