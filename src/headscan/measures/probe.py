"""Probes: families of numbers that need more than a cloud's sums, with all that a reader must know
beside them.

A measure is a function of one site's `Cloud`. A probe may have accumulators of its own in the pass,
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
from headscan.states.estimate import operations_a_second
from headscan.statistics import Accumulator, Cloud, SiteBatch, SiteStatistics, Tally
from headscan.statistics.tally import REST, BlockedTally
from headscan.statistics.uncertainty import Cells, Floats, jackknife, with_intervals
from headscan.text import PairSet


@dataclass(frozen=True)
class Cost:
    """The cost of a probe beside the pass itself: floating-point operations, and bytes
    of memory.
    """

    operations: float
    bytes: float

    @property
    def seconds(self) -> float:
        """The time on this machine, from the speed of one matrix product measured once."""
        return self.operations / speed()

    def __str__(self) -> str:
        return f"about {max(self.seconds, 1):.0f} s and {max(self.bytes, 1e6) / 1e6:.0f} MB"


@cache
def speed() -> float:
    """Return the floating-point operations a second that probes reach on this machine.

    Elementwise work, softmax and float64 run slower than the product alone: probes were measured to
    reach a third of it.
    """
    return operations_a_second() / 3


@dataclass
class ProbeSetup:
    """The data that a probe may read before the pass.

    They are the source, the sites of the scan, and the text's expected length in tokens.
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
        """The number of times that each token id [V] stands in the text.

        The text is read once more for it, without the model. None where no ids are known.
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
        blocks = [site for site in self.sites if is_block(site)]
        return (blocks or self.sites)[-1]

    @property
    def lens(self) -> Lens:
        assert self.source.lens is not None
        return self.source.lens

    @property
    def head(self) -> LinearHead:
        """The head as a linear map of states; a probe's `reason` must make sure that it is one."""
        assert self.lens.traits.linear_head is not None
        return self.lens.traits.linear_head

    def width(self, site: str) -> int:
        """Return the width of the vectors at a site."""
        return self.source.width(site)

    @cached_property
    def last(self) -> str:
        """The site that the head reads: the final norm, or the last block where there is none."""
        return [site for site in self.source.default_sites if not self.source.pooled(site)][-1]


@dataclass(frozen=True)
class Clouds(Mapping[str, Cloud]):
    """The finished clouds of all positions, by site in the order of depth.

    Each is made when it is looked up, and not stored.
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
    """The data that a probe may read after the pass.

    Attributes:
        clouds: the clouds by site.
        own: the probe's own accumulators, by their keys.
        sample: the sampled vectors by site, and their token ids as "id".
        counts: the number of times that each token id stands in the text [V].
        windows: the ids of the first windows [w, T].
        statistics: the sums by site.
        count_parts: `counts` by blocks of windows.
        blocks: the block of text of each sampled vector [n].
        first: whether each sampled vector stood at position 0 [n].
    """

    clouds: Mapping[str, Cloud]
    own: dict[str, Accumulator]
    sample: dict[str, Tensor]
    counts: npt.NDArray[np.int64]
    windows: Tensor
    statistics: dict[str, SiteStatistics] = field(default_factory=dict)
    count_parts: list[npt.NDArray[np.int64]] = field(default_factory=list)
    blocks: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    first: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))


def tables(setup: ProbeSetup) -> dict[str, Floats]:
    """Return the input embedding table and, where it is another, the output's; float64 [V, d].

    Rows behind the last one that a token has are left out.
    """
    inputs = setup.lens.input_embeddings
    outputs = setup.lens.output_embeddings
    named = {"input embeddings": inputs}
    if outputs is not None and outputs.data_ptr() == inputs.data_ptr():
        named = {"tied embeddings": outputs}
    elif outputs is not None:
        named["output embeddings"] = outputs
    rows = setup.lens.token_rows
    return {name: table[:rows].detach().double().cpu().numpy() for name, table in named.items()}


class Probe:
    """The parent of all probes. A subclass with `words` is registered.

    It stands in a file of headscan/measures or of a plug-in.

    >>> PROBES["rogue"].words.title
    'Rogue dimensions'
    """

    words: ClassVar[ProbeWords]
    passes: ClassVar[int] = 1
    """The number of times that it reads the text, the scan's own pass included."""
    needs: ClassVar[Literal["model", "tokens", "vectors"]] = "model"
    """The input that it needs: a model, stored states with their token ids, or vectors alone."""

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

    def reason(self, _setup: ProbeSetup) -> str | None:
        """Return why this model has no such rows, or None where it has."""
        return None

    def cost(self, _setup: ProbeSetup) -> Cost:
        """Return an estimate of the cost; expensive probes announce it before they start."""
        return Cost(0, 0)

    def accumulators(self, _setup: ProbeSetup) -> dict[str, Accumulator]:
        """Return the accumulators of the pass, by site, or by "SITE|PART" where a site
        has several.
        """
        return {}

    def update(
        self, _setup: ProbeSetup, _key: str, accumulator: Accumulator, batch: SiteBatch
    ) -> None:
        """Add a batch of a site to the accumulator of this key, by default a tally."""
        assert isinstance(accumulator, BlockedTally)
        accumulator.update(batch)

    def passing(self, _setup: ProbeSetup) -> tuple[str, ...]:
        """Return further sites whose states go to `see`; called after `accumulators`."""
        return ()

    def see(self, setup: ProbeSetup, batch: SiteBatch) -> None:
        """Read the states of one of the `passing` sites, before any `update` of that site."""

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        """Return the rows of the result.

        A value that is not defined is None; the row's `notes` then get the field's reason.
        """
        raise NotImplementedError

    def noted(self, row: Cells) -> Cells:
        """Return the row with `notes` that explain every undefined value, and every number without
        an interval.
        """
        row_notes = row.get("notes")
        notes = list(row_notes) if isinstance(row_notes, list) else []
        names_by_reason: dict[str, list[str]] = {}
        for name, value in row.items():
            field = self.fields.get(name.removesuffix(WITHOUT_FIRST))
            if field is None:
                continue
            if value is None:
                reason = field.undefined or "nothing to compute it from"
                notes.append(f"{name} is not defined: {reason}")
            elif isinstance(value, int | float) and row.get(f"{name}_interval") is None:
                reason = field.interval or "three blocks of text are needed"
                names_by_reason.setdefault(reason, []).append(name)
        if row.get("null") != "gaussian":
            for reason, names in names_by_reason.items():
                notes.append(f"no interval of {', '.join(names)}: {reason}")
        return row | {"notes": notes}


