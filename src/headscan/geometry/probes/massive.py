"""The probe `massive`: coordinates a thousand times as large as the others of their vector."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import math
from functools import cache

from scipy.integrate import quad
from scipy.special import erf, ndtri

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.interval import wilson
from headscan.geometry.probe import Probe, tally_row
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.statistics import Accumulator, Tally
from headscan.statistics.lengths import PeakTally

__all__ = ["MassiveProbe", "gaussian_peak"]

NONE = "no vector has a massive coordinate"


@cache
def gaussian_peak(width: int) -> float:
    """The expected largest |coordinate| of a Gaussian vector of `width` dimensions, over the median |coordinate| .6745.

    >>> round(gaussian_peak(1), 3), round(gaussian_peak(1536), 2)
    (1.183, 5.26)
    """
    tail = quad(lambda x: 1 - erf(x / math.sqrt(2)) ** width, 0, 12, limit=200)[0]
    return float(tail / ndtri(0.75))


def _numbers(tally: Tally) -> dict[str, float | None]:
    tokens, massive = float(tally["tokens"]), float(tally["massive"])
    found: dict[str, float | None] = dict.fromkeys(
        ("peak", "massive_share", "absolute_share", "one_coordinate", "unsteadiness")
    )
    if tokens < 0.5:
        return found
    found |= {"peak": float(tally["ratio"]) / tokens, "massive_share": massive / tokens}
    found["absolute_share"] = float(tally["absolute"]) / tokens
    if massive > 0.5:
        place = int(tally["places"].argmax())
        count = float(tally["places"][place])
        mean, square = float(tally["sizes"][place]) / count, float(tally["squares"][place]) / count
        found |= {"one_coordinate": count / massive, "unsteadiness": math.sqrt(max(0.0, square - mean**2)) / mean}
    return found


class MassiveProbe(Probe):
    """Are there coordinates a thousand times as large as the others?"""

    needs = "vectors"
    words = ProbeWords(
        name="massive", title="Massive activations", group="norms",
        sentence="Does one coordinate of a vector dwarf all others, is it always the same, and does it vary? Each vector by "
        "itself; what sinks have of it is in every scan.",
        literature="Sun et al. 2024, arXiv:2402.17762; there also |x| > 100, which depends on the model's scale",
        position="All positions: position 0 is where most of them are.", docs="lengths.md",
        function="headscan.statistics.lengths.PeakTally", order=2, fields={
            "peak": Field("peak", "Largest |coordinate| of a vector over its median one, averaged.",
                "mean max|x|/median|x|", (1, None), undefined="no vector but zeros", plotted=True),
            "peak_null": Field("null: Gaussian", "The same of Gaussian vectors as wide.", "E max|z|/.6745", (1, None),
                interval="the width's alone"),
            "massive_share": Field("massive", "Share of vectors with a coordinate 1,000 times their median one.", range=(0, 1),
                undefined="no vector but zeros", plotted=True),
            "absolute_share": Field("and above 100", "Share of vectors where it is above 100, too: the published rule.",
                range=(0, 1), undefined="no vector but zeros"),
            "coordinate": Field("which", "The coordinate that is massive most often.", range=(0, None), undefined=NONE,
                interval="a number of a coordinate"),
            "one_coordinate": Field("it alone", "In what share of the massive vectors it is that one.", range=(0, 1),
                undefined=NONE),
            "unsteadiness": Field("unsteadiness",
                "Standard deviation of its |values| over their mean: near 0, it is a bias.", "sd|x|/mean|x|", (0, None),
                undefined=NONE),
        },
    )  # fmt: skip

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {site: PeakTally(setup.width(site), setup.device) for site in setup.sites}

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for site in data.clouds:
            tally = data.own[site]
            assert isinstance(tally, PeakTally)
            whole = tally.total()
            places = whole["places"]
            most = int(places.argmax()) if float(places.sum()) > 0 else None
            row: Cells = {"site": site, **tally_row(tally, _numbers, self.fields)}
            for name in ("massive_share", "absolute_share"):
                if row[name] in (0.0, 1.0):  # all windows are alike: how many more could have been otherwise?
                    windows = int(whole["windows"])
                    row[f"{name}_interval"] = wilson(windows if row[name] else 0, windows)
            rows.append(row | {"peak_null": gaussian_peak(tally.width), "coordinate": most})
        return rows
