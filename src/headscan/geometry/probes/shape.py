"""Probes of the sampled vectors of each site: intrinsic dimension, spread over the sphere, alignment with what follows."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from torch.nn.functional import normalize

from headscan.geometry.dimension import intrinsic_dimension
from headscan.geometry.probe import Cost, Probe, ProbeData, ProbeSetup, Row, tally_row
from headscan.geometry.sentences import aligned, from_pair_sums, has_dropout, mean_states, sentence_ids
from headscan.geometry.uniformity import uniformity_by_block, uniformity_floor
from headscan.statistics import FollowTally, SiteBatch, Tally
from headscan.statistics.accumulator import Accumulator

__all__ = ["AlignmentProbe", "DimensionProbe", "SphereProbe"]


@cache
def _gaussian(count: int, width: int) -> dict[str, Any]:
    rows = np.random.default_rng([count, width]).standard_normal((count, width))
    return intrinsic_dimension(rows)


class DimensionProbe(Probe):
    """On how many dimensions do the points lie, locally?"""

    name = "dimension"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        rows: list[Row] = []
        for site in data.clouds:
            states = data.sample.get(site)
            found = {} if states is None else intrinsic_dimension(
                states.numpy(), blocks=data.blocks, first=data.first
            )  # fmt: skip
            rows.append({"site": site} | dict.fromkeys(self.fields) | found)
        sizes = {(row["distinct_points"], data.clouds[row["site"]].width) for row in rows if row["distinct_points"]}
        for count, width in sorted(sizes)[-1:]:
            rows.append({"site": f"{count} x {width}", "null": "gaussian"} | _gaussian(count, width))
        return rows


class SphereProbe(Probe):
    """Alignment and uniformity."""

    name = "sphere"

    def _table(self, setup: ProbeSetup, site: str):
        table = setup.lens.input_embeddings
        return table if table.shape[1] == setup.lens.width(site) else None

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {
            site: FollowTally(setup.lens.width(site), setup.device)
            for site in setup.sites
            if self._table(setup, site) is not None
        }

    def update(self, setup: ProbeSetup, key: str, accumulator: Any, batch: SiteBatch) -> None:
        if accumulator.table is None:
            accumulator.table = normalize(self._table(setup, batch.site).detach().float(), dim=-1)
        accumulator.update(batch)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        rows: list[Row] = []
        for site, cloud in data.clouds.items():
            row: Row = {"site": site, "uniformity": None, "uniformity_floor": uniformity_floor(cloud.width)}
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
    return {f"next_{name}": found[name] for name in ("alignment", "unrelated", "relative")}


class AlignmentProbe(Probe):
    """Pairs of texts that mean the same."""

    name = "alignment"
    PAIRS, PIECES, LENGTH = 1000, 32, 32

    def cost(self, setup: ProbeSetup) -> Cost:
        parameters = sum(p.numel() for p in setup.lens.model.parameters())
        tokens = sum(60.0 * min(self.PAIRS, len(pairs)) for pairs in setup.pairs) + 2 * self.PIECES * self.LENGTH
        return Cost(2.0 * parameters * tokens, 32.0 * self.PAIRS * setup.lens.width(setup.last))

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        sites = list(data.clouds)
        rows: list[Row] = []
        states: dict[str, dict[str, np.ndarray]] = {}
        for pairs in (pairs.first(self.PAIRS) for pairs in setup.pairs):
            texts = [*pairs.one, *pairs.other]
            ids = dict(zip(texts, sentence_ids(setup.lens, texts), strict=True))
            kept = [k for k, (a, b) in enumerate(zip(pairs.one, pairs.other, strict=True)) if ids[a] and ids[b]]
            new = list(dict.fromkeys(text for text in texts if ids[text] and text not in states))
            if new:
                found = mean_states(setup.lens, [ids[text] for text in new], sites)
                states |= {text: {site: found[site][k] for site in sites} for k, text in enumerate(new)}
            for site in sites:
                row: Row = {"site": site, "set": pairs.name, "pairs": len(kept)}
                if len(kept) > 1:
                    one, other = (np.stack([states[side[k]][site] for k in kept]) for side in (pairs.one, pairs.other))
                    row |= aligned(one, other)
                rows.append(dict.fromkeys(self.fields) | row)
        return rows + self._dropout(setup, data, sites)

    def _dropout(self, setup: ProbeSetup, data: ProbeData, sites: list[str]) -> list[Row]:
        """Two dropout masks over pieces of the text."""
        name, width = "two dropout passes", data.windows.shape[-1]
        length = min(self.LENGTH, width)
        pieces = data.windows[:, : width - width % length].reshape(-1, length)[: self.PIECES].tolist() if length else []
        if not has_dropout(setup.lens) or len(pieces) < 2:
            why = "the model has no dropout" if pieces else "too short a text"
            return [
                dict.fromkeys(self.fields) | {"site": site, "set": name, "pairs": 0, "notes": [why]} for site in sites
            ]
        one, other = (mean_states(setup.lens, pieces, sites, dropout=seed) for seed in (1, 2))
        return [{"site": site, "set": name, "pairs": len(pieces)} | aligned(one[site], other[site]) for site in sites]
