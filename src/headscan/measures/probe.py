"""What a probe is: a family of numbers that needs more than a cloud's sums, with all that a reader
must know beside it.

A measure is a function of one site's `Cloud`. A probe may keep accumulators of its own in the pass,
look at the sampled vectors, the embedding tables or the text's counts, or run the model again; it
gives rows for one table of the result.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.measures.measure import WITHOUT_FIRST, Field, ProbeWords
from headscan.model import Lens
from headscan.model.sites import is_block
from headscan.model.traits import LinearHead
from headscan.run import Cell, Registry
from headscan.states import VectorSource
from headscan.states.writing import operations_a_second
from headscan.statistics import Accumulator, Cloud, SiteBatch, SiteStatistics, Tally
from headscan.statistics.tally import REST, BlockedTally
from headscan.statistics.uncertainty import Cells, Floats, jackknife, with_intervals
from headscan.text import PairSet


@dataclass(frozen=True)
class Cost:
    """What a probe will take, beside the pass itself: floating-point operations and bytes held at
    once.
    """

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
    """Floating-point operations a second of this machine, as probes were seen to get them."""
    # Elementwise work, softmax and float64 run slower than the product alone: a third of it is what
    # probes were seen to get.
    return operations_a_second() / 3


@dataclass
class ProbeSetup:
    """What a probe may look at before the pass: the source, the sites of the scan, the text's
    expected length in tokens.
    """

    source: VectorSource
    sites: tuple[str, ...]
    context: int
    tokens: int | None
    skip_first: int = 0
    seed: int = 0
    device: torch.device | str = "cpu"
    pairs: tuple[PairSet, ...] = ()

    @cached_property
    def counts(self) -> npt.NDArray[np.int64] | None:
        """How often each token id [V] stands in the text, before the pass: it is read once more,
        without the model. None where no ids are known.
        """
        if not self.source.vocabulary:
            return None
        counts = np.zeros(self.source.vocabulary, dtype=np.int64)
        for batch in self.source.batches():
            counts += np.bincount(batch.ids[:, self.skip_first :].ravel(), minlength=len(counts))
        return counts

    @cached_property
    def deepest(self) -> str:
        """The last block of the scan's sites, or the last of them where no block is among them."""
        return ([site for site in self.sites if is_block(site)] or [*self.sites])[-1]

    @property
    def lens(self) -> Lens:
        assert self.source.lens is not None
        return self.source.lens

    @property
    def head(self) -> LinearHead:
        """The head as a linear map of states, for probes whose `reason` has seen that there is one."""
        assert self.lens.traits.linear_head is not None
        return self.lens.traits.linear_head

    def width(self, site: str) -> int:
        """Numbers of a vector at a site."""
        return self.source.width(site)

    @cached_property
    def last(self) -> str:
        """The site that the head reads: the final norm, or the last block where there is none."""
        return [site for site in self.source.default_sites if not self.source.pooled(site)][-1]


@dataclass(frozen=True)
class Clouds(Mapping[str, Cloud]):
    """The finished clouds of all positions, by site in the order of depth; each is made when it is
    asked for, and let go.
    """

    statistics: Mapping[str, SiteStatistics]
    sites: tuple[str, ...]

    def __getitem__(self, site: str) -> Cloud:
        return Cloud.of_sums(self.statistics[site].all)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sites)

    def __len__(self) -> int:
        return len(self.sites)


@dataclass
class ProbeData:
    """What a probe may look at after the pass: the clouds by site, the accumulators of its own,
    sample, counts, ids.
    """

    clouds: Mapping[str, Cloud]
    own: dict[str, Accumulator]
    sample: dict[str, Tensor]
    counts: npt.NDArray[np.int64]
    windows: Tensor  # ids of the first windows [w, T]
    statistics: dict[str, SiteStatistics] = field(default_factory=dict)
    # `counts` by blocks of windows
    count_parts: list[npt.NDArray[np.int64]] = field(default_factory=list)
    blocks: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    first: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))


def tables(setup: ProbeSetup) -> dict[str, Floats]:
    """The input embedding table and, where it is another, the output's; float64 [V, d]."""
    named = {"input embeddings": setup.lens.input_embeddings}
    if (output := setup.lens.output_embeddings) is not None:
        if output.data_ptr() == setup.lens.input_embeddings.data_ptr():
            named = {"tied embeddings": output}
        else:
            named["output embeddings"] = output
    return {name: table.detach().double().cpu().numpy() for name, table in named.items()}


