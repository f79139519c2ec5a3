"""What a flow found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscan.errors import BadInput
from headscan.results import Result

__all__ = ["FlowResult"]

CHANNEL = ("distances", "noise", "quantised", "shannon", "widths", "thresholds")


@dataclass(frozen=True, repr=False)
class FlowResult(Result):
    """What tokens know of each other, site by site.

    `document` holds `site` (the deepest), `sites`, `tokens`, `parts` (one a model and cut, each with a summary a site and a
    `channel` where it was asked for) and `protocol`; `arrays` holds `leak`, `recoverable` and `margin` [sites, T, T] of
    the first part and `leak/K`, ... of part K, with entry (s, i, j) about input token i in output j.
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

    def channel_frame(self, what: str = "noise"):
        """A pandas table of the channel, one row a part and measurement.

        Args:
            what: "distances", "noise", "quantised", "shannon", "widths" or "thresholds".

        Raises:
            BadInput: another name, or the channel was not measured.
        """
        import pandas as pd

        if what not in CHANNEL:
            raise BadInput(f"The channel has no '{what}'; there are: {', '.join(CHANNEL)}.")
        found = [
            {"model": part["model"], "cut": part["cut"], **{k: v for k, v in row.items() if k != "tried"}}
            for part in self.parts
            if part["channel"]
            for row in ([part["channel"][what]] if what == "distances" else part["channel"][what])
        ]
        if not found:
            raise BadInput("The channel was not measured: ask for it with channel=True (--channel).")
        return pd.DataFrame(found)
