"""The probe `jacobian_lens`: what each block's states say once they are moved by the mean Jacobian."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import torch
from torch import Tensor

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.lenses import FIELDS, LensHead, mean_jacobians, reading_rows, stream_sites
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import Cost, ProbeData, ProbeSetup
from headscan.run import BadInput

__all__ = ["JacobianLensProbe"]

FITTED, TOKENS = 512, 1024  # tokens that the Jacobians are means of, and that are read through them


class JacobianLensProbe(Probe):
    """What would each block's states do to the output, on average?"""

    words = ProbeWords(
        name="jacobian_lens", title="Jacobian lens", group="head",
        sentence=f"What do a block's states say if they are moved as the rest of the model moves them on average? The mean "
        f"Jacobian is of the first {FITTED} tokens; read are {TOKENS:,} others.",
        literature="Gurnee et al. 2026, arXiv:2607.15495 (there the target is the last block but one, and thousands of windows)",
        position="All positions.", docs="lenses.md", function="headscan.geometry.lenses.mean_jacobians", expensive=True,
        order=21, fields=FIELDS | {
            "kl_plain": Field("the logit lens's", "The divergence of the logit lens on the same tokens (J = I).", range=(0, None),
                unit="nats", plotted=True),
            "steadiness": Field("steadiness", "Cosine of the Jacobians of two halves of the tokens: near 1, there are enough.",
                "⟨J₁, J₂⟩/‖J₁‖‖J₂‖", (-1, 1), undefined="one window", interval="it is one itself"),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        lens = setup.lens
        if not lens.traits.causal:
            return "its output at a token is no prediction of the next"
        if LensHead.of(lens) is None:
            return "its head is no linear map of its last norm or block"
        return "its weights are rounded to integers" if lens.traits.quantised else None

    def cost(self, setup: ProbeSetup) -> Cost:
        size = sum(p.numel() for p in setup.lens.model.parameters())
        width = setup.lens.width("embedding")
        return Cost(4.0 * size * FITTED * width, 4.0 * 16 * FITTED * width * setup.lens.depth)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        lens, sites = setup.lens, stream_sites(setup)
        readout = LensHead.of(lens)
        assert readout is not None
        fitted = max(1, FITTED // setup.context)
        chosen, read = data.windows[:fitted], data.windows[fitted : fitted + max(1, TOKENS // setup.context)]
        if not len(read):
            return [{"site": "head", "notes": ["the text has too few windows"], **dict.fromkeys(self.fields)}]
        sizes = [part for part in chosen.tensor_split(2) if len(part)]
        try:
            halves = [mean_jacobians(lens, part, sites, readout.last) for part in sizes]
        except BadInput as error:
            return [{"site": "head", "notes": [str(error)], **dict.fromkeys(self.fields)}]
        weights = [len(part) / len(chosen) for part in sizes]
        jacobians = {
            site: sum((w * half[site] for w, half in zip(weights, halves, strict=True)), torch.zeros(())).float()
            for site in sites
        }

        def moved(site: str, states: Tensor) -> Tensor:
            return states.float() @ jacobians[site].T

        ways = {"jacobian": moved, "plain": lambda site, states: states}
        rows = reading_rows(lens, readout, sites, read.tensor_split(8), ways, self.fields)
        for row, site in zip(rows, sites, strict=True):
            row["steadiness"] = None
            if len(halves) > 1:
                one, two = (half[site].flatten() for half in halves)
                row["steadiness"] = float(torch.nn.functional.cosine_similarity(one, two, dim=0))
        return rows
