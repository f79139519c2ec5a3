"""The probe `logit_lens`: what each block's states say if the head reads them."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import torch
from torch import Tensor

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.lenses import FIELDS, LensHead, reading_rows, readings, stream_sites
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import Cost, ProbeData, ProbeSetup

__all__ = ["LogitLensProbe"]

TOKENS = 2048


class LogitLensProbe(Probe):
    """From which block on does the model know its prediction?"""

    words = ProbeWords(
        name="logit_lens", title="Logit lens", group="head",
        sentence=f"From which block on do the states say what the model will say, read by its own final norm and head? On the "
        f"second half of the first {TOKENS:,} tokens; means are of the first half.",
        literature="nostalgebraist 2020; the mean as what a lens must beat: Belrose et al. 2023, arXiv:2303.08112",
        position="All positions.", docs="lenses.md", function="headscan.geometry.lenses.read", expensive=True, order=20,
        fields=FIELDS | {
            "kl_centred": Field("with the means corrected",
                "The divergence where the last block's mean is put in place of the site's: what a bias alone mends.",
                "h − mean h + mean h_L", (0, None), unit="nats", plotted=True),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        if not setup.lens.traits.causal:
            return "its output at a token is no prediction of the next"
        return None if LensHead.of(setup.lens) is not None else "its head is no linear map of its last norm or block"

    def cost(self, setup: ProbeSetup) -> Cost:
        vocabulary, width = setup.lens.vocabulary_size, setup.lens.width("embedding")
        tokens = min(TOKENS, setup.tokens or TOKENS) / 2
        return Cost(8.0 * vocabulary * width * tokens * len(stream_sites(setup)), 4.0 * 3 * 2**23)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        lens, sites = setup.lens, stream_sites(setup)
        readout = LensHead.of(lens)
        assert readout is not None
        ids = data.windows[: max(2, TOKENS // setup.context)]
        half = len(ids) // 2
        means = self._means(setup, (*sites, readout.last), ids[:half])
        ways = {"plain": lambda site, states: states}
        if means:
            ways["centred"] = lambda site, states: states - means[site] + means[readout.last]
        rows = reading_rows(lens, readout, sites, ids[half:].tensor_split(8), ways, self.fields)
        return rows if means else [row | {"kl_centred": None} for row in rows]

    @staticmethod
    def _means(setup: ProbeSetup, sites: tuple[str, ...], ids: Tensor) -> dict[str, Tensor]:
        sums: dict[str, Tensor] = {}
        tokens = 0
        for reading in readings(setup.lens, ids.split(max(1, 2048 // setup.context)), tuple(dict.fromkeys(sites))):
            tokens += len(reading.following)
            for site, states in reading.states.items():
                sums[site] = sums.get(site, 0) + states.sum(0, dtype=torch.float64)
        return {site: (total / tokens).float() for site, total in sums.items()}
