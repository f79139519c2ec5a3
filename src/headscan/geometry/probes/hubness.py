"""The probe `hubness`: hubs among the nearest neighbours."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.hubs import NEIGHBOURS, hubness
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.geometry.sampled import sampled_rows

__all__ = ["HubnessProbe"]

POINTS = 1000


class HubnessProbe(Probe):
    """Are some vectors near to everything?"""

    needs = "vectors"
    words = ProbeWords(
        name="hubness", title="Hubness", group="alignment",
        sentence=f"Are some vectors among the {NEIGHBOURS} nearest neighbours of very many others, and others of none? On "
        f"at most {POINTS} sampled directions; beside it Gaussian ones, as many and as wide.",
        literature="Radovanović et al. 2010; Feldbauer and Flexer 2019",
        position="Position 0 is among the sampled.", docs="shapes.md", function="headscan.geometry.hubs.hubness", sample=2000,
        order=6, fields={
            "hub_skewness": Field("hub skewness", "Skewness of how often a point is a neighbour; 1/√k by chance.",
                "E(N − k)³/sd³", undefined="no more than eleven sampled vectors", plotted=True),
            "robin_hood": Field("Robin Hood", "Share of neighbourships that had to move for all points to have as many.",
                "Σ|N − k|/2nk", (0, 1), undefined="no more than eleven sampled vectors", plotted=True),
            "antihubs": Field("nobody's neighbour", "Share of points in no list of neighbours.", "P(N = 0)", (0, 1),
                undefined="no more than eleven sampled vectors", plotted=True),
            "largest_hub": Field("largest hub", "How often the most frequent neighbour is one, over k.", "max N/k", (0, None),
                undefined="no more than eleven sampled vectors"),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        return sampled_rows(data, self.fields, hubness, POINTS)
