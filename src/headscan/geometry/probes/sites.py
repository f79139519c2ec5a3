"""Probes of each site's directions: the cone's axis, rogue dimensions, words in context."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from typing import Any

import numpy as np

from headscan.geometry.axis import axis_course
from headscan.geometry.probe import WITHOUT, Cost, Finished, Probe, Row, Setting, tally_row
from headscan.geometry.rogue import agreements, rogue, rogue_dimensions
from headscan.geometry.words import contexts, maximum_explainable_variance, words
from headscan.statistics import ClassSums, ContextTally, DirectionTally, Seen
from headscan.statistics.accumulator import Accumulator

__all__ = ["Axis", "Rogue", "Words"]

FEW = "fewer than two vectors that are not zero"


class Axis(Probe):
    """Does the cone keep its axis from layer to layer?"""

    name = "axis"

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        sites = [finished.statistics[site] for site in finished.clouds]
        both = zip(finished.clouds, axis_course(sites), axis_course(sites, rest=True), strict=True)
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
            dims = {k: np.array([entry["dimension"] for entry in top[:k]], dtype=int) for k in (1, 3, 5)}
            enough = {k: d for k, d in dims.items() if states is not None and len(d) == k < states.shape[1]}
            row |= {f"agreement_{k}{suffix}": None for k in dims for suffix in ("", WITHOUT)}
            if states is not None:
                place = finished.blocks[:1000], finished.first[:1000]
                row |= agreements(states[:1000].numpy(), enough, *place)
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
            for part in ("types", "first"):
                found[f"{site}|{part}"] = ClassSums(width, limit=8192, device=setting.device)
        return found

    def see(self, setting: Setting, key: str, accumulator: Any, seen: Seen) -> None:
        if isinstance(accumulator, ContextTally):
            accumulator.see(seen)
            return
        # Position 0 on its own: few rows, to be taken away from all.
        part = slice(None) if key.endswith("|types") else slice(0, seen.lead)
        flat = (-1, accumulator.width)
        accumulator.add(
            seen.ids[:, part].reshape(-1), seen.norms[:, part].reshape(-1), seen.rows[:, part].reshape(flat),
            seen.unit[:, part].reshape(flat),
        )  # fmt: skip

    def rows(self, setting: Setting, finished: Finished) -> list[Row]:
        rows = []
        for site in finished.clouds:
            tally, types = finished.own[site], finished.own[f"{site}|types"]
            assert isinstance(tally, ContextTally)
            assert isinstance(types, ClassSums)
            row: Row = {"site": site} | tally_row(tally, contexts, self.fields)
            first = finished.own[f"{site}|first"]
            assert isinstance(first, ClassSums)
            row |= words(types, row["between_cosine"])
            row |= suffixed(words(types.without(first), row[f"between_cosine{WITHOUT}"]))
            states = finished.sample.get(site)
            for suffix, kept in (("", None), (WITHOUT, ~finished.first)):
                if states is None:
                    row |= {f"mev{suffix}": None, f"mev_adjusted{suffix}": None, f"mev_words{suffix}": 0}
                    continue
                x, ids = states.numpy(), finished.sample["id"].numpy()
                if kept is not None:
                    x, ids = x[kept], ids[kept]
                found = maximum_explainable_variance(x, ids)
                row |= suffixed(found) if suffix else found
            rows.append(row)
        return rows
