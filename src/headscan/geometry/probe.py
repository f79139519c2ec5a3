"""What a probe is: a family of numbers that needs more than a cloud's sums, with all that a reader must know beside it.

A measure is a function of one site's `Cloud`. A probe may keep accumulators of its own in the pass, look at the sampled
vectors, the embedding tables or the text's counts, or run the model again; it gives rows for one table of the result,
`document[NAME]`, described in `document["probes"]`.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib import resources
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from headscan.errors import BadInput
from headscan.geometry.interval import left_out
from headscan.geometry.measure import MEASURES, Measure
from headscan.model import Lens
from headscan.statistics import REST, BlockedTally, Cloud, SiteBatch, SiteStatistics, Tally
from headscan.statistics.accumulator import Accumulator
from headscan.text import PairSet

__all__ = ["PROBES", "WITHOUT", "Cost", "Field", "Probe", "ProbeData", "ProbeSetup", "choose", "tally_row"]

Row = dict[str, Any]
WITHOUT = "_without_first"
"""What the name of a number ends in that leaves position 0 of each window out."""


@dataclass(frozen=True)
class Field:
    """One number of a probe's rows: what it is in a sentence, its formula, range, unit, and when it is undefined.

    `interval` says why it has none where it has none; `first`: it comes without position 0 of each window, too.
    """

    title: str
    sentence: str
    formula: str = ""
    range: tuple[float | None, float | None] = (None, None)
    unit: str = ""
    undefined: str = ""
    interval: str = ""
    first: bool = False

    @classmethod
    def read(cls, *, range: str = "to", **words: Any) -> Field:
        """From the words of a .toml file, where the range is written '0 to 1', '0 to', 'to 0' or not at all.

        >>> Field.read(title="share", sentence="A share.", range="0 to").range
        (0.0, None)
        """
        low, high = (float(part) if part.strip() else None for part in f" {range} ".split(" to "))
        return cls(range=(low, high), **words)


@dataclass(frozen=True)
class Cost:
    """What a probe will take, beside the pass itself: floating-point operations and bytes held at once."""

    operations: float
    bytes: float

    @property
    def seconds(self) -> float:
        """On this machine, from the speed of one matrix product measured once."""
        return self.operations / speed()

    def __str__(self) -> str:
        return f"about {max(self.seconds, 1):.0f} s and {max(self.bytes, 1e6) / 1e6:.0f} MB"


@cache
def speed() -> float:
    """Floating-point operations a second of this machine, by a product of 768 x 768 in float32 (best of three)."""
    a = torch.randn(768, 768)
    times = []
    for _ in range(4):
        clock = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - clock)
    # Elementwise work, softmax and float64 run slower than the product alone: a third of it is what probes were seen to get.
    return 2 * 768**3 / min(times) / 3


@dataclass
class ProbeSetup:
    """What a probe may look at before the pass: the model, the sites of the scan, the text's expected length in tokens."""

    lens: Lens
    sites: tuple[str, ...]
    context: int
    tokens: int | None
    skip_first: int = 0
    seed: int = 0
    device: torch.device | str = "cpu"
    pairs: tuple[PairSet, ...] = ()

    @cached_property
    def last(self) -> str:
        """The site that the head reads: the final norm, or the last block where there is none."""
        return self.lens.default_sites[-1]


@dataclass
class ProbeData:
    """What a probe may look at after the pass: the clouds by site, the accumulators of its own, sample, counts, ids."""

    clouds: dict[str, Cloud]
    own: dict[str, Accumulator]
    sample: dict[str, Tensor]
    counts: np.ndarray
    windows: Tensor  # ids of the first windows [w, T]
    statistics: dict[str, SiteStatistics] = field(default_factory=dict)
    count_parts: list[np.ndarray] = field(default_factory=list)  # `counts` by blocks of windows
    blocks: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))  # of the sample: block of windows [k]
    first: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))  # of the sample: at position 0 [k]