PROBES: Registry[type[Probe]] = Registry("probe", "headscan.measures")
"""Every probe by its name: the files of headscan/measures, and those of plug-ins."""


def suffixed(row: Mapping[str, Cell]) -> Cells:
    """Return the row with NAME_without_first and NAME_without_first_interval for each NAME.

    >>> suffixed({"a": 1, "a_interval": [0, 2]})
    {'a_without_first': 1, 'a_without_first_interval': [0, 2]}
    """
    cells: Cells = {}
    for name, value in row.items():
        if name.endswith("_interval"):
            name = name.removesuffix("_interval")
            cells[f"{name}{WITHOUT_FIRST}_interval"] = value
        else:
            cells[f"{name}{WITHOUT_FIRST}"] = value
    return cells


def tally_row(
    tally: BlockedTally,
    function: Callable[[Tally], dict[str, float | None]],
    fields: Mapping[str, Field],
) -> Cells:
    """Return the numbers of a tally by `function`, with intervals from blocks of windows left out.

    Where the tally has sums without position 0, there are NAME_without_first and its interval, too.
    """
    parts = tally.parts()
    overall = tally.total()
    variants = [("", overall, parts)]
    if any(name.endswith(REST) for name in overall.sums):
        later_parts = [part.view(REST) for part in parts]
        variants.append((WITHOUT_FIRST, overall.view(REST), later_parts))
    row: Cells = {}
    for suffix, total, blocks in variants:
        numbers = function(total)
        left_out = []
        if len(blocks) > 2:
            left_out = [function(total.without(part)) for part in blocks]
        size = "tokens" if "tokens" in total.sums else "pairs"
        sizes = [float(part[size]) for part in blocks]
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
    """Return NAME and NAME_interval over blocks of rows, and both without position 0.

    `groups` are the numbers 2·block + (at position 0) of groups of rows, `sizes` their numbers of
    rows, and `value` gives the number of some of the groups.
    """
    blocks = groups // 2
    cells: Cells = {}
    for suffix, part in (("", groups >= 0), (WITHOUT_FIRST, groups % 2 == 0)):
        owners = np.unique(blocks[part])
        estimate = value(part)
        left_out = [value(part & (blocks != owner)) for owner in owners]
        counts = [float(sizes[part & (blocks == owner)].sum()) for owner in owners]
        cells[f"{name}{suffix}"] = estimate
        cells[f"{name}{suffix}_interval"] = jackknife(estimate, left_out, counts, bounds=bounds)
    return cells


def sampled_rows(
    data: ProbeData, fields: Mapping[str, Field], measure: Callable[[Floats], Cells], points: int
) -> list[Cells]:
    """Return one row for each site, by `measure` of at most `points` sampled vectors [n, d], and a
    last one of Gaussian noise.

    For the intervals the vectors of one block of the text after another are left out, so `measure`
    runs once more for each block.
    """
    rows: list[Cells] = []
    shape = (0, 0)
    for site in data.clouds:
        states = data.sample.get(site)
        row: Cells = {"site": site} | dict.fromkeys(fields)
        if states is not None:
            x = states[:points].double().numpy()
            row |= measure(x)
            shape = max(shape, x.shape)
            row |= _sampled_intervals(row, x, data.blocks[: len(x)], fields, measure)
        rows.append(row)
    if shape[0]:
        noise = np.random.default_rng(list(shape)).standard_normal(shape)
        null: Cells = {"site": f"{shape[0]} x {shape[1]}", "null": "gaussian"}
        rows.append(null | measure(noise))
    return rows


def _sampled_intervals(
    row: Cells,
    x: Floats,
    blocks: npt.NDArray[np.int64],
    fields: Mapping[str, Field],
    measure: Callable[[Floats], Cells],
) -> Cells:
    """Return the NAME_interval of the fields of a row, from vectors [n, d] and their blocks [n]."""
    numbers, sizes = np.unique(blocks, return_counts=True)
    parts = [measure(x[blocks != block]) for block in numbers]
    cells: Cells = {}
    for name in fields:
        left_out = [_number(part[name]) for part in parts]
        cells[f"{name}_interval"] = jackknife(
            _number(row[name]), left_out, sizes.astype(float), bounds=fields[name].range
        )
    return cells


def _number(value: object) -> float | None:
    """Return a value that is a float, or None."""
    return value if isinstance(value, float) else None
