"""The probe `frequency_directions`: directions that know frequency."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.frequency import direction_correlations
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup, tables

__all__ = ["FrequencyDirectionsProbe"]


class FrequencyDirectionsProbe(Probe):
    """Which singular directions know frequency."""

    words = ProbeWords(
        name="frequency_directions", title="Directions that know frequency", group="zipf",
        sentence="Correlation of the rows' coordinates along each singular direction of the table with the token's "
        "log count; the ten strongest directions.",
        literature="Godey 2024, blog; definitions in the docs", position="Tables and counts know no position.",
        docs="zipf.md", function="headscan.geometry.frequency.direction_correlations", order=11, fields={
            "direction": Field("direction", "By strength.", range=(1, None), interval="a place in an order"),
            "sigma": Field("σ", "Its singular value.", range=(0, None), interval="a property of the weights alone"),
            "share": Field("share", "Of the table's energy.", "σ²/Σσ²", (0, 1),
                interval="a property of the weights alone", percent=True),
            "r": Field("r", "Pearson's correlation with log count over the tokens that occur.", range=(-1, 1)),
            "p": Field("p", "Two-sided, uncorrected.", range=(0, 1), interval="it is a test itself"),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for name, table in tables(setup).items():
            rows += [{"site": name, **row} for row in direction_correlations(table, data.counts, top=10)]
        return rows
