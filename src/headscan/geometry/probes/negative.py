"""The probe `negative`: a uniformly negative direction?."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.interval import wilson
from headscan.geometry.negative import NearestPoint, NegativeSearch, cover_log10, nearest_point
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.statistics import Accumulator, SiteBatch

__all__ = ["NegativeProbe"]

SMALLEST = 125  # sampled states that the growth begins with


class NegativeProbe(Probe):
    """The uniformly negative direction."""

    words = ProbeWords(
        name="negative", title="A uniformly negative direction?", group="head",
        sentence="Is there a direction in which every state of the text is negative? Then rare tokens can be pushed "
        "away for ever. A proof for every state of the text, or some of them that prove the contrary.",
        literature="Gao et al. 2019, arXiv:1907.12009, theorem 1; Mangasarian 2002; Cover 1965",
        position="All positions of the text: a direction certified for all is one for any part of them.",
        docs="negative.md", function="headscan.geometry.negative.NegativeSearch", sample=2000, order=15, fields={
            "verdict": Field("verdict", "‘uniformly negative’ (each state was found on one side), ‘none’ (states on at most "
                "d + 1 places have 0 between them), or ‘undecided’ (both sides are given)."),
            "margin": Field("margin",
                "The least cosine of any state to the best direction; above its rounding error (about 1e-12) it proves "
                "the direction.", "min x̂·ĥ", (-1, 1), undefined="no direction was held against every state",
                interval="a certificate about these very states"),
            "distance": Field("distance",
                "Of a convex combination of the directions from 0, rounding included: no direction has a larger margin.",
                "‖Σλĥ‖", (0, 1), interval="a certificate about these very states"),
            "exact": Field("exactly none", "Whether weights are proved to exist that give 0 itself.", interval="a proof"),
            "support": Field("support", "States that hold the combination.", range=(1, None), unit="states",
                interval="a count"),
            "vanished": Field("vanished by", "States read when those kept had no direction any more.", range=(1, None),
                unit="states", undefined="it has not vanished", interval="a count"),
            "chance": Field("chance", "log₁₀ of the chance that as many random directions lie on one side.",
                range=(None, 0), interval="a formula (Cover 1965)"),
            "violated": Field("violated",
                "Share of the sample's second half on the wrong side of the first half's direction: what to expect of "
                "other text.",
                range=(0, 1), undefined="no such direction for the first half"),
            "states": Field("states", "How many states were looked at.", range=(1, None), unit="states",
                interval="a count"),
            "passes": Field("passes", "How often the states were read, the scan's own pass included.", range=(1, None),
                interval="a count"),
        },
    )  # fmt: skip
    passes: ClassVar[int] = 4

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {setup.last: NegativeSearch(setup.lens.width(setup.last))}

    def update(self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch) -> None:
        assert isinstance(accumulator, NegativeSearch)
        accumulator.add(batch.rows.flatten(0, 1))

    def again(self, setup: ProbeSetup, own: Mapping[str, Accumulator]) -> dict[str, Callable[[SiteBatch], None]]:
        wanted: dict[str, Callable[[SiteBatch], None]] = {}
        for site, search in own.items():
            assert isinstance(search, NegativeSearch)
            search.finish()
            if search.wanting:
                wanted[site] = lambda batch, search=search: search.add(batch.rows.flatten(0, 1))  # type: ignore[misc]
        return wanted

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        search = data.own.get(setup.last)
        found = search.found() if isinstance(search, NegativeSearch) else None
        if found is None:
            return []
        sampled = data.sample.get(setup.last)
        x = np.zeros((0, 1)) if sampled is None else sampled.double().numpy()
        return [{"site": setup.last, **_cells(found), **_violated(x), **_growth(x)}]


def _growth(x: npt.NDArray[np.float64]) -> Cells:
    """The widest margin of the first 125, 250, ... sampled states, until there is none."""
    sizes = [SMALLEST * 2**i for i in range(8) if SMALLEST * 2**i < len(x)] + ([len(x)] if len(x) else [])
    margins: list[float] = []
    for size in sizes:
        part = nearest_point(x[:size], tolerance=0.01)
        assert part is not None
        margins.append(part.lowest if part.verdict == "uniformly negative" else 0.0)
        if not margins[-1]:
            break
    return {"growth_states": [float(size) for size in sizes[: len(margins)]], "growth_margin": list(margins)}


def _cells(found: NearestPoint) -> Cells:
    return {
        "verdict": found.verdict, "margin": found.lowest if found.lowest > -1 else None, "distance": found.distance,
        "exact": found.exact if found.verdict == "none" else None, "support": len(found.support),
        "vanished": found.vanished, "chance": cover_log10(found.states, len(found.direction)),
        "states": found.states, "passes": found.passes,
    }  # fmt: skip


def _violated(x: npt.NDArray[np.float64]) -> Cells:
    """Of the second half by the first half's direction."""
    half = nearest_point(x[: len(x) // 2], tolerance=None)
    if half is None or half.verdict != "uniformly negative":
        return {"violated": None}
    wrong = x[len(x) // 2 :] @ half.direction <= 0
    return {"violated": float(wrong.mean()), "violated_interval": wilson(int(wrong.sum()), len(wrong))}
