"""The measures and probes that a scan takes, chosen by `--measures`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from headscan.measures.measure import MEASURES, Measure, MeasureFunction, name_of, place
from headscan.measures.probe import PROBES, Probe
from headscan.run import BadInput

MeasuresLike = str | Sequence[str | MeasureFunction] | None
"""Globs with commas between them, or a list of globs and of functions of a `Cloud`."""


def ordered_measures() -> list[Measure]:
    """Return all measures in the order of tables: those of the core come first."""
    return sorted(
        MEASURES.values(),
        key=lambda measure: (not measure.words.core, measure.words.order, measure.name),
    )


def ordered_probes() -> list[type[Probe]]:
    """Return all probes in the order of the page."""
    return sorted(
        PROBES.values(),
        key=lambda probe: (probe.words.order, place(probe.words.group), probe.words.name),
    )


def choose(measures: MeasuresLike) -> tuple[list[Measure], list[Probe]]:
    """Return the measures and probes that `--measures` names.

    None: the core measures only. `all`: everything that is not expensive. `expensive`: everything.
    Else globs, separated by commas, of measures, probes, `PROBE.FIELD`, or groups (whose expensive
    members are left out), or a list of globs and of functions of a `Cloud`. The core measures are
    always among them. Raises BadInput where a glob matches nothing.

    >>> [m.name for m in choose("drift")[0]][-1], choose("drift")[1], choose(None)[1]
    ('drift', [], [])
    >>> [probe.name for probe in choose("anatomy")[1]]
    ['anatomy', 'common_direction']
    """
    globs = _globs(measures)  # registers the functions among them
    all_measures = ordered_measures()
    all_probes = ordered_probes()
    names = {measure.name for measure in all_measures if measure.words.core}
    for glob in globs:
        matched = _matched(glob, all_measures, all_probes)
        if not matched:
            known = [measure.name for measure in all_measures]
            known += [probe.words.name for probe in all_probes]
            listed = ", ".join(known)
            raise BadInput(f"No measure matches '{glob}'; there are: all, expensive, {listed}.")
        names |= matched
    chosen_measures = [measure for measure in all_measures if measure.name in names]
    chosen_probes = [probe() for probe in all_probes if probe.words.name in names]
    return chosen_measures, chosen_probes


def _globs(measures: MeasuresLike) -> list[str]:
    """Return the globs that are separated by commas, or listed; BadInput where all are empty."""
    if measures is None:
        return []
    parts = measures.split(",") if isinstance(measures, str) else map(name_of, measures)
    globs = [part.strip() for part in parts if part.strip()]
    if measures and not globs:
        raise BadInput(f"{measures!r} names no measure.")
    return globs


def _matched(glob: str, measures: Sequence[Measure], probes: Sequence[type[Probe]]) -> set[str]:
    """Return the names of the measures and probes that a glob, `all` or `expensive` means."""
    if glob in ("all", "expensive"):
        names = {measure.name for measure in measures}
        for probe in probes:
            if glob == "expensive" or not probe.words.expensive:
                names.add(probe.words.name)
        return names

    names = set()
    for measure in measures:
        if fnmatchcase(measure.name, glob) or fnmatchcase(measure.words.group, glob):
            names.add(measure.name)
    for probe in probes:
        if any(fnmatchcase(name, glob) for name in _names_of_probe(probe)):
            names.add(probe.words.name)
    return names


def _names_of_probe(probe: type[Probe]) -> list[str]:
    """Return the names by which a glob finds a probe: its own, its fields', and its group's."""
    words = probe.words
    fields = [f"{words.name}.{field}" for field in words.fields]
    if words.expensive:
        return [words.name, *fields]
    return [words.name, *fields, words.group]
