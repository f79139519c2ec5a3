"""Which measures and probes a scan takes."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from headscan.geometry.explained import place
from headscan.geometry.measure import MEASURES, Measure
from headscan.geometry.probe import PROBES, Probe
from headscan.run import BadInput

__all__ = ["choose", "ordered_measures", "ordered_probes"]


def ordered_measures() -> list[Measure]:
    """All measures, the core first, as they stand in tables."""
    return sorted(MEASURES.values(), key=lambda one: (not one.words.core, one.words.order, one.name))


def ordered_probes() -> list[type[Probe]]:
    """All probes, as they stand on the page."""
    return sorted(PROBES.values(), key=lambda one: (one.words.order, place(one.words.group), one.words.name))


def choose(measures: str | Sequence[str] | None) -> tuple[list[Measure], list[Probe]]:
    """The measures and probes that `--measures` names.

    None: the core measures only. `all`: everything but what is expensive. `expensive`: everything. Else globs, separated
    by commas, of measures, probes, `PROBE.FIELD`, or groups (of which what is expensive is left out); the core measures are
    always there.
    Raises BadInput where a glob matches nothing.

    >>> [m.name for m in choose("drift")[0]][-1], choose("drift")[1], choose(None)[1]
    ('drift', [], [])
    >>> [probe.name for probe in choose("anatomy")[1]]              # not anatomy_heads, which is expensive
    ['anatomy', 'common_direction']
    """
    parts = [] if measures is None else measures.split(",") if isinstance(measures, str) else list(measures)
    every, probes = ordered_measures(), ordered_probes()
    chosen = {one.name for one in every if one.words.core}
    for glob in (part.strip() for part in parts if part.strip()):
        if glob in ("all", "expensive"):
            hits = {one.name for one in every}
            hits |= {one.words.name for one in probes if glob == "expensive" or not one.words.expensive}
        else:
            hits = {one.name for one in every if fnmatchcase(one.name, glob) or fnmatchcase(one.words.group, glob)}
            for one in probes:
                words = one.words
                names = [words.name, *(f"{words.name}.{field}" for field in words.fields)]
                names += [] if words.expensive else [words.group]
                hits |= {words.name} if any(fnmatchcase(name, glob) for name in names) else set()
        if not hits:
            known = ", ".join([*(one.name for one in every), *(one.words.name for one in probes)])
            raise BadInput(f"No measure matches '{glob}'; there are: all, expensive, {known}.")
        chosen |= hits
    return [one for one in every if one.name in chosen], [one() for one in probes if one.words.name in chosen]
