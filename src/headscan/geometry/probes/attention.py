"""Probes that run the model again: each head's drift, and an untrained block on biased noise."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.errors import BadInput
from headscan.geometry.attention import attention_drift, biased_input
from headscan.geometry.probe import Cost, Finished, Probe, Row, Setting

__all__ = ["Attention", "BiasedInput"]

TOKENS = 4096


class Attention(Probe):
    """Mean queries and keys."""

    name = "attention"

    def reason(self, setting: Setting) -> str | None:
        parts = (site.rsplit(".", 1)[-1] for site in setting.lens.sites)
        return None if "attention" in parts else "it has no attention"

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        ids = finished.windows[: max(1, TOKENS // setting.context)].to(setting.lens.device)
        try:
            return list(
                attention_drift(
                    setting.lens, ids.tensor_split(max(min(8, len(ids)), len(ids) * setting.context // 2048))
                )
            )
        except BadInput as error:
            return [{"site": "attention", "notes": [str(error)]} | dict.fromkeys(self.fields)]


class BiasedInput(Probe):
    """Does the block itself make a cone?"""

    name = "biased_input"

    def cost(self, setting: Setting) -> Cost:
        parameters = sum(p.numel() for p in setting.lens.model.parameters())
        # Fresh weights are drawn at some 20 million a second; the twin stands beside the model for the while.
        return Cost(parameters * 1500.0, 4.0 * parameters)

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        return [{"site": f"b = {row['bias']:g}"} | row for row in biased_input(setting.lens, seed=setting.seed)]
