"""Probes of the sampled vectors of each site: intrinsic dimension, spread over the sphere, alignment with what follows."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from torch.nn.functional import normalize

from headscan.geometry.dimension import intrinsic_dimension
from headscan.geometry.probe import Finished, Probe, Row, Setting, tally_row
from headscan.geometry.uniformity import uniformity, uniformity_floor
from headscan.statistics import FollowTally, Seen, Tally
from headscan.statistics.accumulator import Accumulator

__all__ = ["Dimension", "Sphere"]

FEWEST = "fewer than ten distinct sampled points, or their distances leave nothing to compare"


@cache
def _gaussian(count: int, width: int, what: str) -> dict[str, Any]:
    rows = np.random.default_rng([count, width]).standard_normal((count, width))
    return intrinsic_dimension(rows) if what == "dimension" else {"uniformity": uniformity(rows)}


class Dimension(Probe):
    """On how many dimensions do the points lie, locally?"""

    name = "dimension"

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        rows: list[Row] = []
        for site in finished.clouds:
            found = intrinsic_dimension(finished.sample[site].numpy()) if site in finished.sample else {}
            rows.append({"site": site} | dict.fromkeys(self.fields) | found)
        sizes = {(row["distinct_points"], finished.clouds[row["site"]].width) for row in rows if row["distinct_points"]}
        for count, width in sorted(sizes)[-1:]:
            rows.append({"site": f"{count} x {width}", "null": "gaussian"} | _gaussian(count, width, "dimension"))
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

    def see(self, setting: Setting, accumulator: Any, seen: Seen) -> None:
        if accumulator.table is None:
            accumulator.table = normalize(self._table(setting, seen.site).detach().float(), dim=-1)
        accumulator.see(seen)

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        rows: list[Row] = []
        for site, cloud in finished.clouds.items():
            row: Row = {"site": site, "uniformity": None, "uniformity_floor": uniformity_floor(cloud.width)}
            if site in finished.sample:
                row["uniformity"] = uniformity(finished.sample[site].numpy())
            tally = finished.own.get(site)
            row |= {"next_alignment": None, "next_alignment_interval": None}
            if isinstance(tally, FollowTally):
                row |= tally_row(tally, _next_alignment, self.fields)
            rows.append(row)
        return rows


def _next_alignment(tally: Tally) -> dict[str, float | None]:
    """2 − 2·(mean cosine): the mean squared distance of unit vectors."""
    pairs = float(tally["pairs"])
    return {"next_alignment": 2 - 2 * float(tally["cosine"]) / pairs if pairs > 0.5 else None}
