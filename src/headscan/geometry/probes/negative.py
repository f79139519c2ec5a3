"""The probe `negative`: a uniformly negative direction?."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.negative import nearest_point
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup

__all__ = ["NegativeProbe"]


class NegativeProbe(Probe):
    """The uniformly negative direction."""

    words = ProbeWords(
        name="negative", title="A uniformly negative direction?", group="head",
        sentence="Is there a direction in which every sampled state is negative? Then rare tokens can be pushed "
        "away for ever. With a certificate either way.",
        literature="Gao et al. 2019, arXiv:1907.12009, theorem 1; Wolfe 1976",
        position="All sampled positions: a direction certified for all is one for any part of them.",
        docs="negative.md", function="headscan.geometry.negative.nearest_point", sample=2000, order=15, fields={
            "verdict": Field("verdict", "‘uniformly negative’ (proved), ‘none’ (0 is in the hull), or ‘open’."),
            "margin": Field("margin",
                "The least cosine of any state to the best direction; above 0 it proves the direction.", "min x̂·ĥ",
                (-1, 1), interval="a certificate about these very states; violated says how it carries over"),
            "distance": Field("distance",
                "From the origin to the hull of the directions: at least the margin, equal at the optimum.", "‖x‖",
                (0, 1), interval="a certificate about these very states"),
            "gap": Field("duality gap", "‖x‖² − min x·ĥ: how far from optimal.", range=(0, None),
                interval="the certificate's own error"),
            "support": Field("support", "States that hold the nearest point.", range=(1, None), unit="states",
                interval="a count"),
            "violated": Field("violated",
                "Share of all *other* sampled states on the wrong side: of the sample's second half, by the first "
                "half's direction.",
                range=(0, 1), undefined="no such direction for the first half"),
            "states": Field("states", "Sampled states.", range=(1, None), unit="states", interval="a count"),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        states = data.sample.get(setup.last)
        if states is None or not len(states):
            return []
        x = states.double().numpy()
        found, half = nearest_point(x), nearest_point(x[: len(x) // 2])
        assert found is not None
        row: Cells = {"verdict": found.verdict, "margin": found.lowest, "distance": found.distance, "gap": found.gap}
        row |= {"support": len(found.support), "violated": None, "states": len(x)}
        if half is not None and half.verdict == "uniformly negative":
            wrong = x[len(x) // 2 :] @ half.point <= 0
            row |= {"violated": float(wrong.mean()), "violated_interval": wilson(int(wrong.sum()), len(wrong))}
        return [{"site": setup.last, **row}]


def wilson(hits: int, n: int) -> list[float]:
    """The 95 % score interval of a share (Wilson 1927); it is never empty, even where there are no hits.

    >>> [round(end, 4) for end in wilson(0, 1000)]
    [0.0, 0.0038]
    """
    z, p = 1.96, hits / n
    centre, reach = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    return [max(0.0, (centre - reach) / (1 + z * z / n)), min(1.0, (centre + reach) / (1 + z * z / n))]