class Probe:
    """Subclass it with `words`, in a file of headscan/measures or of a plug-in, and it is
    registered.

    >>> PROBES["rogue"].words.title
    'Rogue dimensions'
    """

    words: ClassVar[ProbeWords]
    passes: ClassVar[int] = 1
    """How often it reads the text, the scan's own pass included."""
    needs: ClassVar[Literal["model", "tokens", "vectors"]] = "model"
    """What it cannot do without: a model, or of stored states their token ids, or vectors alone."""

    def __init_subclass__(cls) -> None:
        if "words" in cls.__dict__:
            if not cls.words.function:
                cls.words = replace(cls.words, function=f"{cls.__module__}.{cls.__qualname__}")
            PROBES.add(cls.words.name, cls)

    @property
    def name(self) -> str:
        return self.words.name

    @property
    def fields(self) -> Mapping[str, Field]:
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

    def update(
        self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch
    ) -> None:
        """Add a batch of a site to the accumulator of this key; by default of a tally."""
        assert isinstance(accumulator, BlockedTally)
        accumulator.update(batch)

    def passing(self, setup: ProbeSetup) -> tuple[str, ...]:
        """Further sites that it must see as they pass (`see`); asked after `accumulators`."""
        return ()

    def see(self, setup: ProbeSetup, batch: SiteBatch) -> None:
        """One of the `passing` sites passes: called before any `update` of that site."""

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        """The rows of the result. A value that is not defined is None; the row's `notes` then get
        the field's reason.
        """
        raise NotImplementedError

    def noted(self, row: Cells) -> Cells:
        """The row with `notes` that give the reason of every undefined value, and of every number
        without an interval.
        """
        row_notes = row.get("notes")
        notes = list(row_notes) if isinstance(row_notes, list) else []
        bare: dict[str, list[str]] = {}
        for name, value in row.items():
            if (field := self.fields.get(name.removesuffix(WITHOUT_FIRST))) is None:
                continue
            if value is None:
                notes.append(
                    f"{name} is not defined: {field.undefined or 'nothing to compute it from'}"
                )
            elif isinstance(value, int | float) and row.get(f"{name}_interval") is None:
                bare.setdefault(field.interval or "three blocks of text are needed", []).append(
                    name
                )
        if row.get("null") != "gaussian":
            notes += [
                f"no interval of {', '.join(names)}: {reason}" for reason, names in bare.items()
            ]
        return row | {"notes": notes}


PROBES: Registry[type[Probe]] = Registry("probe", "headscan.measures")
"""Every probe by its name: the files of headscan/measures, and those of plug-ins."""


def suffixed(row: Mapping[str, Cell]) -> Cells:
    """NAME and NAME_interval as NAME_without_first and NAME_without_first_interval.

    >>> suffixed({"a": 1, "a_interval": [0, 2]})
    {'a_without_first': 1, 'a_without_first_interval': [0, 2]}
    """
    return {
        f"{name.removesuffix('_interval')}{WITHOUT_FIRST}{'_interval' if name.endswith('_interval') else ''}": value
        for name, value in row.items()
    }


def tally_row(
    tally: BlockedTally,
    function: Callable[[Tally], dict[str, float | None]],
    fields: Mapping[str, Field],
) -> Cells:
    """The numbers of a tally by `function`, each with its interval from the blocks of windows left
    out. Where the tally has sums without position 0, NAME_without_first and its interval come too.
    """
    parts = tally.parts()
    overall = tally.total()
    variants = [("", overall, parts)]
    if any(name.endswith(REST) for name in overall.sums):
        variants.append((WITHOUT_FIRST, overall.view(REST), [part.view(REST) for part in parts]))
    row: Cells = {}
    for suffix, total, blocks in variants:
        numbers = function(total)
        sizes = [float(part["tokens" if "tokens" in part.sums else "pairs"]) for part in blocks]
        left_out = [function(total.without(part)) for part in blocks] if len(blocks) > 2 else []
        bounds = {name: fields[name].range if name in fields else (None, None) for name in numbers}
        row |= with_intervals(numbers, left_out, sizes, bounds, suffix=suffix)
    return row


def over_blocks(
    name: str,
    groups: npt.NDArray[np.int64],
    sizes: npt.NDArray[Any],
    bounds: tuple[float, float],
    value: Callable[[npt.NDArray[np.bool_]], float | None],
) -> Cells:
    """NAME of groups 2·block + (at position 0) of rows, `value` of some of them, with its interval
    over the blocks; and without position 0.
    """
    cells: Cells = {}
    for suffix, part in (("", groups >= 0), (WITHOUT_FIRST, groups % 2 == 0)):
        owners = np.unique(groups[part] // 2)
        estimate = value(part)
        left_out = [value(part & (groups // 2 != owner)) for owner in owners]
        counts = [float(sizes[part & (groups // 2 == owner)].sum()) for owner in owners]
        cells[f"{name}{suffix}"] = estimate
        cells[f"{name}{suffix}_interval"] = jackknife(estimate, left_out, counts, bounds=bounds)
    return cells


def sampled_rows(
    data: ProbeData, fields: Mapping[str, Field], measure: Callable[[Floats], Cells], points: int
) -> list[Cells]:
    """One row a site of what `measure` says of at most `points` sampled vectors [n, d], and a last
    one of Gaussian noise. Intervals come from leaving the vectors of one block of the text out
    after another, so `measure` runs once a block more.
    """
    rows: list[Cells] = []
    shape = (0, 0)
    for site in data.clouds:
        states = data.sample.get(site)
        row: Cells = {"site": site} | dict.fromkeys(fields)
        if states is not None:
            x = states[:points].double().numpy()
            blocks = data.blocks[: min(points, len(states))]
            row |= measure(x)
            shape = max(shape, x.shape)
            names, counts = np.unique(blocks, return_counts=True)
            parts = [measure(x[blocks != block]) for block in names]
            sizes = [float(count) for count in counts]
            for name, field in fields.items():
                left_out = [_number(part[name]) for part in parts]
                row[f"{name}_interval"] = jackknife(
                    _number(row[name]), left_out, sizes, bounds=field.range
                )
        rows.append(row)
    if shape[0]:
        noise = np.random.default_rng(list(shape)).standard_normal(shape)
        null: Cells = {"site": f"{shape[0]} x {shape[1]}", "null": "gaussian"}
        rows.append(null | measure(noise))
    return rows


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None
