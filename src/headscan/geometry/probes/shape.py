"""Probes of the sampled vectors of each site: intrinsic dimension, spread over the sphere, alignment with what follows."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from torch.nn.functional import normalize

from headscan.geometry.dimension import intrinsic_dimension
from headscan.geometry.probe import Cost, Finished, Probe, Row, Setting, tally_row
from headscan.geometry.sentences import aligned, from_pair_sums, has_dropout, mean_states, sentence_ids
from headscan.geometry.uniformity import uniformity_by_block, uniformity_floor
from headscan.statistics import FollowTally, Seen, Tally
from headscan.statistics.accumulator import Accumulator

__all__ = ["Alignment", "Dimension", "Sphere"]


@cache
def _gaussian(count: int, width: int) -> dict[str, Any]:
    rows = np.random.default_rng([count, width]).standard_normal((count, width))
    return intrinsic_dimension(rows)


class Dimension(Probe):
    """On how many dimensions do the points lie, locally?"""

    name = "dimension"

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        rows: list[Row] = []
        for site in finished.clouds:
            states = finished.sample.get(site)
            found = {} if states is None else intrinsic_dimension(
                states.numpy(), blocks=finished.blocks, first=finished.first
            )  # fmt: skip
            rows.append({"site": site} | dict.fromkeys(self.fields) | found)
        sizes = {(row["distinct_points"], finished.clouds[row["site"]].width) for row in rows if row["distinct_points"]}
        for count, width in sorted(sizes)[-1:]:
            rows.append({"site": f"{count} x {width}", "null": "gaussian"} | _gaussian(count, width))
        return rows


class Sphere(Probe):
    """Alignment and uniformity."""

    name = "sphere"

    def _table(self, setting: Setting, site: str):
        table = setting.lens.input_embeddings
        return table if table.shape[1] == setting.lens.width(site) else None

    def accumulators(self, setting: Setting) -> dict[str, Accumulator]:
        return {
            site: FollowTally(setting.lens.width(site), setting.device)
            for site in setting.sites
            if self._table(setting, site) is not None
        }

    def see(self, setting: Setting, key: str, accumulator: Any, seen: Seen) -> None:
        if accumulator.table is None:
            accumulator.table = normalize(self._table(setting, seen.site).detach().float(), dim=-1)
        accumulator.see(seen)

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        rows: list[Row] = []
        for site, cloud in finished.clouds.items():
            row: Row = {"site": site, "uniformity": None, "uniformity_floor": uniformity_floor(cloud.width)}
            if site in finished.sample:
                row |= uniformity_by_block(finished.sample[site].numpy(), finished.blocks, finished.first)
            tally = finished.own.get(site)
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


class Alignment(Probe):
    """Pairs of texts that mean the same."""

    name = "alignment"
    PAIRS, PIECES, LENGTH = 1000, 32, 32

    def cost(self, setting: Setting) -> Cost:
        parameters = sum(p.numel() for p in setting.lens.model.parameters())
        tokens = sum(60.0 * min(self.PAIRS, len(pairs)) for pairs in setting.pairs) + 2 * self.PIECES * self.LENGTH
        return Cost(2.0 * parameters * tokens, 32.0 * self.PAIRS * setting.lens.width(setting.last))

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        sites = list(finished.clouds)
        rows: list[Row] = []
        states: dict[str, dict[str, np.ndarray]] = {}
        for pairs in (pairs.first(self.PAIRS) for pairs in setting.pairs):
            texts = [*pairs.one, *pairs.other]
            ids = dict(zip(texts, sentence_ids(setting.lens, texts), strict=True))
            kept = [k for k, (a, b) in enumerate(zip(pairs.one, pairs.other, strict=True)) if ids[a] and ids[b]]
            new = list(dict.fromkeys(text for text in texts if ids[text] and text not in states))
            if new:
                found = mean_states(setting.lens, [ids[text] for text in new], sites)
                states |= {text: {site: found[site][k] for site in sites} for k, text in enumerate(new)}
            for site in sites:
                row: Row = {"site": site, "set": pairs.name, "pairs": len(kept)}
                if len(kept) > 1:
                    one, other = (np.stack([states[side[k]][site] for k in kept]) for side in (pairs.one, pairs.other))
                    row |= aligned(one, other)
                rows.append(dict.fromkeys(self.fields) | row)
        return rows + self._dropout(setting, finished, sites)

    def _dropout(self, setting: Setting, finished: Finished, sites: list[str]) -> list[Row]:
        """Two dropout masks over pieces of the text."""
        name, width = "two dropout passes", finished.windows.shape[-1]
        length = min(self.LENGTH, width)
        pieces = (
            finished.windows[:, : width - width % length].reshape(-1, length)[: self.PIECES].tolist() if length else []
        )
        if not has_dropout(setting.lens) or len(pieces) < 2:
            why = "the model has no dropout" if pieces else "too short a text"
            return [
                dict.fromkeys(self.fields) | {"site": site, "set": name, "pairs": 0, "notes": [why]} for site in sites
            ]
        one, other = (mean_states(setting.lens, pieces, sites, dropout=seed) for seed in (1, 2))
        return [{"site": site, "set": name, "pairs": len(pieces)} | aligned(one[site], other[site]) for site in sites]
