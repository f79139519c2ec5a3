"""One pass of a model over a text: every statistic of every site, in one accumulator that can be
stored and merged.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from headscan.measures.probe import Probe, ProbeData, ProbeSetup
from headscan.model.sites import last_block
from headscan.run import BadInput, Row, uninterrupted
from headscan.scanner.settings import Scanning, affordable_lengths, choose
from headscan.states import VectorSource
from headscan.statistics import Cloud, NonFinite, Reservoir, SiteBatch, SiteStatistics, TokenCounts
from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.counts import BlockedCounts, FirstWindows
from headscan.statistics.reservoir import Chosen
from headscan.statistics.sinks import lengths
from headscan.statistics.transfer import fetched
from headscan.statistics.uncertainty import Cells, Floats
from headscan.text import Batch

NEIGHBOURS = 12  # tokens kept on either side of a sampled token, to show it in its context
SAMPLE_BYTES = 64 * 2**20  # what the sampled vectors of all sites may take
MEASURED_BYTES = 256 * 2**20  # the same where measures are taken of the sample


Watchers: TypeAlias = Mapping[str, list[Callable[[SiteBatch], None]]]


class Accumulation(Accumulator):
    """What one pass leaves behind.

    `sites` (statistics by site name), token `counts`, a `sample` of positions and `extras`,
    accumulators of probes by their keys. `windows` counts the windows seen, `next` is the number
    after the last. A fresh one reads a stored one (`restored`).
    """

    def __init__(
        self,
        widths: dict[str, int],
        vocabulary: int,
        *,
        skip_first: int = 0,
        sample: int = 600,
        extras: Mapping[str, Accumulator] | None = None,
        sample_bytes: int = SAMPLE_BYTES,
        seed: int = 0,
        device: torch.device | str = "cpu",
        intervals: bool = False,
        lengths: Mapping[str, int] | None = None,
        pooled: Sequence[str] = (),
        bounded: bool = False,
    ):
        statistics = partial(SiteStatistics, device=device, intervals=intervals, bounded=bounded)
        self.sites = {
            site: statistics(
                width, lead=lead, skip_first=skip, lengths=(lengths or {}).get(site, 1)
            )
            for site, width in widths.items()
            for lead, skip in [(0, 0) if site in pooled else (1, skip_first)]
        }
        self.counts = TokenCounts(vocabulary)
        affordable = sample_bytes // (4 * max(1, sum(widths.values())))
        self.sample = Reservoir(min(sample, affordable), seed)
        self.extras = dict(extras or {})
        self.windows = self.next = 0
        self.whole = True  # no batch is half in
        self._late: list[Callable[[], None]] = []

    def settle(self, *then: Callable[[], None]) -> None:
        """Add what waits for a card, which `state` knows nothing of; `then` waits next."""
        late = self._late
        self._late = [*then]
        for step in late:
            step()

    def put(self, chosen: Chosen, columns: Mapping[str, Callable[[], Tensor]]) -> None:
        """Enter positions into the sample, with what waits for a card or now."""
        self._late.append(
            lambda: self.sample.put(chosen, {name: column() for name, column in columns.items()})
        )
        if len(self._late) == 1:
            self.settle()

    def merge(self, other: "Accumulation") -> None:
        self.windows += other.windows
        self.next = max(self.next, other.next)
        self.counts.merge(other.counts)
        self.sample.merge(other.sample)
        for site, statistics in self.sites.items():
            statistics.merge(other.sites[site])
        for key, extra in self.extras.items():
            extra.merge(other.extras[key])

    def state(self) -> dict[str, Tensor]:
        state = {"windows": torch.tensor(self.windows), "next": torch.tensor(self.next)}
        state |= prefixed("counts", self.counts.state())
        state |= prefixed("sample", self.sample.state())
        for site, statistics in self.sites.items():
            state |= prefixed(f"sites.{site}", statistics.state())
        for key, extra in self.extras.items():
            state |= prefixed(f"extras.{key}", extra.state())
        return state

    def restored(self, state: dict[str, Tensor]) -> Self:
        accumulation = copy(self)
        accumulation.windows = int(state["windows"])
        accumulation.next = int(state["next"])
        accumulation.counts = self.counts.restored(unprefixed("counts", state))
        accumulation.sample = self.sample.restored(unprefixed("sample", state))
        accumulation.sites = {
            site: statistics.restored(unprefixed(f"sites.{site}", state))
            for site, statistics in self.sites.items()
        }
        accumulation.extras = {
            key: extra.restored(unprefixed(f"extras.{key}", state))
            for key, extra in self.extras.items()
        }
        return accumulation


def empty_pass(
    source: VectorSource, sites: tuple[str, ...], runner: "ProbeRunner", settings: Scanning
) -> Accumulation:
    """A pass of a scan that has seen nothing; in float64 where it cannot be read again, or makes
    more than the core measures.
    """
    bounded = settings.arithmetic == "bounded" and settings.text != "-" and not runner.probes
    bounded &= all(
        measure.words.core for measure in choose(settings.measures)[0] if measure.spectral
    )
    widths = {site: source.width(site) for site in sites}
    last = last_block(sites)
    return Accumulation(
        widths,
        source.vocabulary,
        skip_first=settings.skip_first,
        lengths={last: affordable_lengths(widths[last])},
        sample=max(settings.sample, runner.sample),
        sample_bytes=MEASURED_BYTES if runner.sample else SAMPLE_BYTES,
        extras=runner.accumulators,
        seed=settings.seed,
        device=runner.setup.device,
        intervals=True,
        pooled=[site for site in sites if source.pooled(site)],
        bounded=bounded,
    )


def accumulate(
    source: VectorSource,
    batches: Iterable[Batch],
    result: Accumulation,
    *,
    after: Callable[[Batch], None] | None = None,
    watch: Watchers | None = None,
    passing: Watchers | None = None,
    skip_first: int = 0,
) -> None:
    """Take batches of windows from a source and add what its sites say to `result`.

    `watch` names, by site, who else is to see each batch (the probes); they get it without the
    first `skip_first` positions, as the statistics do. `passing` names, by site, who only looks at
    what passes, before the others. A shorter window at the end (a rest of stored states) is in the
    sums alone.

    `after` is called when a batch is wholly in `result`: the moment to show progress or to store
    the state. The states of one site of one batch are alive at a time, beside the model's own; on a
    card of two, as a site is added when the next one comes. Raises BadInput, naming site and place,
    where a state is NaN or infinite; nothing of that batch is then counted.
    """
    watch = watch or {}
    passing = passing or {}
    names = list(dict.fromkeys([*result.sites, *watch, *passing]))
    kept = [
        extra for extra in result.extras.values() if isinstance(extra, FirstWindows | BlockedCounts)
    ]
    kept = kept if source.vocabulary else []
    for batch in batches:
        if batch.ids.shape[1] <= skip_first:
            continue
        ids = torch.from_numpy(np.ascontiguousarray(batch.ids))
        windows = batch.indices.tolist()
        rest = batch.ids.shape[1] < source.context and not source.alone
        chosen = result.sample.offer(windows, ids.shape[1])
        columns = {
            "id": fetched(chosen.of(ids)),
            "context": fetched(_contexts(ids, chosen.rows, chosen.positions)),
        }

        def take(
            site: str,
            states: Tensor,
            windows: list[int] = windows,
            ids: Tensor = ids,
            chosen: Chosen = chosen,
            batch: Batch = batch,
            columns: dict[str, Callable[[], Tensor]] = columns,
            rest: bool = rest,
        ) -> None:
            if source.pooled(site):  # one vector a window, of no token
                whole = batch._replace(documents=batch.documents[:, :1])
                return _count(source, result, site, states, whole, None, rest=rest)
            if site in result.sites:
                _count(
                    source,
                    result,
                    site,
                    states,
                    batch,
                    ids if source.vocabulary else None,
                    rest=rest,
                )
            at_site = SiteBatch(
                site,
                states,
                ids,
                windows,
                skip_first=skip_first,
                documents=torch.from_numpy(batch.documents),
            )
            for update in () if rest else (*passing.get(site, ()), *watch.get(site, ())):
                update(at_site)
            if len(chosen) and (site in result.sites or site in watch):
                columns[f"state.{site}"] = fetched(chosen.of(states), torch.float32)

        with uninterrupted():
            result.whole = False
            source.visit(batch, names, take)
            if source.vocabulary:
                result.counts.update(ids)
            for extra in () if rest else kept:
                extra.update(ids, windows)
            if len(chosen):
                result.put(chosen, columns)
            result.windows += len(windows)
            result.next = windows[-1] + 1
            result.whole = True
        if after is not None:
            after(batch)
    result.settle()


def _count(
    source: VectorSource,
    result: Accumulation,
    site: str,
    states: Tensor,
    batch: Batch,
    ids: Tensor | None,
    *,
    rest: bool,
) -> None:
    """Add a batch to a site's statistics, on a card when the next site comes; BadInput where a
    state is NaN or infinite.
    """
    statistics = result.sites[site]
    documents = torch.from_numpy(batch.documents)
    # the model may go on in its memory
    states = states.detach().to(statistics.device, copy=statistics.device.type != "cpu")
    norms = fetched(lengths(states))

    def add() -> None:
        try:
            statistics.update(
                states, batch.indices.tolist(), documents, ids, remainder=rest, norms=norms()
            )
        except NonFinite as error:
            advice = (
                "Try --dtype float32, or look for broken weights."
                if source.lens
                else "They are stored so."
            )
            raise BadInput(
                f"{source.name} gives NaN or infinite values at site {site} (window "
                f"{error.window}, position {error.position}, in "
                f"{str(states.dtype).removeprefix('torch.')}); nothing was averaged. {advice}"
            ) from None

    return add() if statistics.device.type == "cpu" else result.settle(add)


def _contexts(ids: Tensor, rows: Floats, positions: Floats) -> Tensor:
    """The ids around each chosen position [chosen, 2·NEIGHBOURS + 1], −1 beyond the window's ends."""
    padded = torch.nn.functional.pad(ids, (NEIGHBOURS, NEIGHBOURS), value=-1)
    columns = torch.from_numpy(positions)[:, None] + torch.arange(2 * NEIGHBOURS + 1)
    return padded[torch.from_numpy(rows)[:, None], columns]


