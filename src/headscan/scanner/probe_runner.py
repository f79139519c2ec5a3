"""The probes of one pass: the sites that they watch, their accumulators, and their result rows."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.measures.probe import Probe, ProbeData, ProbeSetup
from headscan.model.sites import last_block
from headscan.run import Row
from headscan.scanner.accumulate import SAMPLE_BYTES, Accumulation, Watchers
from headscan.scanner.memory import affordable_lengths
from headscan.states import VectorSource
from headscan.statistics import Cloud, SiteBatch
from headscan.statistics.accumulator import Accumulator
from headscan.statistics.counts import BlockedCounts, FirstWindows
from headscan.statistics.tiles import float64_pays
from headscan.statistics.uncertainty import Cells
from headscan.text import PairSet

WINDOWS = "windows:"
COUNTS = "counts:"
"""The keys of the accumulators that all probes of a pass share."""

SAMPLE_BLOCKS = 8
"""The sampled vectors are of so many consecutive blocks of the text."""

MEASURED_BYTES = 256 * 2**20
"""The sampled vectors of all sites may take so many bytes where probes measure them."""


@dataclass(frozen=True, kw_only=True)
class PassOptions:
    """The options of a scan that all its passes share.

    Attributes:
        skip_first: positions left out at the beginning of each window.
        sample: tokens shown in the picture.
        bounded: whether second moments may be float32 products with a bounded error.
        seed: of the sample, the probes and the Gaussian null.
        pairs: pairs of texts that mean the same, for the probe `alignment`.
    """

    skip_first: int = 0
    sample: int = 600
    bounded: bool = False
    seed: int = 0
    pairs: tuple[PairSet, ...] = ()


class ProbeRunner:
    """The chosen probes of one model.

    Probes that the model cannot have are left out, for the `reasons` by their names; expensive ones
    are announced.

    Attributes:
        accumulators: those of the probes in the pass, by "PROBE:SITE".
        seconds: the time that the rows of each probe took, by its name.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        source: VectorSource,
        sites: tuple[str, ...],
        options: PassOptions,
        *,
        announce: Callable[[str], None],
    ) -> None:
        self.sites = sites
        self.options = options
        # Probes compute in float64, which Apple's GPU does not have.
        device = torch.device("cpu") if source.device.type == "mps" else source.device
        self.setup = ProbeSetup(
            source,
            tuple(site for site in sites if not source.pooled(site)),
            source.context,
            source.tokens,
            options.skip_first,
            options.seed,
            device,
            pairs=options.pairs,
        )
        self.reasons: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.probes: list[Probe] = []
        self.accumulators: dict[str, Accumulator] = {}
        for probe in probes:
            self._include(probe, announce)
        if self.probes and source.vocabulary:
            self.accumulators[WINDOWS] = FirstWindows()
            self.accumulators[COUNTS] = BlockedCounts(source.vocabulary)

    def _include(self, probe: Probe, announce: Callable[[str], None]) -> None:
        source = self.setup.source
        reason = _missing(probe, source) or probe.reason(self.setup)
        if reason is not None:
            self.reasons[probe.name] = reason
            announce(f"{source.name} has no {probe.name}: {reason}.")
            return
        self.probes.append(probe)
        if probe.words.expensive:
            announce(f"{probe.name} of {source.name} is expensive: {probe.cost(self.setup)}.")
        for key, accumulator in probe.accumulators(self.setup).items():
            self.accumulators[f"{probe.name}:{key}"] = accumulator

    @property
    def sample(self) -> int:
        """Return how many sampled vectors of a site the probes need."""
        return max((probe.words.sample for probe in self.probes), default=0)

    def empty_pass(self) -> Accumulation:
        """Return the accumulation of a pass that has read nothing yet.

        It is in float64 throughout where probes take part, and on a device that takes no longer
        for it.
        """
        source = self.setup.source
        options = self.options
        widths = {site: source.width(site) for site in self.sites}
        last = last_block(self.sites)
        return Accumulation(
            widths,
            source.vocabulary,
            skip_first=options.skip_first,
            lengths={last: affordable_lengths(widths[last])},
            sample=max(options.sample, self.sample),
            sample_bytes=MEASURED_BYTES if self.sample else SAMPLE_BYTES,
            extras=self.accumulators,
            seed=options.seed,
            device=self.setup.device,
            intervals=True,
            positionless=[site for site in self.sites if not source.positioned(site)],
            bounded=options.bounded and not self.probes and not float64_pays(self.setup.device),
        )

    def watch(self, accumulated: Accumulation) -> Watchers:
        """Return the functions that update the accumulators of the probes, by site.

        The accumulators are those of the pass, which may have been read from a store.
        """
        watchers: dict[str, list[Callable[[SiteBatch], None]]] = defaultdict(list)
        if self.sample:
            watchers[self.setup.last] = []  # it is sampled, also where `sites` leaves it out
        for probe in self.probes:
            for key, accumulator in _accumulators_of(probe, accumulated).items():
                site = key.split("|")[0]
                watchers[site].append(partial(probe.update, self.setup, key, accumulator))
        return dict(watchers)

    def passing(self) -> Watchers:
        """Return the functions that see further sites as they pass, by site."""
        watchers: dict[str, list[Callable[[SiteBatch], None]]] = defaultdict(list)
        for probe in self.probes:
            for site in probe.passing(self.setup):
                watchers[site].append(partial(probe.see, self.setup))
        return dict(watchers)

    def rows(
        self, accumulated: Accumulation, clouds: Mapping[str, Cloud], leading: Cells
    ) -> dict[str, list[Row]]:
        """Return the rows of every probe by its name, each with the `leading` cells in front."""
        data_of = self._data(accumulated, clouds)
        rows: dict[str, list[Row]] = {name: [] for name in self.reasons}
        for probe in self.probes:
            start = time.monotonic()
            data = data_of(_accumulators_of(probe, accumulated))
            cells = probe.rows(self.setup, data)
            rows[probe.name] = [Row(leading | probe.noted(row)) for row in cells]
            self.seconds[probe.name] = time.monotonic() - start
        return rows

    def _data(
        self, accumulated: Accumulation, clouds: Mapping[str, Cloud]
    ) -> Callable[[dict[str, Accumulator]], ProbeData]:
        """Return a function that makes the data of a probe from the accumulators of its own."""
        sample = accumulated.sample
        vectors = {
            name.removeprefix("state."): column
            for name, column in sample.columns.items()
            if name.startswith("state.")
        }
        if "id" in sample.columns:
            vectors["id"] = sample.columns["id"]
        windows, positions = sample.places.numpy().T
        return partial(
            ProbeData,
            clouds,
            sample=vectors,
            counts=accumulated.counts.counts.numpy(),
            windows=_first_windows(accumulated.extras.get(WINDOWS)),
            statistics=accumulated.sites,
            count_parts=_count_parts(accumulated.extras.get(COUNTS)),
            blocks=windows * SAMPLE_BLOCKS // max(1, accumulated.next),
            first=(positions == 0) & (self.setup.skip_first == 0),
        )


