"""The probe `positions`: how long vectors are at the first positions of a window, beside the others."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import math

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.probe import Probe, tally_row
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.statistics import Accumulator, Tally
from headscan.statistics.lengths import PositionTally

__all__ = ["PositionsProbe", "length_ratios"]

NAMES = ("position_0", "position_1", "early", "late")
ABSENT = "windows have no such position, or no other, or all vectors are zero"


def length_ratios(tally: Tally) -> dict[str, float | None]:
    """Of each of the four places its mean length over that of all other positions, from a `PositionTally`'s sums; and how far
    from 1 the ratio at one position lies in 95 % of shuffles.

    A shuffle of each window's own lengths leaves the mean at one position unbiased, with variance s²(1 − 1/T) a window: the
    ratio's is that times (T/(T − 1))²/W over the squared mean of all, to first order. Cost O(1).
    """
    tokens, windows, whole = (float(tally[name]) for name in ("tokens", "windows", "norm"))
    found: dict[str, float | None] = dict.fromkeys((*NAMES, "shuffled"))
    if not tokens or not whole > 0:
        return found
    for name, total, count in zip(NAMES, tally["norms"].tolist(), tally["counts"].tolist(), strict=True):
        others = whole - total
        if 0 < count < tokens and others > 0:
            found[name] = (total / count) / (others / (tokens - count))
    length = tokens / windows
    if length > 1:
        variance = float(tally["spread"]) / windows * (1 - 1 / length) / windows
        found["shuffled"] = 1.96 * math.sqrt(variance) * length / (length - 1) / (whole / tokens)
    return found


class PositionsProbe(Probe):
    """Are the first vectors of a window longer than the others?"""

    needs = "vectors"
    words = ProbeWords(
        name="positions", title="Length by position", group="norms",
        sentence="Are vectors longer at the first positions of a window? Their mean length there, over that of all others.",
        literature="Xiao et al. 2024, arXiv:2309.17453; Sun et al. 2024, arXiv:2402.17762",
        position="Position 0 is what it asks about.", docs="lengths.md",
        function="headscan.geometry.probes.positions.length_ratios", order=1, fields={
            "position_0": Field("position 0", "Mean length at position 0 over that of all other positions.",
                "mean‖x₀‖/mean‖x_t‖, t ≠ 0", (0, None), undefined=ABSENT, plotted=True),
            "position_1": Field("position 1", "The same of position 1.", range=(0, None), undefined=ABSENT, plotted=True),
            "early": Field("positions 2-15", "The same of positions 2 to 15.", range=(0, None), undefined=ABSENT, plotted=True),
            "late": Field("from 16 on", "The same of positions from 16 on.", range=(0, None), undefined=ABSENT),
            "shuffled": Field("null: shuffled",
                "How far from 1 the ratio at one position is in 95 % of shuffles of each window's lengths.",
                "1.96·sd", (0, None), undefined="windows of one token", interval="a quantile of a null"),
        },
    )  # fmt: skip

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {site: PositionTally(setup.width(site), setup.device) for site in setup.sites}

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for site in data.clouds:
            tally = data.own[site]
            assert isinstance(tally, PositionTally)
            row = tally_row(tally, length_ratios, self.fields)
            row.pop("shuffled_interval")
            rows.append({"site": site, **row})
        return rows
