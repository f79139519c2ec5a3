"""The probe `head`: the head's spectrum."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.head import head_spectrum
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup

__all__ = ["HeadProbe"]


class HeadProbe(Probe):
    """The head's spectrum."""

    words = ProbeWords(
        name="head", title="The head's spectrum", group="head",
        sentence="How many directions does the output layer use? A rising singular entropy is how small models' "
        "heads saturate.",
        literature="Godey et al. 2024, arXiv:2404.07647", position="Weights know no position.", docs="head.md",
        function="headscan.geometry.head.head_spectrum", order=13, fields={
            "singular_entropy": Field("singular entropy",
                "Divergence of the singular values from uniform: 0 when all are equal.", "log d − H(σ/Σσ)", (0, None),
                unit="nats", undefined="the head is zero", interval="a property of the weights alone"),
            "effective_rank": Field("effective rank", "exp of the entropy of the energies.", "exp H(σ²/Σσ²)",
                (1, None), unit="dimensions", undefined="the head is zero", interval="a property of the weights alone"),
            "stable_rank": Field("stable rank", "Energy in units of the strongest direction.", "Σσ²/σ₁²", (1, None),
                unit="dimensions", undefined="the head is zero", interval="a property of the weights alone"),
            "top_ratio": Field("top ratio", "First singular value over the median one.", "σ₁/median σ", (1, None),
                undefined="the median singular value is zero", interval="a property of the weights alone"),
            "half_error_rank": Field("rank for W-error ½", "Directions that leave half of the norm out.",
                "W-error(k) ≤ 0.5", (0, None), unit="dimensions", undefined="the head is zero",
                interval="a property of the weights alone"),
            "tenth_error_rank": Field("rank for W-error 0.1", "Directions that leave a tenth out.",
                "W-error(k) ≤ 0.1", (0, None), unit="dimensions", undefined="the head is zero",
                interval="a property of the weights alone"),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        return None if setup.lens.output_embeddings is not None else NO_HEAD

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        output = setup.lens.output_embeddings
        return [] if output is None else [{"site": "output embeddings", **head_spectrum(output)}]


NO_HEAD = "the model has no output layer"