class Probe:
    """Subclass it with a `name`, and put its words into the .toml file beside its module.

    Attributes:
        name: the key of its rows in the result. title, sentence: for the page. docs: its page under docs/measures.
        function: dotted name of the function that computes it, for the link to its source.
        literature: where it was published. fields: the numbers in its rows, by name.
        sample: how many sampled vectors of each site it needs. expensive: left out of `--measures all`.
        position: what it does about position 0 of each window, in a sentence.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str]
    group: ClassVar[str]
    sentence: ClassVar[str]
    docs: ClassVar[str]
    function: ClassVar[str]
    literature: ClassVar[str]
    fields: ClassVar[dict[str, Field]]
    sample: ClassVar[int]
    expensive: ClassVar[bool]
    position: ClassVar[str]

    def __init_subclass__(cls) -> None:
        words = _words(cls.__module__)[cls.name]
        for key in ("title", "group", "sentence", "docs", "function", "literature", "position"):
            setattr(cls, key, words[key])
        cls.sample, cls.expensive = words.get("sample", 0), words.get("expensive", False)
        cls.fields = {name: Field.read(**field) for name, field in words["fields"].items()}
        PROBES[cls.name] = cls()

    def reason(self, setup: ProbeSetup) -> str | None:
        """Why this model has no such rows, or None where it has."""
        return None

    def cost(self, setup: ProbeSetup) -> Cost:
        """An estimate; asked of expensive probes before they start."""
        return Cost(0, 0)

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        """What it keeps in the pass, by site."""
        return {}

    def update(self, setup: ProbeSetup, key: str, accumulator: Any, batch: SiteBatch) -> None:
        """Add a batch of a site to the accumulator of this key."""
        accumulator.update(batch)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Row]:
        """The rows of the result. A value that is not defined is None, and the row's `notes` say why."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        fields = {
            name: {
                "title": f.title, "sentence": f.sentence, "formula": f.formula, "range": list(f.range), "unit": f.unit,
                "undefined": f.undefined, "interval": f.interval, "first": f.first,
            }
            for name, f in self.fields.items()
        }  # fmt: skip
        return {
            "name": self.name, "title": self.title, "group": self.group, "sentence": self.sentence, "docs": self.docs,
            "function": self.function, "literature": self.literature, "expensive": self.expensive,
            "position": self.position, "fields": fields,
        }  # fmt: skip

    def noted(self, row: Row) -> Row:
        """The row with `notes` that give the reason of every undefined value, and of every number without an interval."""
        notes = list(row.get("notes", []))
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


@cache
def _words(module: str) -> dict[str, Any]:
    """The .toml file beside a module of probes."""
    package, _, name = module.rpartition(".")
    return tomllib.loads((resources.files(package) / f"{name}.toml").read_text(encoding="utf-8"))


PROBES: dict[str, Probe] = {}
"""Every probe by its name, in the order of the page."""


def choose(measures: str | Iterable[str] | None) -> tuple[list[Measure], list[Probe]]:
    """The measures and probes that `--measures` names.

    None: the core measures only. `all`: everything but what is expensive. `expensive`: everything. Else globs, separated
    by commas, of measures, probes, their groups or `PROBE.FIELD`; the core measures are always there.
    Raises BadInput where a glob matches nothing.

    >>> [m.name for m in choose("drift")[0]][-1], choose("drift")[1], choose(None)[1]
    ('drift', [], [])
    """
    parts = [] if measures is None else measures.split(",") if isinstance(measures, str) else list(measures)
    globs = [part.strip() for part in parts if part.strip()]
    ordered = sorted(MEASURES.values(), key=lambda m: not m.core)  # the core first, each part in its own order
    chosen = {m.name for m in ordered if m.core}
    probes: set[str] = set()
    for glob in globs:
        if glob in ("all", "expensive"):
            chosen |= set(MEASURES)
            probes |= {p.name for p in PROBES.values() if glob == "expensive" or not p.expensive}
            continue
        found = {m.name for m in MEASURES.values() if fnmatchcase(m.name, glob) or fnmatchcase(m.group, glob)}
        hits = {
            p.name
            for p in PROBES.values()
            if any(fnmatchcase(name, glob) for name in (p.name, p.group, *(f"{p.name}.{f}" for f in p.fields)))
        }
        if not found and not hits:
            raise BadInput(
                f"No measure matches '{glob}'; there are: all, expensive, "
                f"{', '.join([*(m.name for m in ordered), *PROBES])}."
            )
        chosen |= found
        probes |= hits
    return [m for m in ordered if m.name in chosen], [p for p in PROBES.values() if p.name in probes]


def tally_row(
    tally: BlockedTally, function: Callable[[Tally], dict[str, float | None]], fields: dict[str, Field]
) -> Row:
    """The numbers of a tally by `function`, each with the jackknife's interval over its blocks of windows.

    Where the tally has sums without position 0, NAME_without_first and its interval come too.
    """
    parts, whole = tally.parts(), tally.total()
    variants = [("", whole, parts)]
    if any(name.endswith(REST) for name in whole.sums):
        variants.append((WITHOUT, whole.view(REST), [part.view(REST) for part in parts]))
    row: Row = {}
    for suffix, total, blocks in variants:
        found = function(total)
        sizes = [float(part["tokens" if "tokens" in part.sums else "pairs"]) for part in blocks]
        others = [function(total.without(part)) for part in blocks] if len(blocks) > 2 else []
        for name, value in found.items():
            bounds = fields[name].range if name in fields else (None, None)
            row[name + suffix] = value
            row[f"{name}{suffix}_interval"] = (
                left_out(value, [other[name] for other in others], sizes, bounds=bounds) if others else None
            )
    return row
