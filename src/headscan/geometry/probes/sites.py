"""Probes of each site's directions: the cone's axis, rogue dimensions, words in context."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from typing import Any

import numpy as np

from headscan.geometry.axis import axis_course
from headscan.geometry.probe import WITHOUT, Cost, Probe, ProbeData, ProbeSetup, Row, tally_row
from headscan.geometry.rogue import agreements, rogue, rogue_dimensions
from headscan.geometry.words import contexts, maximum_explainable_variance, words
from headscan.statistics import ClassSums, ContextTally, DirectionTally, SiteBatch
from headscan.statistics.accumulator import Accumulator

__all__ = ["AxisProbe", "RogueProbe", "WordsProbe"]

FEW = "fewer than two vectors that are not zero"


class AxisProbe(Probe):
    """Does the cone keep its axis from layer to layer?"""

    name = "axis"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        sites = [data.statistics[site] for site in data.clouds]
        both = zip(data.clouds, axis_course(sites), axis_course(sites, rest=True), strict=True)
        return [{"site": site} | row | suffixed(rest) for site, row, rest in both]


def suffixed(row: Row) -> Row:
    """NAME and NAME_interval as NAME_without_first and NAME_without_first_interval.

    >>> suffixed({"a": 1, "a_interval": [0, 2]})
    {'a_without_first': 1, 'a_without_first_interval': [0, 2]}
    """
    return {
        f"{name.removesuffix('_interval')}{WITHOUT}{'_interval' if name.endswith('_interval') else ''}": value
        for name, value in row.items()
    }


class RogueProbe(Probe):
    """A few coordinates that decide every similarity."""

    name = "rogue"

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {site: DirectionTally(setup.lens.width(site), setup.device) for site in setup.sites}

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        rows = []
        for site in data.clouds:  # in the order of depth; accumulators that were stored come back in another
            tally = data.own[site]
            assert isinstance(tally, DirectionTally)
            row: Row = {"site": site} | tally_row(tally, rogue, self.fields)
            top = rogue_dimensions(tally.total())
            states = data.sample.get(site)
            dims = {k: np.array([entry["dimension"] for entry in top[:k]], dtype=int) for k in (1, 3, 5)}
            enough = {k: d for k, d in dims.items() if states is not None and len(d) == k < states.shape[1]}
            row |= {f"agreement_{k}{suffix}": None for k in dims for suffix in ("", WITHOUT)}
            if states is not None:
                place = data.blocks[:1000], data.first[:1000]
                row |= agreements(states[:1000].numpy(), enough, *place)
            rows.append(row | {"dimensions": [int(entry["dimension"]) for entry in top]})
        return rows


class WordsProbe(Probe):
    """How contextual are the vectors?"""

    name = "words"

    def cost(self, setup: ProbeSetup) -> Cost:
        types = min(8192, setup.lens.vocabulary_size)
        return Cost(0, sum(16.0 * types * setup.lens.width(site) for site in setup.sites))

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        found: dict[str, Accumulator] = {}
        for site in setup.sites:
            width = setup.lens.width(site)
            found[site] = ContextTally(width, setup.device)
            for part in ("types", "first"):
                found[f"{site}|{part}"] = ClassSums(width, limit=8192, device=setup.device)
        return found

    def update(self, setup: ProbeSetup, key: str, accumulator: Any, batch: SiteBatch) -> None:
        if isinstance(accumulator, ContextTally):
            accumulator.update(batch)
            return
        # Position 0 on its own: few rows, to be taken away from all.
        part = slice(None) if key.endswith("|types") else slice(0, batch.lead)
        flat = (-1, accumulator.width)
        accumulator.add(
            batch.ids[:, part].reshape(-1), batch.norms[:, part].reshape(-1), batch.rows[:, part].reshape(flat),
            batch.unit[:, part].reshape(flat),
        )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        rows = []
        for site in data.clouds:
            tally, types = data.own[site], data.own[f"{site}|types"]
            assert isinstance(tally, ContextTally)
            assert isinstance(types, ClassSums)
            row: Row = {"site": site} | tally_row(tally, contexts, self.fields)
            first = data.own[f"{site}|first"]
            assert isinstance(first, ClassSums)
            row |= words(types, row["between_cosine"])
            row |= suffixed(words(types.without(first), row[f"between_cosine{WITHOUT}"]))
            states = data.sample.get(site)
            for suffix, kept in (("", None), (WITHOUT, ~data.first)):
                if states is None:
                    row |= {f"mev{suffix}": None, f"mev_adjusted{suffix}": None, f"mev_words{suffix}": 0}
                    continue
                x, ids = states.numpy(), data.sample["id"].numpy()
                if kept is not None:
                    x, ids = x[kept], ids[kept]
                found = maximum_explainable_variance(x, ids)
                row |= suffixed(found) if suffix else found
            rows.append(row)
        return rows
