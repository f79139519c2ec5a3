"""The probe `rogue`: rogue dimensions."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import numpy as np

from headscan.geometry.explained import WITHOUT, Cells, Field, ProbeWords
from headscan.geometry.probe import Probe, tally_row
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.geometry.rogue import agreements, rogue, rogue_dimensions
from headscan.statistics import DirectionTally
from headscan.statistics.accumulator import Accumulator

__all__ = ["RogueProbe"]


class RogueProbe(Probe):
    """A few coordinates that decide every similarity."""

    needs = "vectors"
    words = ProbeWords(
        name="rogue", title="Rogue dimensions", group="cones",
        sentence="Do a few coordinates decide how similar two tokens look? What the largest 1, 3, 5 of them add to "
        "the average cosine.",
        literature="Timkey and van Schijndel 2021, arXiv:2109.04404",
        position="Every number also without position 0 of each window; the dimensions that are left out are the "
        "same.",
        docs="rogue.md", function="headscan.geometry.rogue.rogue", sample=2000, order=2, fields={
            "rogue_share_1": Field("share of top 1",
                "Share of the average cosine that its 1 largest dimension contribute.",
                "Σ_top CC_d / Σ CC_d,  CC_d = ((Σû_d)² − Σû_d²)/(n(n − 1))", (0, None),
                undefined="the average cosine is not above 0.001", first=True, plotted=True),
            "rogue_share_3": Field("share of top 3",
                "Share of the average cosine that its 3 largest dimensions contribute.",
                "Σ_top CC_d / Σ CC_d,  CC_d = ((Σû_d)² − Σû_d²)/(n(n − 1))", (0, None),
                undefined="the average cosine is not above 0.001", first=True, plotted=True),
            "rogue_share_5": Field("share of top 5",
                "Share of the average cosine that its 5 largest dimensions contribute.",
                "Σ_top CC_d / Σ CC_d,  CC_d = ((Σû_d)² − Σû_d²)/(n(n − 1))", (0, None),
                undefined="the average cosine is not above 0.001", first=True),
            "rogue_half": Field("dimensions for half", "How many dimensions make half of the average cosine.",
                range=(1, None), unit="dimensions", undefined="the average cosine is not above 0.001", first=True),
            "agreement_1": Field("agreement without 1",
                "r² of all pairs' cosines with and without the largest dimension, on the sample.", "r²", (0, 1),
                undefined="fewer than three sampled vectors", first=True),
            "agreement_3": Field("agreement without 3", "The same without the three largest.", "r²", (0, 1),
                undefined="fewer than three sampled vectors", first=True, plotted=True),
            "agreement_5": Field("agreement without 5", "The same without the five largest.", "r²", (0, 1),
                undefined="fewer than three sampled vectors", first=True),
        },
    )  # fmt: skip

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {site: DirectionTally(setup.width(site), setup.device) for site in setup.sites}

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows = []
        for site in data.clouds:  # in the order of depth; accumulators that were stored come back in another
            tally = data.own[site]
            assert isinstance(tally, DirectionTally)
            row: Cells = {"site": site, **tally_row(tally, rogue, self.fields)}
            top = rogue_dimensions(tally.total())
            states = data.sample.get(site)
            dims = {k: np.array([one.dimension for one in top[:k]], dtype=int) for k in (1, 3, 5)}
            enough = {k: d for k, d in dims.items() if states is not None and len(d) == k < states.shape[1]}
            row |= {f"agreement_{k}{suffix}": None for k in dims for suffix in ("", WITHOUT)}
            if states is not None:
                place = data.blocks[:1000], data.first[:1000]
                row |= agreements(states[:1000].numpy(), enough, *place)
            rows.append(row | {"dimensions": [one.dimension for one in top]})
        return rows
