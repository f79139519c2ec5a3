"""The comparison of headless and vanilla as a result: runs, summary, page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscan.errors import BadInput
from headscan.results import Result
from headscan.training.experiment import summary

__all__ = ["TwinsResult"]


@dataclass(frozen=True, repr=False)
class TwinsResult(Result):
    """Runs of several arms and seeds, each a list of points (`headscan.training.experiment.run_arm`), and their summary.

    `document`: protocol, runs [{"arm", "seed", "points"}], summary [{"arm", "at", "nats", "last_block", "final_norm"}],
    each a mean over seeds with its 95 % interval.
    """

    kind = "twins"

    @classmethod
    def of(cls, runs: list[dict[str, Any]], protocol: dict[str, Any]) -> TwinsResult:
        """From runs, and a protocol that names at least text, steps, batch, context and vocabulary."""
        if not runs or not all(run["points"] for run in runs):
            raise BadInput("There are no runs to compare.")
        sites = [entry["site"] for entry in runs[0]["points"][-1]["sites"]]
        last = [site for site in sites if site.startswith("block.")][-1]
        rows = []
        for arm in dict.fromkeys(run["arm"] for run in runs):
            own = [run["points"] for run in runs if run["arm"] == arm]
            equal = [next(p for p in points if p["step"] == protocol["steps"]) for points in own]
            for label, points in (("equal tokens", equal), ("equal time", [points[-1] for points in own])):
                rows.append(
                    {
                        "arm": arm,
                        "at": label,
                        "nats": summary(p["nats"].get("bias", p["nats"].get("head")) for p in points),
                        "last_block": summary(_cosine(p, last) for p in points),
                        "final_norm": summary(_cosine(p, "final_norm") for p in points),
                    }
                )
        return cls({"protocol": protocol, "runs": runs, "last_block": last, "summary": rows})

    def frame(self):
        """A pandas table, one row an arm and a way of comparing."""
        import pandas as pd

        keys = ("nats", "last_block", "final_norm")
        return pd.DataFrame(
            [{"arm": r["arm"], "at": r["at"]} | {k: r[k]["mean"] for k in keys} for r in self.document["summary"]]
        )


def _cosine(point: dict[str, Any], site: str) -> float:
    return next(entry["average_cosine"] for entry in point["sites"] if entry["site"] == site)