# ---- The probes of one pass: who sees which site, what they keep, and their rows in the result.

WINDOWS = "windows:"
COUNTS = "counts:"
SAMPLE_BLOCKS = 8


class ProbeRunner:
    """The chosen probes of one model. Those that it cannot have are left out (`reasons`); expensive
    ones are announced.

    `accumulators`: what they keep, by "PROBE:SITE", for the pass; `sample`: how many vectors of a
    site they need; `seconds`: how long each one's rows took.
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
        tokens = tuple(site for site in sites if not source.pooled(site))
        self.setup = ProbeSetup(
            source,
            tokens,
            source.context,
            source.tokens,
            settings.skip_first,
            settings.seed,
            device,
            pairs=settings.pair_sets(),
        )
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
        return max((probe.words.sample for probe in self.probes), default=0)

    def watch(self, accumulated: Accumulation) -> Watchers:
        """Who sees what, by site: each probe's accumulator in the pass (which may have been read
        from a store).
        """
        found: dict[str, list[Callable[[SiteBatch], None]]] = defaultdict(list)
        if self.sample:
            found[
                self.setup.last
            ] = []  # its states are to be sampled, even where `sites` leaves it out
        for probe in self.probes:
            for key, accumulator in self._own(accumulated, probe).items():
                found[key.split("|")[0]].append(partial(probe.update, self.setup, key, accumulator))
        return dict(found)

    def passing(self) -> Watchers:
        """Who only looks at what passes, by site."""
        found: dict[str, list[Callable[[SiteBatch], None]]] = defaultdict(list)
        for probe in self.probes:
            for site in probe.passing(self.setup):
                found[site].append(partial(probe.see, self.setup))
        return dict(found)

    @staticmethod
    def _own(accumulated: Accumulation, probe: Probe) -> dict[str, Accumulator]:
        start = f"{probe.name}:"
        return {
            key.removeprefix(start): own
            for key, own in accumulated.extras.items()
            if key.startswith(start)
        }

    def rows(
        self, accumulated: Accumulation, clouds: Mapping[str, Cloud], place: Cells
    ) -> dict[str, list[Row]]:
        """Every probe's rows by its name, each with `place` (model, null) in front."""
        columns = accumulated.sample.columns
        sample = {
            name.removeprefix("state."): x
            for name, x in columns.items()
            if name.startswith("state.")
        }
        sample |= {"id": columns["id"]} if "id" in columns else {}
        kept = accumulated.extras.get(WINDOWS)
        counted = accumulated.extras.get(COUNTS)
        places = accumulated.sample.places.numpy()
        counts = accumulated.counts.counts.numpy()
        windows = (
            kept.alike if isinstance(kept, FirstWindows) else torch.zeros(0, 0, dtype=torch.int64)
        )
        parts = (
            [part.numpy() for part in counted.parts()] if isinstance(counted, BlockedCounts) else []
        )
        blocks = places[:, 0] * SAMPLE_BLOCKS // max(1, accumulated.next)
        first = (places[:, 1] == 0) & (self.setup.skip_first == 0)
        found: dict[str, list[Row]] = {name: [] for name in self.reasons}
        for probe in self.probes:
            clock = time.monotonic()
            own = self._own(accumulated, probe)
            data = ProbeData(
                clouds, own, sample, counts, windows, accumulated.sites, parts, blocks, first
            )
            found[probe.name] = [
                Row(place | probe.noted(row)) for row in probe.rows(self.setup, data)
            ]
            self.seconds[probe.name] = time.monotonic() - clock
        return found


def _lacks(probe: Probe, source: VectorSource) -> str | None:
    """What a probe needs of stored states that these have not."""
    if probe.needs == "model" and source.lens is None:
        return "it looks at the model, and these are stored states"
    if probe.needs != "vectors" and not source.vocabulary:
        return "it needs token ids, which are not stored with these states"
    return None
