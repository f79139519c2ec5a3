"""The probes of one pass: who sees which site, what they keep, and their rows in the result."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch

from headscan.geometry.explained import Cells
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.geometry.settings import Scanning
from headscan.geometry.sweep import Sweep
from headscan.run.rows import Row
from headscan.states import VectorSource
from headscan.statistics import Accumulator, BlockedCounts, Cloud, FirstWindows, SiteBatch

__all__ = ["ProbeRunner"]

WINDOWS, COUNTS = "windows:", "counts:"
SAMPLE_BLOCKS = 8


class ProbeRunner:
    """The chosen probes of one model.

    Probes that the model cannot have are left out, and `reasons` say why; expensive ones are announced.

    Attributes:
        accumulators: what they keep, by "PROBE:SITE", for the sweep. sample: how many vectors of a site they need.
        seconds: how long each one's rows took.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        source: VectorSource,
        sites: tuple[str, ...],
        settings: Scanning,
        *,
        announce: Callable[[str], None],
    ):
        device = torch.device("cpu") if source.device.type == "mps" else source.device
        self.setup = ProbeSetup(
            source, sites, source.context, source.tokens, settings.skip_first, settings.seed, device,
            pairs=settings.pair_sets(),
        )  # fmt: skip
        self.reasons: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.probes: list[Probe] = []
        self.accumulators: dict[str, Accumulator] = {}
        for probe in probes:
            reason = _lacks(probe, source) or probe.reason(self.setup)
            if reason is not None:
                self.reasons[probe.name] = reason
                announce(f"{source.name} has no {probe.name}: {reason}.")
                continue
            self.probes.append(probe)
            if probe.words.expensive:
                announce(f"{probe.name} of {source.name} is expensive: {probe.cost(self.setup)}.")
            for key, accumulator in probe.accumulators(self.setup).items():
                self.accumulators[f"{probe.name}:{key}"] = accumulator
        if self.probes and source.vocabulary:
            self.accumulators[WINDOWS] = FirstWindows()
            self.accumulators[COUNTS] = BlockedCounts(source.vocabulary)

    @property
    def sample(self) -> int:
        """How many sampled vectors of each site the probes need."""
        return max((probe.words.sample for probe in self.probes), default=0)

    def watch(self, swept: Sweep) -> dict[str, list[Callable[[SiteBatch], None]]]:
        """Who sees what, by site: each probe's accumulator in the sweep (which may have been read from a store)."""
        found: dict[str, list[Callable[[SiteBatch], None]]] = defaultdict(list)
        if self.sample:
            found[self.setup.last] = []  # its states are to be sampled, even where `sites` leaves it out
        for probe in self.probes:
            for key, accumulator in self._own(swept, probe).items():
                found[key.split("|")[0]].append(partial(probe.update, self.setup, key, accumulator))
        return dict(found)

    def passing(self) -> dict[str, list[Callable[[SiteBatch], None]]]:
        """Who only looks at what passes, by site."""
        found: dict[str, list[Callable[[SiteBatch], None]]] = defaultdict(list)
        for probe in self.probes:
            for site in probe.passing(self.setup):
                found[site].append(partial(probe.see, self.setup))
        return dict(found)

    @staticmethod
    def _own(swept: Sweep, probe: Probe) -> dict[str, Accumulator]:
        start = f"{probe.name}:"
        return {key.removeprefix(start): own for key, own in swept.extras.items() if key.startswith(start)}

    def again(self, swept: Sweep) -> Iterator[dict[str, list[Callable[[SiteBatch], None]]]]:
        """For every further pass over the text that probes need, who sees what; most need none."""
        for number in range(1, max((probe.passes for probe in self.probes), default=1) + 1):
            watch: dict[str, list[Callable[[SiteBatch], None]]] = defaultdict(list)
            for probe in self.probes:
                # The last round reads nothing more: it only says what the last pass has found.
                for site, update in probe.again(self.setup, self._own(swept, probe)).items():
                    watch[site].append(update)
            if not watch or number == max(probe.passes for probe in self.probes):
                return
            yield dict(watch)

    def rows(self, swept: Sweep, clouds: Mapping[str, Cloud], place: Cells) -> dict[str, list[Row]]:
        """Every probe's rows by its name, each with `place` (model, null) in front."""
        columns = swept.sample.columns
        sample = {name.removeprefix("state."): x for name, x in columns.items() if name.startswith("state.")}
        sample |= {"id": columns["id"]} if "id" in columns else {}
        kept, counted, places = swept.extras.get(WINDOWS), swept.extras.get(COUNTS), swept.sample.places.numpy()
        found: dict[str, list[Row]] = {name: [] for name in self.reasons}
        for probe in self.probes:
            clock = time.monotonic()
            data = ProbeData(
                clouds=clouds,
                own=self._own(swept, probe),
                sample=sample,
                counts=swept.counts.counts.numpy(),
                windows=kept.ids if isinstance(kept, FirstWindows) else torch.zeros(0, 0, dtype=torch.int64),
                statistics=swept.sites,
                count_parts=[part.numpy() for part in counted.parts()] if isinstance(counted, BlockedCounts) else [],
                blocks=places[:, 0] * SAMPLE_BLOCKS // max(1, swept.next),
                first=(places[:, 1] == 0) & (self.setup.skip_first == 0),
            )
            found[probe.name] = [Row(place | probe.noted(row)) for row in probe.rows(self.setup, data)]
            self.seconds[probe.name] = time.monotonic() - clock
        return found


def _lacks(probe: Probe, source: VectorSource) -> str | None:
    """What a probe needs of stored states that these have not."""
    if probe.needs == "model" and source.lens is None:
        return "it looks at the model, and these are stored states"
    if probe.needs != "vectors" and not source.vocabulary:
        return "it needs token ids, which are not stored with these states"
    return None
