"""What a flow found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscan.results import Result

__all__ = ["FlowResult"]


@dataclass(frozen=True, repr=False)
class FlowResult(Result):
    """What tokens know of each other, site by site.

    `document` holds `site` (the deepest), `sites`, `tokens`, `parts` (one a model and cut, each with a summary a site),
    `channel` and `protocol`; `arrays` holds `leak`, `recoverable` and `margin` [sites, T, T] of the first part and
    `leak/K`, ... of part K, with entry (s, i, j) about input token i in output j.
    """

    kind = "flow"

    @property
    def parts(self) -> list[dict[str, Any]]:
        """One entry a model and cut."""
        return self.document["parts"]

    def frame(self):
        """A pandas table: one row a part and site."""
        import pandas as pd

        return pd.DataFrame(
            [{"model": part["model"], "cut": part["cut"], **entry} for part in self.parts for entry in part["sites"]]
        )
