"""The probe `persistence`: at which scales do the points become one piece (H0)?"""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.neighbours import distinct_rows
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.geometry.sampled import sampled_rows

__all__ = ["PersistenceProbe", "deaths", "persistence"]

POINTS = 500


def deaths(rows: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """At which distances components of the points [n, d] merge: the edges of their minimum spanning tree, ascending [m − 1],
    where m points are distinct. They are the bars of H0 in the Vietoris-Rips filtration. Cost O(n²d).

    >>> deaths([[0.0], [1.0], [5.0]]).tolist()
    [1.0, 4.0]
    """
    points = distinct_rows(rows)
    if len(points) < 2:
        return np.zeros(0)
    found: npt.NDArray[np.float64] = np.sort(minimum_spanning_tree(squareform(pdist(points))).data)
    return found


def persistence(rows: npt.ArrayLike) -> Cells:
    """The bars' mean length over the mean distance of two points, their entropy over the largest possible, and the longest bar
    over the mean one; None where fewer than three points are distinct.

    >>> round(persistence([[0.0], [1.0], [2.0], [3.0]])["persistence_entropy"], 12)
    1.0
    """
    bars = deaths(rows)
    names = ("mean_bar", "persistence_entropy", "longest_bar")
    if len(bars) < 2:
        return dict.fromkeys(names)
    shares = bars / bars.sum()
    entropy = min(1.0, -float((shares * np.log(shares)).sum()) / float(np.log(len(bars))))
    spread = float(pdist(distinct_rows(rows)).mean())
    return dict(zip(names, (float(bars.mean()) / spread, entropy, float(bars[-1] / bars.mean())), strict=True))


class PersistenceProbe(Probe):
    """In how many pieces do the points lie?"""

    needs = "vectors"
    words = ProbeWords(
        name="persistence", title="Persistence", group="alignment",
        sentence=f"In how many pieces do the points lie, and at which distances do they become one? The bars of H0 of "
        f"{POINTS} sampled vectors; beside them Gaussian ones, as many and as wide.",
        literature="Edelsbrunner et al. 2002; H0 is the minimum spanning tree",
        position="Position 0 is among the sampled.", docs="shapes.md", sample=2000, order=7,
        function="headscan.geometry.probes.persistence.persistence", fields={
            "mean_bar": Field("mean bar", "Mean distance at which a piece joins another, over that of two points.",
                "mean MST edge/mean distance", (0, None), undefined="fewer than three distinct vectors", plotted=True),
            "persistence_entropy": Field("persistence entropy", "1 where all join at one distance, less with clusters.",
                "−Σp log p/log m", (0, 1), undefined="fewer than three distinct vectors", plotted=True),
            "longest_bar": Field("longest bar", "The last gap to close, over the mean one: large where clusters stand apart.",
                range=(1, None), undefined="fewer than three distinct vectors", plotted=True),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        return sampled_rows(data, self.fields, persistence, POINTS)
