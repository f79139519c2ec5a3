"""Probes that run the model again: each head's drift, and an untrained block on biased noise."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.errors import BadInput
from headscan.geometry.attention import attention_drift, biased_input
from headscan.geometry.probe import Cost, Probe, ProbeData, ProbeSetup, Row

__all__ = ["AttentionProbe", "BiasedInputProbe"]

TOKENS = 4096


class AttentionProbe(Probe):
    """Mean queries and keys."""

    name = "attention"

    def reason(self, setup: ProbeSetup) -> str | None:
        parts = (site.rsplit(".", 1)[-1] for site in setup.lens.sites)
        return None if "attention" in parts else "it has no attention"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        ids = data.windows[: max(1, TOKENS // setup.context)].to(setup.lens.device)
        try:
            return list(
                attention_drift(setup.lens, ids.tensor_split(max(min(8, len(ids)), len(ids) * setup.context // 2048)))
            )
        except BadInput as error:
            return [{"site": "attention", "notes": [str(error)]} | dict.fromkeys(self.fields)]


class BiasedInputProbe(Probe):
    """Does the block itself make a cone?"""

    name = "biased_input"

    def cost(self, setup: ProbeSetup) -> Cost:
        parameters = sum(p.numel() for p in setup.lens.model.parameters())
        # Fresh weights are drawn at some 20 million a second; the twin stands beside the model for the while.
        return Cost(parameters * 1500.0, 4.0 * parameters)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        return [{"site": f"b = {row['bias']:g}"} | row for row in biased_input(setup.lens, seed=setup.seed)]
