"""What a scan found."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

from headscan.measures.measure import Group, MeasureWords, ProbeWords
from headscan.run.result import Arrays, DataFrame, Result, dataframe
from headscan.run.rows import Row, plain
from headscan.scanner.differences import Difference


@dataclass(frozen=True)
class Picture:
    """The sampled tokens of one model: each with what stands around it, its count in the text, id
    and position.
    """

    tokens: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    frequency: list[int] = field(default_factory=list)
    id: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ProbeRecord(ProbeWords):
    """A probe's words, how long its rows took (beside the pass), and why a model has none."""

    seconds: float | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, repr=False)
class ScanResult(Result):
    """The shape of one or more models' representations on one text.

    A site's row has every measure as NAME, NAME_interval (95 %), both as NAME_without_sinks and
    NAME_without_first, `singular_values`, what sinks and outlying coordinates are (see
    `headscan.measures.outliers`), and `notes` that say why a value is not there. `arrays` holds the
    pictures' coordinates on each site's top three directions (those of the tokens that are no
    sinks), `picture/MODEL/SITE` [k, 3], the shares of energy there, `picture_share/MODEL/SITE` [3],
    and which of the sampled are sinks, `picture_sink/MODEL/SITE` [k]; and the neighbours of each in
    all dimensions, `picture_near/MODEL/SITE` [k, 10] with their cosines,
    `picture_near_cosine/MODEL/SITE` (`headscan.scanner.picture.nearest`).
    """

    kind: ClassVar[str] = "scan"
    sites: list[Row]  # in the order of depth
    # the same of the nulls, with `null` = "random-init" or "gaussian"
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
        probes = document.get("probes")
        named = [
            probe.get("name")
            for probe in (probes if isinstance(probes, list) else [])
            if isinstance(probe, dict)
        ]
        names = [name for name in named if isinstance(name, str)]
        own = {name: value for name, value in document.items() if name not in names}
        return super().of_document(
            own | {"tables": {name: document.get(name, []) for name in names}}, arrays
        )

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        made = super().json_schema()
        return made | {
            "additionalProperties": made["properties"].pop("tables")["additionalProperties"]
        }

    def site(self, name: str, model: str | None = None) -> Row:
        """The row of one site (of the first model that has it, unless `model` says otherwise)."""
        for row in self.sites:
            if row["site"] == name and model in (None, row["model"]):
                return row
        raise KeyError(
            f"no site {name}; there are {', '.join(row.text('site') for row in self.sites)}"
        )

    def __getitem__(self, name: str | tuple[str, str]) -> Row:
        """The row of a site, `result["block.0"]`; of several models that have it one is named,
        `result["gpt2", "block.0"]`.
        """
        model, site = name if isinstance(name, tuple) else (None, name)
        having = [row["model"] for row in self.sites if row["site"] == site]
        if model is None and len(having) > 1:
            raise KeyError(
                f"{', '.join(map(str, having))} have {site}: write result[MODEL, {site!r}]"
            )
        return self.site(site, model)

    def __len__(self) -> int:
        """How many rows of sites there are."""
        return len(self.sites)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.sites)

    def __contains__(self, site: object) -> bool:
        return any(row["site"] == site or (row["model"], row["site"]) == site for row in self.sites)

    def __bool__(self) -> bool:
        return True  # of no sites, too: it is a result

    def frame(
        self, group: str | None = None, *, nulls: bool = False, long: bool = False
    ) -> DataFrame:
        """A pandas table with the index model and site: one row a site, all scalar fields,
        intervals as NAME_low and NAME_high; with `nulls`, those of the null clouds below. With
        `long`, a row a site and measure: measure, value, low, high.

        `group` names a probe (`words`, `zipf`, `head`, ...; see `probes`): then the rows of its
        table; or `differences`.
        """
        if group == "differences":
            return dataframe([vars(one) for one in self.differences])
        if group is not None:
            if group not in self.tables:
                known = ", ".join(self.tables) or "none: scan with measures=..."
                raise KeyError(f"no group {group}; there are {known}")
            rows = [row for row in self.tables[group] if nulls or row.get("null") is None]
            return dataframe(
                [
                    {
                        key: value
                        for key, value in row.items()
                        if not isinstance(value, list) or key.endswith("_interval")
                    }
                    for row in rows
                ]
            )
        rows = [Row(null=None) | row for row in self.sites] + self.nulls if nulls else self.sites
        every = [entry for row in rows for entry in (_long(row) if long else [_tidy(row)])]
        return dataframe(every).set_index(["model", "site"]) if every else dataframe([])


def _ends(row: Row, name: str) -> tuple[float | None, float | None]:
    return row.interval(name) or (None, None)


def _tidy(row: Row) -> dict[str, Any]:
    """A site's scalar fields, each interval as two."""
    tidy: dict[str, Any] = {}
    for key, value in row.items():
        if key.endswith("_interval"):
            name = key.removesuffix("_interval")
            tidy[f"{name}_low"], tidy[f"{name}_high"] = _ends(row, name)
        elif not isinstance(value, list):
            tidy[key] = value
    return tidy


def _long(row: Row) -> list[dict[str, Any]]:
    """A row a measure of a site: its value and interval."""
    own = {key: row[key] for key in ("model", "site", "null") if key in row}
    names = [key.removesuffix("_interval") for key in row if key.endswith("_interval")]
    return [
        own
        | dict(
            zip(
                ("measure", "value", "low", "high"),
                (name, row.number(name), *_ends(row, name)),
                strict=True,
            )
        )
        for name in names
    ]