def _accumulators_of(probe: Probe, accumulated: Accumulation) -> dict[str, Accumulator]:
    """Return the accumulators of a probe in a pass, by "SITE" or "SITE|PART"."""
    prefix = f"{probe.name}:"
    accumulators = {}
    for key, accumulator in accumulated.extras.items():
        if key.startswith(prefix):
            accumulators[key.removeprefix(prefix)] = accumulator
    return accumulators


def _first_windows(accumulator: Accumulator | None) -> Tensor:
    """Return the token ids of the first windows [w, T]; none where they were not stored."""
    if isinstance(accumulator, FirstWindows):
        return accumulator.alike
    return torch.zeros(0, 0, dtype=torch.int64)


def _count_parts(accumulator: Accumulator | None) -> list[npt.NDArray[np.int64]]:
    """Return the token counts of each block of windows."""
    if isinstance(accumulator, BlockedCounts):
        return [part.numpy() for part in accumulator.parts()]
    return []


def _missing(probe: Probe, source: VectorSource) -> str | None:
    """Return what a probe needs that stored states do not have; None where nothing is missing."""
    if probe.needs == "model" and source.lens is None:
        return "it looks at the model, and these are stored states"
    if probe.needs != "vectors" and not source.vocabulary:
        return "it needs token ids, which are not stored with these states"
    return None
