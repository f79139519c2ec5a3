"""Probes of each site's directions: the cone's axis, rogue dimensions, words in context."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from typing import Any

import numpy as np

from headscan.geometry.axis import axis_cosine
from headscan.geometry.probe import Cost, Finished, Probe, Row, Setting, tally_row
from headscan.geometry.rogue import agreement_without, rogue, rogue_dimensions
from headscan.geometry.words import contexts, maximum_explainable_variance, words
from headscan.statistics import ClassSums, ContextTally, DirectionTally, Seen
from headscan.statistics.accumulator import Accumulator

__all__ = ["Axis", "Rogue", "Words"]

FEW = "fewer than two vectors that are not zero"


class Axis(Probe):
    """Does the cone keep its axis from layer to layer?"""

    name = "axis"

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        clouds = list(finished.clouds.values())
        rows = []
        for k, (site, cloud) in enumerate(finished.clouds.items()):
            rows.append(
                {
                    "site": site,
                    "to_previous": axis_cosine(cloud, clouds[k - 1]) if k else None,
                    "to_first": axis_cosine(cloud, clouds[0]),
                    "to_last": axis_cosine(cloud, clouds[-1]),
                }
            )
        return rows


class Rogue(Probe):
    """A few coordinates that decide every similarity."""

    name = "rogue"

    def accumulators(self, setting: Setting) -> dict[str, Accumulator]:
        return {site: DirectionTally(setting.lens.width(site), setting.device) for site in setting.sites}

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        rows = []
        for site in finished.clouds:  # in the order of depth; accumulators that were stored come back in another
            tally = finished.own[site]
            assert isinstance(tally, DirectionTally)
            row: Row = {"site": site} | tally_row(tally, rogue, self.fields)
            top = rogue_dimensions(tally.total())
            states = finished.sample.get(site)
            for k in (1, 3, 5):
                dims = np.array([entry["dimension"] for entry in top[:k]], dtype=int)
                enough = states is not None and len(dims) == k and k < states.shape[1]
                row[f"agreement_{k}"] = agreement_without(states[:1000].numpy(), dims) if enough else None  # type: ignore[index]
            rows.append(row | {"dimensions": [int(entry["dimension"]) for entry in top]})
        return rows


class Words(Probe):
    """How contextual are the vectors?"""

    name = "words"

    def cost(self, setting: Setting) -> Cost:
        types = min(8192, setting.lens.vocabulary_size)
        return Cost(0, sum(16.0 * types * setting.lens.width(site) for site in setting.sites))

    def accumulators(self, setting: Setting) -> dict[str, Accumulator]:
        found: dict[str, Accumulator] = {}
        for site in setting.sites:
            width = setting.lens.width(site)
            found[site] = ContextTally(width, setting.device)
            found[f"{site}|types"] = ClassSums(width, limit=8192, device=setting.device)
        return found

    def see(self, setting: Setting, accumulator: Any, seen: Seen) -> None:
        if isinstance(accumulator, ContextTally):
            accumulator.see(seen)
        else:
            flat = (-1, accumulator.width)
            accumulator.add(
                seen.ids.reshape(-1), seen.norms.reshape(-1), seen.rows.reshape(flat), seen.unit.reshape(flat)
            )

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        rows = []
        for site in finished.clouds:
            tally, types = finished.own[site], finished.own[f"{site}|types"]
            assert isinstance(tally, ContextTally)
            assert isinstance(types, ClassSums)
            row: Row = {"site": site} | tally_row(tally, contexts, self.fields)
            row |= words(types, row["between_cosine"])
            empty = {"mev": None, "mev_adjusted": None, "mev_words": 0}
            states = finished.sample.get(site)
            row |= (
                empty if states is None else maximum_explainable_variance(states.numpy(), finished.sample["id"].numpy())
            )
            rows.append(row)
        return rows
