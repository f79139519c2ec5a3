"""The probe `biased_input`: a biased input to an untrained block."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.attention import biased_input
from headscan.geometry.explained import Cells, Field, ProbeWords, number
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import Cost, ProbeData, ProbeSetup

__all__ = ["BiasedInputProbe"]


class BiasedInputProbe(Probe):
    """Does the block itself make a cone?"""

    words = ProbeWords(
        name="biased_input", title="A biased input to an untrained block", group="attention",
        sentence="Does anisotropy come from the block itself? Noise with a common bias b, through the first block "
        "of an untrained twin.",
        literature="Godey et al. 2024, arXiv:2401.12143", position="Noise at all positions; none is left out.",
        docs="attention.md", function="headscan.geometry.attention.biased_input", expensive=True, order=19, fields={
            "bias": Field("bias", "Length of the common bias, in units of the noise's.", range=(0, None),
                interval="given"),
            "cosine_in": Field("cosine in", "Average cosine of what the block is given.", range=(-1, 1),
                undefined="the model has no such site"),
            "cosine_attention": Field("cosine of attention", "Of what its attention adds.", range=(-1, 1),
                undefined="the model has no such site"),
            "cosine_mlp": Field("cosine of MLP", "Of what its MLP adds.", range=(-1, 1),
                undefined="the model has no such site"),
            "cosine_out": Field("cosine out", "Of what the block returns.", range=(-1, 1),
                undefined="the model has no such site"),
        },
    )  # fmt: skip

    def cost(self, setup: ProbeSetup) -> Cost:
        parameters = sum(p.numel() for p in setup.lens.model.parameters())
        # Fresh weights are drawn at some 20 million a second; the twin stands beside the model for the while.
        return Cost(parameters * 1500.0, 4.0 * parameters)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        return [{"site": f"b = {number(row['bias']):g}", **row} for row in biased_input(setup.lens, seed=setup.seed)]
