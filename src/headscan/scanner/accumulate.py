"""One pass of a model over a text: every statistic of every site, in one accumulator that can be
stored and merged.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from headscan.run import BadInput, uninterrupted
from headscan.states import VectorSource
from headscan.statistics import NonFinite, Reservoir, SiteBatch, SiteStatistics, TokenCounts
from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.counts import BlockedCounts, FirstWindows
from headscan.statistics.reservoir import Chosen
from headscan.statistics.sinks import lengths
from headscan.statistics.transfer import fetched
from headscan.statistics.uncertainty import Floats
from headscan.text import Batch

NEIGHBOURS = 12
"""So many tokens on either side of a sampled token are stored, to show it in its context."""

SAMPLE_BYTES = 64 * 2**20
"""The sampled vectors of all sites may take so many bytes."""

Watchers: TypeAlias = Mapping[str, list[Callable[[SiteBatch], None]]]
"""By site, the functions that are called with each batch of its states."""

Columns: TypeAlias = dict[str, Callable[[], Tensor]]
"""Columns of the sample by name; calling one waits until the GPU has sent it."""


class PendingWork:
    """Steps that wait until a GPU has sent their numbers; they run in the order they were added.

    The sums of a site are added when the next site arrives, so that the copies from the GPU and the
    model's own work overlap. On a CPU nothing ever waits.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self._steps)

    def add(self, step: Callable[[], None]) -> None:
        """Let a step wait behind all others."""
        self._steps.append(step)

    def finish(self) -> None:
        """Run all steps that wait."""
        steps = self._steps
        self._steps = []
        for step in steps:
            step()


