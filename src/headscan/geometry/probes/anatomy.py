"""The probe `anatomy`: who builds the cone, and who takes it away."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import numpy as np
import torch

from headscan.geometry.anatomy import Shares, SiteParts, band_names, position_bands, rank_bands
from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import Cost, ProbeData, ProbeSetup
from headscan.geometry.streams import Followed, Plan
from headscan.statistics import Accumulator, PartSums, SiteBatch

__all__ = ["AnatomyProbe"]


class AnatomyProbe(Probe):
    """Who builds the cone, and who takes it away."""

    words = ProbeWords(
        name="anatomy", title="Anatomy of the cone", group="anatomy",
        sentence="Of what is the mean direction made? Shares of its squared length by branch, token frequency, position, "
        "coordinate and document; those of one kind add up to 1, and a negative one takes away from the cone.",
        literature="headscan; the sum over coordinates is Timkey and van Schijndel's (2021, arXiv:2109.04404)",
        position="Position 0 has a share of its own.", docs="anatomy.md", function="headscan.geometry.anatomy.Shares",
        order=1, picture="own", fields={
            "share": Field("share of the cone", "What the part adds to the squared length of the mean unit state.",
                "aᵢ·m/|m|², m = Σaᵢ = mean x/‖x‖", interval="three blocks of text are needed, of a document three others"),
            "tokens": Field("share of the tokens", "How many of the tokens are in the part.", "nᵢ/n", (0, 1),
                interval="a count"),
        },
    )  # fmt: skip

    passes = 2  # the first for the counts of tokens, which needs no model
    needs = "vectors"

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.followed: list[Followed] = []
        self.bands, self.band_names = torch.zeros(0, dtype=torch.int64), ["all tokens"]
        self.positions, self.position_names = torch.zeros(0, dtype=torch.int64), [""]

    def cost(self, setup: ProbeSetup) -> Cost:
        """Operations a token, and bytes: what a batch of 2,048 tokens holds, and the sums."""
        places = {site: place for plan in self.plans for site, place in plan.places.items()}
        sites = [(setup.width(site), places[site]) for site in setup.sites if site in places]
        products = sum(width * place.sources for width, place in sites)
        held = sum(setup.width(source) for plan in self.plans for source in plan.sources)
        return Cost(2.0 * products * (setup.tokens or 0), 4.0 * 2048 * held + 8.0 * 16 * products)

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        stacks = () if setup.source.lens is None else setup.source.lens.stacks
        self.plans = [plan for stack in stacks if (plan := Plan.of(setup.lens, stack, setup.sites)) is not None]
        self.followed = [Followed(plan, torch.device(setup.device)) for plan in self.plans]
        counts = setup.counts
        self.bands = torch.from_numpy(rank_bands(counts if counts is not None else np.zeros(0, dtype=np.int64)))
        self.band_names = ["all tokens"] if counts is None else band_names()
        positions, self.position_names = position_bands(setup.context, setup.skip_first)
        self.positions = torch.from_numpy(positions)
        cells = len(self.band_names) * len(self.position_names)
        found: dict[str, Accumulator] = {}
        for site in setup.sites:
            place = next((plan.places[site] for plan in self.plans if site in plan.places), None)
            sources, constants = (0, 0) if place is None else (place.sources, place.factors)
            found[site] = PartSums(
                setup.width(site), cells=cells, sources=sources, constants=constants, device=setup.device
            )
        return found

    def passing(self, setup: ProbeSetup) -> tuple[str, ...]:
        return tuple(site for plan in self.plans for site in plan.passing)

    def see(self, setup: ProbeSetup, batch: SiteBatch) -> None:
        for followed in self.followed:
            if batch.site in followed.plan.passing:
                followed.see(batch)

    def update(self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch) -> None:
        assert isinstance(accumulator, PartSums)
        cells = self.positions[: batch.ids.shape[1]].expand(batch.ids.shape)
        if len(self.bands):
            cells = cells + len(self.position_names) * self.bands[batch.ids.cpu()]
        accumulator.update(batch, cells)
        for followed in self.followed:
            if key in followed.plan.places:
                followed.keep(accumulator, batch)
                if key == followed.plan.last:
                    followed.settle()

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        for site in data.clouds:
            sums = data.own[site]
            assert isinstance(sums, PartSums)
            found = [*self._parts(site, sums).rows(pairs=site in (setup.last, setup.deepest)), *_documents(sums)]
            if found and not any(row["kind"] == "branch" for row in found):
                found[0] |= {"notes": ["no shares by branch: what the site is a sum of is not known"]}
            rows += [{"site": site, **row} for row in found]
            if not found:
                notes = ["there is no cone: the mean of the unit states is zero"]
                rows.append({"site": site, "kind": "branch", "part": "", "share": None, "notes": notes})
        return rows

    def _parts(self, site: str, sums: PartSums) -> SiteParts:
        blocks = sums.blocks.parts()
        cells, tokens = (torch.stack([block[name] for block in blocks]) for name in ("cells", "tokens"))
        width = sums.shape[0]
        branches, names = np.zeros((len(blocks), 0, width)), list[str]()
        for plan in self.plans:
            if site in plan.places:
                held = [torch.stack([block[name].cpu() for block in blocks]) for name in ("sources", "constants")]
                terms, biases = plan.carried(site, *held)
                names, branches = list(plan.sources[: terms.shape[-2]]), terms.numpy()
                if biases.shape[-2]:
                    names.append(f"{plan.prefix}norm biases")
                    branches = np.concatenate([branches, biases.sum(-2, keepdim=True).numpy()], axis=1)
        if site not in {place for plan in self.plans for place in plan.places} and _is_branch(site):
            names, branches = [site], cells.sum(1)[:, None].cpu().numpy()
        return SiteParts(
            cells.cpu().numpy(), tokens.cpu().numpy(), self.band_names, self.position_names, branches, names
        )


def _is_branch(site: str) -> bool:
    return site.rsplit(".", 1)[-1].split("_")[0] in ("attention", "cross", "mlp", "mixer")


def _documents(sums: PartSums) -> list[Cells]:
    """The shares of groups of consecutive documents."""
    groups, size = sums.documents.items(), sums.documents.size
    units = np.array([group["unit"].cpu().numpy() for _, group in groups]).reshape(len(groups), -1)
    tokens = np.array([float(group["tokens"]) for _, group in groups])
    if not len(groups) or not float(np.square(units.sum(0)).sum()) > 0:
        return []
    names = [f"document {k * size}" if size == 1 else f"documents {k * size}-{k * size + size - 1}" for k, _ in groups]
    return list(Shares(units, tokens).of_documents(names, units, tokens))
