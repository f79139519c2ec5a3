"""The probe `sink_rate`: how many heads leave their weight on one position."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import numpy as np

from headscan.geometry.attention import watched
from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.interval import with_intervals
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.run import BadInput
from headscan.statistics import Tally

__all__ = ["LENGTH", "THRESHOLD", "SinkRateProbe", "sink_numbers"]

LENGTH, THRESHOLD = 64, 0.3
"""Tokens of a window, and the average weight above which a position is a head's sink: what the paper fixes, for the rate
depends on both."""
TOKENS = 4096


def sink_numbers(tally: Tally) -> Cells:
    """Of one layer, from `watch_heads`: `sink_rate`, the share of heads whose α₀ is above .3; `sink_weight`, the mean of
    α₀ over heads; `elsewhere`, the share of heads with an α_k above .3 at another position of the first half.

    α_k is the mean weight that position k gets from those that see it. (Late positions, seen by few, are left out.)
    """
    received = (tally["received"] / tally["seen"].clamp(min=1)).cpu().numpy()
    first, others = received[:, 0], received[:, 1 : max(2, received.shape[1] // 2)]
    return {
        "sink_rate": float((first > THRESHOLD).mean()),
        "sink_weight": float(first.mean()),
        "elsewhere": float((others > THRESHOLD).any(1).mean()) if others.size else None,
    }


def even_weight(length: int, causal: bool) -> float:
    """α₀ of attention that is even over what it sees: (1 + ½ + … + 1/T)/T, or 1/T where all see all.

    >>> round(even_weight(64, True), 3)
    0.074
    """
    return float((1 / np.arange(1, length + 1)).sum() / length) if causal else 1 / length


class SinkRateProbe(Probe):
    """How many heads leave their weight on one position?"""

    words = ProbeWords(
        name="sink_rate", title="Attention sinks", group="attention",
        sentence=f"How many heads leave more than {THRESHOLD} of their weight, on average, on position 0? Windows are cut to "
        f"{LENGTH} tokens, as the rate depends on their length; the first {TOKENS} tokens.",
        literature="Gu et al. 2024, arXiv:2410.10781", position="Position 0 is what it asks about.", docs="attention.md",
        function="headscan.geometry.probes.sink_rate.sink_numbers", order=5, fields={
            "sink_rate": Field("sink rate", "Share of heads whose mean weight on position 0 is above .3.",
                "mean 1[α₀ > .3], α_k = mean_{i ≥ k} A_ik", (0, 1), plotted=True),
            "sink_weight": Field("weight on position 0", "Mean of α₀ over heads; its own query counts.", "mean α₀", (0, 1),
                plotted=True),
            "even": Field("null: even attention", "α₀ of attention that is even over what it sees.", "(1 + … + 1/T)/T", (0, 1),
                interval="the length's alone"),
            "elsewhere": Field("another position", "Share of heads with a sink at another position of the first half.",
                range=(0, 1), undefined="windows of fewer than two tokens"),
            "length": Field("length", "Tokens of a window here.", range=(1, None), unit="tokens", interval="given"),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        parts = (site.rsplit(".", 1)[-1] for site in setup.lens.sites)
        return None if "attention" in parts else "it has no attention"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        ids = data.windows[: max(1, TOKENS // setup.context), :LENGTH].to(setup.lens.device)
        length, lens = ids.shape[1], setup.lens
        parts_wanted = max(min(8, len(ids)), len(ids) * length // 2048)
        try:
            whole, parts = watched(lens, ids.tensor_split(parts_wanted))
        except BadInput as error:
            return [{"site": "attention", "notes": [str(error)], **dict.fromkeys(self.fields)}]
        even = even_weight(length, lens.traits.causal)
        rows: list[Cells] = []
        for layer, tally in sorted(whole.items()):
            row = sink_numbers(tally)
            others = [sink_numbers(tally.without(part[layer])) for part in parts] if len(parts) > 2 else []
            sizes = [float(part[layer]["positions"][0]) for part in parts]
            found = row | with_intervals(row, others, sizes, dict.fromkeys(row, (0.0, 1.0)))
            rows.append({"site": f"block.{layer}.attention", **found, "even": even, "length": length})
        return rows