class Accumulation(Accumulator):
    """The statistics that one pass leaves behind.

    `sites` (statistics by site name), token `counts`, a `sample` of positions and `extras`,
    accumulators of probes by their keys. `windows` counts the windows that were read, `next` is the
    number after the last. A stored one is read by a fresh one (`restored`).

    `complete` is False while a batch is partly added. `pending` is the work that waits for a GPU,
    which `state` does not contain.
    """

    def __init__(
        self,
        widths: Mapping[str, int],
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
        positionless: Sequence[str] = (),
        bounded: bool = False,
    ) -> None:
        self.sites = {}
        for site, width in widths.items():
            has_first = site not in positionless
            self.sites[site] = SiteStatistics(
                width,
                lead=1 if has_first else 0,
                skip_first=skip_first if has_first else 0,
                lengths=(lengths or {}).get(site, 1),
                device=device,
                intervals=intervals,
                bounded=bounded,
            )
        self.counts = TokenCounts(vocabulary)
        affordable = sample_bytes // (4 * max(1, sum(widths.values())))
        self.sample = Reservoir(min(sample, affordable), seed)
        self.extras = dict(extras or {})
        self.windows = 0
        self.next = 0
        self.complete = True
        self.pending = PendingWork()

    def put_sample(self, positions: Chosen, columns: Columns) -> None:
        """Enter positions into the sample, now or as soon as the GPU has sent their vectors."""

        def put() -> None:
            self.sample.put(positions, {name: column() for name, column in columns.items()})

        if self.pending:
            self.pending.add(put)
        else:
            put()

    def merge(self, other: "Accumulation") -> None:
        """Add the statistics of another part of the text."""
        self.windows += other.windows
        self.next = max(self.next, other.next)
        self.counts.merge(other.counts)
        self.sample.merge(other.sample)
        for site, statistics in self.sites.items():
            statistics.merge(other.sites[site])
        for key, extra in self.extras.items():
            extra.merge(other.extras[key])

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed pass needs, as tensors by name."""
        state = {"windows": torch.tensor(self.windows), "next": torch.tensor(self.next)}
        state |= prefixed("counts", self.counts.state())
        state |= prefixed("sample", self.sample.state())
        for site, statistics in self.sites.items():
            state |= prefixed(f"sites.{site}", statistics.state())
        for key, extra in self.extras.items():
            state |= prefixed(f"extras.{key}", extra.state())
        return state

    def restored(self, state: dict[str, Tensor]) -> Self:
        """Return a pass with the statistics of a stored state."""
        accumulation = copy(self)
        accumulation.pending = PendingWork()
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
    """Add batches of windows of a source to `result`.

    One site's states of one batch are in memory at a time, beside the model's own; on a GPU those
    of two, as a site is added when the next one comes. A shorter window at the end (the remainder
    of stored states) enters the sums only.

    Args:
        after: called when a batch is completely in `result`: the moment to show progress or to
            store the state.
        watch: by site, functions that read each batch too (the probes), without the first
            `skip_first` positions.
        passing: by site, functions that see each batch before those of `watch`.

    Raises BadInput, naming site and position, where a state is NaN or infinite; nothing of that
    batch is then counted.
    """
    counter = _BatchCounter(source, result, watch or {}, passing or {}, skip_first)
    for batch in batches:
        if batch.ids.shape[1] <= skip_first:
            continue
        counter.add(batch)
        if after is not None:
            after(batch)
    result.pending.finish()


@dataclass
class _BatchCounter:
    """Adds the batches of a source to an accumulation and shows them to the probes."""

    source: VectorSource
    result: Accumulation
    watch: Watchers
    passing: Watchers
    skip_first: int

    def __post_init__(self) -> None:
        self.sites = list(dict.fromkeys([*self.result.sites, *self.watch, *self.passing]))
        self.token_counters: list[FirstWindows | BlockedCounts] = []
        if self.source.vocabulary:
            for extra in self.result.extras.values():
                if isinstance(extra, FirstWindows | BlockedCounts):
                    self.token_counters.append(extra)

    def add(self, batch: Batch) -> None:
        """Add a batch: the states of all sites, its tokens, and its sampled positions."""
        result = self.result
        current = _CurrentBatch(self, batch)
        with uninterrupted():
            result.complete = False
            self.source.visit(batch, self.sites, current.take)
            if self.source.vocabulary:
                result.counts.update(current.ids)
            if not current.remainder:
                for counter in self.token_counters:
                    counter.update(current.ids, current.windows)
            if len(current.sampled):
                result.put_sample(current.sampled, current.columns)
            result.windows += len(current.windows)
            result.next = current.windows[-1] + 1
            result.complete = True


class _CurrentBatch:
    """The batch that is being added: its tokens, and the columns of its sampled positions.

    `remainder`: whether it is the shorter window at the end of stored states.
    """

    def __init__(self, counter: _BatchCounter, batch: Batch) -> None:
        self.counter = counter
        self.source = counter.source
        self.result = counter.result
        self.batch = batch
        self.ids = torch.from_numpy(np.ascontiguousarray(batch.ids))
        self.windows: list[int] = batch.indices.tolist()
        length = batch.ids.shape[1]
        self.remainder = length < self.source.context and not self.source.alone
        self.sampled = self.result.sample.offer(self.windows, length)
        contexts = _contexts(self.ids, self.sampled.rows, self.sampled.positions)
        self.columns: Columns = {
            "id": fetched(self.sampled.of(self.ids)),
            "context": fetched(contexts),
        }

    def take(self, site: str, states: Tensor) -> None:
        """Count the states [B, T, width] of one site, and show them to the probes."""
        if self.source.pooled(site):  # one vector a window, of no token
            documents = self.batch.documents[:, :1]
            self._count(site, states, torch.from_numpy(documents), None)
            return
        counted = site in self.result.sites
        if counted:
            ids = self.ids if self.source.vocabulary else None
            self._count(site, states, torch.from_numpy(self.batch.documents), ids)
        if not self.remainder:
            self._show(site, states)
        if len(self.sampled) and (counted or site in self.counter.watch):
            self.columns[f"state.{site}"] = fetched(self.sampled.of(states), torch.float32)

    def _show(self, site: str, states: Tensor) -> None:
        counter = self.counter
        watchers = (*counter.passing.get(site, ()), *counter.watch.get(site, ()))
        if not watchers:
            return
        at_site = SiteBatch(
            site,
            states,
            self.ids,
            self.windows,
            skip_first=counter.skip_first,
            documents=torch.from_numpy(self.batch.documents),
        )
        for watcher in watchers:
            watcher(at_site)

    def _count(self, site: str, states: Tensor, documents: Tensor, ids: Tensor | None) -> None:
        """Add states to the statistics of a site; on a GPU, when the next site comes."""
        statistics = self.result.sites[site]
        on_cpu = statistics.device.type == "cpu"
        # A copy on a GPU, because the model may overwrite the memory of its states.
        states = states.detach().to(statistics.device, copy=not on_cpu)
        norms = fetched(lengths(states))
        add = partial(self._add, site, states, norms, documents, ids)
        if on_cpu:
            add()
        else:
            self.result.pending.finish()
            self.result.pending.add(add)

    def _add(
        self,
        site: str,
        states: Tensor,
        norms: Callable[[], Tensor],
        documents: Tensor,
        ids: Tensor | None,
    ) -> None:
        try:
            self.result.sites[site].update(
                states, self.windows, documents, ids, remainder=self.remainder, norms=norms()
            )
        except NonFinite as error:
            live = self.source.lens is not None
            advice = "Try --dtype float32, or look for broken weights."
            dtype = str(states.dtype).removeprefix("torch.")
            raise BadInput(
                f"{self.source.name} gives NaN or infinite values at site {site} (window "
                f"{error.window}, position {error.position}, in {dtype}); nothing was averaged. "
                f"{advice if live else 'They are stored so.'}"
            ) from None


def _contexts(ids: Tensor, rows: Floats, positions: Floats) -> Tensor:
    """Return the ids around each position [n, 2·NEIGHBOURS + 1]; −1 beyond the window's ends."""
    padded = torch.nn.functional.pad(ids, (NEIGHBOURS, NEIGHBOURS), value=-1)
    columns = torch.from_numpy(positions)[:, None] + torch.arange(2 * NEIGHBOURS + 1)
    return padded[torch.from_numpy(rows)[:, None], columns]
