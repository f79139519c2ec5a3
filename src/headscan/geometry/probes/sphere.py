"""The probe `sphere`: alignment and uniformity."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from headscan.geometry.explained import Cells, Field, ProbeWords, number
from headscan.geometry.probe import Probe, tally_row
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.geometry.sentences import from_pair_sums
from headscan.geometry.uniformity import uniformity_by_block, uniformity_floor
from headscan.statistics import FollowTally, SiteBatch, Tally
from headscan.statistics.accumulator import Accumulator

__all__ = ["SphereProbe"]


class SphereProbe(Probe):
    """Alignment and uniformity."""

    words = ProbeWords(
        name="sphere", title="Alignment and uniformity", group="alignment",
        sentence="How evenly do directions fill the unit sphere (on the sample), and how near is a state to the "
        "embedding of the token that follows (on all tokens; beside it mismatched pairs)?",
        literature="Wang and Isola 2020, arXiv:2005.10242",
        position="Both numbers also without position 0 of each window.", docs="sphere.md",
        function="headscan.geometry.uniformity.uniformity", sample=2000, order=5, fields={
            "uniformity": Field("uniformity",
                "log of the mean of exp(−2‖x − y‖²) over all pairs of sampled directions: 0 for a needle.",
                "log E exp(−t‖x − y‖²), t = 2", (-8, 0), unit="nats",
                undefined="fewer than two vectors that are not zero", first=True, plotted=True),
            "uniformity_floor": Field("its floor", "The same for directions spread evenly over the sphere.",
                "−2t + log ₀F₁(; d/2; t²)", (-8, 0), unit="nats", interval="known in closed form"),
            "next_alignment": Field("alignment to next",
                "Mean squared distance of a state's direction from that of the next token's input embedding; 2 is "
                "unrelated.",
                "E‖ĥ − ê_next‖²", (0, 4),
                undefined="the site's width is not the embedding's, or no token has a successor", first=True,
                plotted=True),
            "next_unrelated": Field("its null",
                "The same over all mismatched pairs: each state with the next token of every other one.",
                "E_{i≠j}‖ĥ_i − ê_j‖²", (0, 4),
                undefined="the site's width is not the embedding's, or no token has a successor", first=True),
            "next_relative": Field("alignment over null", "Their ratio: 1 is no nearer than chance.", range=(0, None),
                undefined="the site's width is not the embedding's, or no token has a successor", first=True,
                plotted=True),
        },
    )  # fmt: skip

    def _table(self, setup: ProbeSetup, site: str) -> Tensor | None:
        table = setup.lens.input_embeddings
        return table if table.shape[1] == setup.lens.width(site) else None

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {
            site: FollowTally(setup.lens.width(site), setup.device)
            for site in setup.sites
            if self._table(setup, site) is not None
        }

    def update(self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch) -> None:
        assert isinstance(accumulator, FollowTally)
        table = self._table(setup, batch.site)
        if accumulator.table is None and table is not None:
            accumulator.table = normalize(table.detach().float(), dim=-1)
        accumulator.update(batch)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for site, cloud in data.clouds.items():
            row: Cells = {"site": site, "uniformity": None, "uniformity_floor": uniformity_floor(cloud.width)}
            if site in data.sample:
                row |= uniformity_by_block(data.sample[site].numpy(), data.blocks, data.first)
            tally = data.own.get(site)
            names = ("next_alignment", "next_unrelated", "next_relative")
            row |= dict.fromkeys([*names, *(f"{name}_interval" for name in names)])
            if isinstance(tally, FollowTally):
                row |= tally_row(tally, _next_alignment, self.fields)
            rows.append(row)
        return rows


def _next_alignment(tally: Tally) -> dict[str, float | None]:
    """Of states and the embeddings of their next tokens, against all mismatched pairs."""
    sums = tuple(tally[name].cpu().numpy() for name in ("pairs", "unit", "next", "cosine"))
    found = from_pair_sums(sums, ())  # type: ignore[arg-type]
    return {f"next_{name}": number(found[name]) for name in ("alignment", "unrelated", "relative")}
