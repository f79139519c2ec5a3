"""The probe `axis`: the cone's axis."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.axis import axis_course
from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.probe import Probe, suffixed
from headscan.geometry.probe_setup import ProbeData, ProbeSetup

__all__ = ["AxisProbe"]


class AxisProbe(Probe):
    """Does the cone keep its axis from layer to layer?"""

    needs = "vectors"
    words = ProbeWords(
        name="axis", title="The cone's axis", group="cones",
        sentence="Does the cone keep its place from layer to layer? Cosines between the axes Σû/‖Σû‖ of the sites.",
        literature="mean direction (Mardia and Jupp 2000)",
        position="Every number also without position 0 of each window.", docs="cones.md",
        function="headscan.geometry.axis.axis_cosine", order=1, fields={
            "to_previous": Field("to the site before", "Cosine to the axis one site before.", "a_l · a_{l−1}",
                (-1, 1), undefined="another width, or directions that cancel out", first=True, plotted=True),
            "to_first": Field("to the first site", "Cosine to the axis of the first site.", "a_l · a_0", (-1, 1),
                undefined="another width, or directions that cancel out", first=True, plotted=True),
            "to_last": Field("to the last site", "Cosine to the axis of the last site.", "a_l · a_L", (-1, 1),
                undefined="another width, or directions that cancel out", first=True),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        sites = [data.statistics[site] for site in data.clouds]
        both = zip(data.clouds, axis_course(sites), axis_course(sites, rest=True), strict=True)
        return [{"site": site, **row} | suffixed(rest) for site, row, rest in both]
