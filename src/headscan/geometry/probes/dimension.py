"""The probe `dimension`: intrinsic dimension."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from headscan.geometry.dimension import intrinsic_dimension
from headscan.geometry.explained import Cells, Field, ProbeWords, number
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup

__all__ = ["DimensionProbe"]


class DimensionProbe(Probe):
    """On how many dimensions do the points lie, locally?"""

    needs = "vectors"
    words = ProbeWords(
        name="dimension", title="Intrinsic dimension", group="spectra",
        sentence="On how many dimensions do the sampled points lie locally? Biased low: read beside the Gaussian "
        "rows, which have the same number of points.",
        literature="Facco 2017, Levina and Bickel 2004, Denti 2022",
        position="Every number also without the sampled vectors at position 0: they are then neither data nor "
        "neighbours.",
        docs="dimension.md", function="headscan.geometry.dimension.intrinsic_dimension", sample=2000, order=4,
        fields={
            "twonn": Field("TwoNN", "From the ratio of the distances to the two nearest neighbours.",
                "−log(1 − F(μ)) = d log μ", (0, None), unit="dimensions",
                undefined="fewer than ten distinct sampled points, or their distances leave nothing to compare",
                first=True, plotted=True),
            "mle_dimension": Field("MLE", "Maximum likelihood over 20 neighbours.", "[mean log(T_k/T_j)]⁻¹",
                (0, None), unit="dimensions",
                undefined="fewer than ten distinct sampled points, or their distances leave nothing to compare",
                first=True, plotted=True),
            "gride": Field("Gride", "From the ratio of the distances to neighbours 16 and 8: a coarser scale.",
                "max likelihood of μ = r₁₆/r₈", (0, None), unit="dimensions",
                undefined="fewer than ten distinct sampled points, or their distances leave nothing to compare",
                first=True, plotted=True),
            "distinct_points": Field("distinct points",
                "Sampled points with repeats left out (a token's embedding is one point).", range=(0, None),
                unit="points", interval="a count", first=True),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for site in data.clouds:
            states = data.sample.get(site)
            found = {} if states is None else intrinsic_dimension(
                states.numpy(), blocks=data.blocks, first=data.first
            )  # fmt: skip
            rows.append({"site": site, **dict.fromkeys(self.fields)} | found)
        widths = zip(rows, (cloud.width for cloud in data.clouds.values()), strict=True)
        sizes = {(int(number(row["distinct_points"]) or 0), width) for row, width in widths}
        for count, width in sorted(size for size in sizes if size[0])[-1:]:
            rows.append({"site": f"{count} x {width}", "null": "gaussian"} | _gaussian(count, width))
        return rows


@cache
def _gaussian(count: int, width: int) -> dict[str, Any]:
    rows = np.random.default_rng([count, width]).standard_normal((count, width))
    return intrinsic_dimension(rows)
