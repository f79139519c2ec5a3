"""What a probe is: a family of numbers that needs more than a cloud's sums, with all that a reader must know beside it.

A measure is a function of one site's `Cloud`. A probe may keep accumulators of its own in the pass, look at the sampled
vectors, the embedding tables or the text's counts, or run the model again; it gives rows for one table of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from headscan.geometry.explained import WITHOUT, Cells, Field, ProbeWords
from headscan.geometry.interval import with_intervals
from headscan.geometry.probe_setup import Cost, ProbeData, ProbeSetup
from headscan.run import Registry
from headscan.run.rows import Cell
from headscan.statistics import REST, Accumulator, BlockedTally, SiteBatch, Tally

__all__ = ["PROBES", "Probe", "suffixed", "tally_row"]


class Probe:
    """Subclass it with `words`, in a file of headscan/geometry/probes or of a plug-in, and it is registered.

    >>> PROBES["rogue"].words.title
    'Rogue dimensions'
    """

    words: ClassVar[ProbeWords]
    passes: ClassVar[int] = 1
    """How often it may read the text; above 1 it has `again`."""
    needs: ClassVar[Literal["model", "tokens", "vectors"]] = "model"
    """What it cannot do without: a model, or of stored states their token ids, or vectors alone."""

    def __init_subclass__(cls) -> None:
        if "words" in cls.__dict__:
            if not cls.words.function:
                cls.words = replace(cls.words, function=f"{cls.__module__}.{cls.__qualname__}")
            PROBES.add(cls.words.name, cls)

    @property
    def name(self) -> str:
        """The key of its rows in the result."""
        return self.words.name

    @property
    def fields(self) -> Mapping[str, Field]:
        """The numbers in its rows, by name."""
        return self.words.fields

    def reason(self, setup: ProbeSetup) -> str | None:
        """Why this model has no such rows, or None where it has."""
        return None

    def cost(self, setup: ProbeSetup) -> Cost:
        """An estimate; asked of expensive probes before they start."""
        return Cost(0, 0)

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        """What it keeps in the pass, by site, or by "SITE|PART" where that is several."""
        return {}

    def update(self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch) -> None:
        """Add a batch of a site to the accumulator of this key."""
        assert isinstance(accumulator, BlockedTally)
        accumulator.update(batch)

    def passing(self, setup: ProbeSetup) -> tuple[str, ...]:
        """Further sites that it must see as they pass (`see`); asked after `accumulators`."""
        return ()

    def see(self, setup: ProbeSetup, batch: SiteBatch) -> None:
        """One of the `passing` sites passes: called before any `update` of that site."""

    def again(self, setup: ProbeSetup, own: Mapping[str, Accumulator]) -> dict[str, Callable[[SiteBatch], None]]:
        """After a pass: by site, who must see the same text once more, if anybody. `own` are its accumulators."""
        return {}

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        """The rows of the result. A value that is not defined is None; the row's `notes` then get the field's reason."""
        raise NotImplementedError

    def noted(self, row: Cells) -> Cells:
        """The row with `notes` that give the reason of every undefined value, and of every number without an interval."""
        given = row.get("notes")
        notes = list(given) if isinstance(given, list) else []
        bare: dict[str, list[str]] = {}
        for name, value in row.items():
            field = self.fields.get(name.removesuffix(WITHOUT))
            if field is None:
                continue
            if value is None:
                notes.append(f"{name} is not defined: {field.undefined or 'nothing to compute it from'}")
            elif isinstance(value, int | float) and row.get(f"{name}_interval") is None:
                bare.setdefault(field.interval or "three blocks of text are needed", []).append(name)
        if row.get("null") != "gaussian":
            notes += [f"no interval of {', '.join(names)}: {reason}" for reason, names in bare.items()]
        return row | {"notes": notes}


PROBES: Registry[type[Probe]] = Registry("probe", "headscan.geometry.probes")
"""Every probe by its name: the files of headscan/geometry/probes, and those of plug-ins."""


def suffixed(row: Mapping[str, Cell]) -> Cells:
    """NAME and NAME_interval as NAME_without_first and NAME_without_first_interval.

    >>> suffixed({"a": 1, "a_interval": [0, 2]})
    {'a_without_first': 1, 'a_without_first_interval': [0, 2]}
    """
    return {
        f"{name.removesuffix('_interval')}{WITHOUT}{'_interval' if name.endswith('_interval') else ''}": value
        for name, value in row.items()
    }


def tally_row(
    tally: BlockedTally, function: Callable[[Tally], dict[str, float | None]], fields: Mapping[str, Field]
) -> Cells:
    """The numbers of a tally by `function`, each with its interval from the blocks of windows left out.

    Where the tally has sums without position 0, NAME_without_first and its interval come too.
    """
    parts, whole = tally.parts(), tally.total()
    variants = [("", whole, parts)]
    if any(name.endswith(REST) for name in whole.sums):
        variants.append((WITHOUT, whole.view(REST), [part.view(REST) for part in parts]))
    row: Cells = {}
    for suffix, total, blocks in variants:
        found = function(total)
        sizes = [float(part["tokens" if "tokens" in part.sums else "pairs"]) for part in blocks]
        others = [function(total.without(part)) for part in blocks] if len(blocks) > 2 else []
        bounds = {name: fields[name].range if name in fields else (None, None) for name in found}
        row |= with_intervals(found, others, sizes, bounds, suffix=suffix)
    return row
