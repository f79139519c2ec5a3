"""What a scan found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscan.results import Result

__all__ = ["ScanResult"]


@dataclass(frozen=True, repr=False)
class ScanResult(Result):
    """The shape of one or more models' representations on one text.

    `document` holds `protocol`, `models`, `sites`, `nulls`, `measures`, `findings` and `pictures`; `arrays` holds the
    coordinates of the sampled tokens on each site's top three directions, `picture/MODEL/SITE` [k, 3].
    """

    kind = "scan"

    @property
    def sites(self) -> list[dict[str, Any]]:
        """One entry a model and site, in the order of depth."""
        return self.document["sites"]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What the numbers say in words."""
        return self.document["findings"]

    def site(self, name: str, model: str | None = None) -> dict[str, Any]:
        """The entry of one site (of the first model that has it, unless `model` says otherwise)."""
        for entry in self.sites:
            if entry["site"] == name and model in (None, entry["model"]):
                return entry
        raise KeyError(f"no site {name}; there are {', '.join(entry['site'] for entry in self.sites)}")

    def frame(self, group: str | None = None, *, nulls: bool = False):
        """A pandas table: one row a site, all scalar fields; with `nulls`, those of the null clouds below.

        `group` names a probe (`words`, `zipf`, `head`, ...; see `document["probes"]`): then the rows of its table.
        """
        import pandas as pd

        if group is not None:
            known = [probe["name"] for probe in self.document.get("probes", [])]
            if group not in known:
                raise KeyError(f"no group {group}; there are {', '.join(known) or 'none: scan with measures=...'}")
            rows = [row for row in self.document[group] if nulls or row.get("null") is None]
        else:
            entries = [{"null": None, **entry} for entry in self.sites] if nulls else self.sites
            rows = entries + (self.document["nulls"] if nulls else [])
        kept = [
            {key: value for key, value in row.items() if not isinstance(value, list) or key.endswith("_interval")}
            for row in rows
        ]
        return pd.DataFrame(kept)
