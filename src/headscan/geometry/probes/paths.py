"""The probe `paths`: how a window's states turn from token to token, and how many directions they use."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import math

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.probe import Probe, tally_row
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.statistics import Accumulator, Tally
from headscan.statistics.paths import PathTally

__all__ = ["PathsProbe"]

STILL = "a window of fewer than three tokens, or whose states do not move"


class PathsProbe(Probe):
    """Curvature, straightness and entropy of windows."""

    needs = "vectors"
    words = ProbeWords(
        name="paths", title="Paths", group="words",
        sentence="How do a window's states turn from token to token, and how many directions does one window use?",
        literature="Hosseini and Fedorenko 2023 (arXiv:2311.04930); Skean et al. 2025 (arXiv:2502.02013)",
        position="Position 0 is part of the path.", docs="shapes.md",
        function="headscan.statistics.paths.turns", order=7, fields={
            "curvature": Field("curvature", "Mean angle between a step and the next one; 120° for independent states.",
                "mean arccos(v_k·v_{k+1}/‖v_k‖‖v_{k+1}‖)", (0, 180), unit="degrees", undefined=STILL, plotted=True),
            "curvature_shuffled": Field("its null", "The same with each window's tokens in another order.", range=(0, 180),
                unit="degrees", undefined=STILL, plotted=True),
            "straightness": Field("straightness", "From the first state to the last, over the length of the path.",
                "‖z_T − z_1‖/Σ‖v‖", (0, 1), undefined=STILL, plotted=True),
            "straightness_shuffled": Field("its null", "The same with each window's tokens in another order.", range=(0, 1),
                undefined=STILL),
            "prompt_entropy": Field("prompt entropy",
                "Entropy of the shares of energy of one window's directions (uncentred), over its most, averaged.",
                "−Σp log p/log min(T, d)", (0, 1), undefined="no window", plotted=True),
        },
    )  # fmt: skip

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {site: PathTally(setup.width(site), setup.device) for site in setup.sites}

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for site in data.clouds:
            tally = data.own[site]
            assert isinstance(tally, PathTally)
            rows.append({"site": site, **tally_row(tally, _numbers, self.fields)})
        return rows


def _numbers(tally: Tally) -> dict[str, float | None]:
    def over(above: str, below: str, unit: float = 1.0) -> float | None:
        count = float(tally[below])
        return unit * float(tally[above]) / count if count > 0.5 else None

    return {
        "curvature": over("angles", "turns", 180 / math.pi),
        "curvature_shuffled": over("angles_shuffled", "turns_shuffled", 180 / math.pi),
        "straightness": over("straight", "moving"),
        "straightness_shuffled": over("straight_shuffled", "moving"),
        "prompt_entropy": over("entropy", "tokens"),
    }
