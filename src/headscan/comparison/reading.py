"""The same tokens in several models: their vectors side by side, as the text passes, whatever cuts it into tokens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headscan.comparison.covariance import principal
from headscan.run import BadInput
from headscan.scanner.differences import Difference, Estimates, differences
from headscan.scanner.examine import SUFFIXES, site_cells
from headscan.scanner.settings import choose
from headscan.states import VectorSource
from headscan.statistics import Blocks, Reservoir, SiteStatistics, Sums
from headscan.statistics.errors import Errors
from headscan.statistics.gram import CrossMoments
from headscan.statistics.linearisation import Linearisation
from headscan.text import Batch

Integers = npt.NDArray[np.int64]
Watch = Callable[[str, Tensor, Batch], None]
REACH = 40  # bits of a key that say where in its document a token ends


@dataclass(frozen=True)
class Passed:
    """Tokens of one model as they pass: `keys` [n], ascending, by which they are found in other models, their windows,
    positions and documents [n], vectors [n, d] of each site, and the ids [B, T] of the windows with these `numbers`."""

    keys: Integers
    windows: Integers
    positions: Integers
    documents: Integers
    states: Sequence[Tensor]
    numbers: Integers
    ids: Integers

    def part(self, index: Integers | slice) -> Passed:
        """Some of the tokens."""
        chosen = index if isinstance(index, slice) else torch.from_numpy(index)
        states = [rows[chosen.to(rows.device) if isinstance(chosen, Tensor) else chosen] for rows in self.states]
        where = [one[index] for one in (self.keys, self.windows, self.positions, self.documents)]
        own = np.isin(self.numbers, where[1])
        return Passed(where[0], where[1], where[2], where[3], states, self.numbers[own], self.ids[own])

    def joined(self, other: Passed) -> Passed:
        """These and the ones that follow."""

        def both(one: Integers, two: Integers) -> Integers:
            return np.concatenate([one, two])

        return Passed(
            both(self.keys, other.keys), both(self.windows, other.windows), both(self.positions, other.positions),
            both(self.documents, other.documents),
            [torch.cat([one, two]) for one, two in zip(self.states, other.states, strict=True)],
            both(self.numbers, other.numbers), both(self.ids, other.ids),
        )  # fmt: skip


@dataclass(frozen=True)
class Aligned:
    """The same n tokens in all models: the first one's windows, positions and documents [n], whole windows of it (with
    `numbers` and `ids` [B, T]), and vectors [n, d] of each site of each model."""

    windows: Integers
    positions: Integers
    documents: Integers
    states: Sequence[Sequence[Tensor]]
    numbers: Integers
    ids: Integers


def passed(
    source: VectorSource, sites: Sequence[str], *, skip_first: int, by_text: bool, watch: Watch | None = None
) -> Iterator[Passed]:
    """One source, a batch at a time, without the first positions of each window (of windows of one token none is left out).

    `by_text`: tokens are found again by the character at which they end (end-of-text tokens, which end nowhere, are left
    out, and of several that end a character's bytes all but the last); else by window and position. `watch` sees every
    site's vectors [B, T, d] as they pass, and the batch.
    Raises BadInput where a vector is NaN or infinite.
    """
    skipped = skip_first if source.context > 1 else 0
    for batch in source.batches():
        found: dict[str, Tensor] = {}

        def keep(site: str, states: Tensor, found: dict[str, Tensor] = found, batch: Batch = batch) -> None:
            if watch is not None:
                watch(site, states, batch)
            rows = states.detach()[:, skipped:].flatten(0, 1)
            found[site] = rows.clone() if rows.dtype == torch.float64 else rows.to(torch.float32, copy=True)
            if not bool(torch.isfinite(rows).all()):
                raise BadInput(
                    f"{source.name} gives NaN or infinite values at site {site}: nothing can be compared there."
                )

        source.visit(batch, sites, keep)
        states = [found[site] for site in sites]
        numbers, length = batch.indices, batch.ids.shape[1]
        places = np.arange(skipped, length)
        documents = batch.documents[:, skipped:].ravel()
        keys = (numbers[:, None] * source.context + places).ravel()
        whole = Passed(
            keys, np.repeat(numbers, len(places)), np.tile(places, len(numbers)), documents, states, numbers, batch.ids
        )
        if not by_text:
            yield whole
            continue
        assert batch.ends is not None
        ends = batch.ends[:, skipped:].ravel()
        keys = (documents << REACH) + ends
        real = np.flatnonzero(ends >= 0)
        last = np.append(keys[real][1:] != keys[real][:-1], True) if len(real) else np.zeros(0, dtype=bool)
        yield replace(whole, keys=keys).part(real[last])


def spilled(reader: Iterator[Passed], done: Callable[[], None]) -> Iterator[Passed]:
    """A reader that runs to its end first, its vectors written to temporary files, and is then read from there.

    `done` is called in between: a model makes room for the next one.
    """
    with tempfile.TemporaryDirectory(prefix="headscan-compare-") as folder:
        rest: list[Passed] = []
        for part in reader:
            named = {str(u): rows.cpu().contiguous() for u, rows in enumerate(part.states)}
            save_file(named, str(Path(folder, f"{len(rest)}.safetensors")))
            rest.append(Passed(part.keys, part.windows, part.positions, part.documents, (), part.numbers, part.ids))
        done()
        for number, part in enumerate(rest):
            path = Path(folder, f"{number}.safetensors")
            held = load_file(str(path))
            path.unlink()
            states = [held[str(u)] for u in range(len(held))]
            yield Passed(part.keys, part.windows, part.positions, part.documents, states, part.numbers, part.ids)


class _Buffer:
    """What one reader has given and the others have not reached."""

    def __init__(self, reader: Iterator[Passed]) -> None:
        self.reader, self.ended, self.last = reader, False, -1
        self.held: Passed | None = None

    def pull(self) -> None:
        part = next(self.reader, None)
        if part is None:
            self.ended = True
            return
        self.held = part if self.held is None or not len(self.held.keys) else self.held.joined(part)
        self.last = int(part.keys[-1]) if len(part.keys) else self.last

    def take(self, limit: int) -> Passed:
        """The tokens up to a key, which leave the buffer."""
        assert self.held is not None
        count = int(np.searchsorted(self.held.keys, limit, side="right"))
        if count == len(self.held.keys):
            taken, self.held = self.held, None
            return taken
        taken, self.held = self.held.part(slice(0, count)), self.held.part(slice(count, None))
        return taken


def aligned(readers: Sequence[Iterator[Passed]], *, by_place: bool = False) -> Iterator[Aligned]:
    """The tokens that all models have, in whole windows of the first one: whoever is behind in the text goes on.

    Memory: about a batch of each model's vectors. The text ends where the shortest reading does. With `by_place` windows
    of one number are the same: BadInput where their token ids, as far as they are known, are not.
    """
    buffers = [_Buffer(reader) for reader in readers]
    while True:
        behind = min(buffers, key=lambda one: one.last)
        last = behind.ended
        if last:
            limit = behind.last
        else:
            behind.pull()
            limit = _whole(buffers[0], min(one.last for one in buffers))
        if limit >= 0 and all(one.held is not None for one in buffers):
            parts = [one.take(limit) for one in buffers]
            if by_place:
                _check_ids(parts)
            yield from _common(parts)
        if last:
            return


def _whole(first: _Buffer, bound: int) -> int:
    """The last key of the first model's windows that lie wholly within the bound; −1 for none."""
    if first.held is None or not len(first.held.keys):
        return -1
    keys, windows = first.held.keys, first.held.windows
    count = int(np.searchsorted(keys, bound, side="right"))
    if 0 < count < len(keys) and windows[count] == windows[count - 1]:
        count = int(np.searchsorted(windows, windows[count]))
    return int(keys[count - 1]) if count else -1


def _check_ids(parts: Sequence[Passed]) -> None:
    for part in parts[1:]:
        _, one, two = np.intersect1d(parts[0].numbers, part.numbers, return_indices=True)
        mine, theirs = parts[0].ids[one], part.ids[two]
        if len(one) and (mine.shape != theirs.shape or bool(((mine != theirs) & (mine >= 0) & (theirs >= 0)).any())):
            raise BadInput(
                "The sources hold vectors of different tokens: they are not of the same text in the same windows."
            )


def _common(parts: Sequence[Passed]) -> Iterator[Aligned]:
    """What all parts have in common."""
    first = parts[0]
    if not all(np.array_equal(part.keys, first.keys) for part in parts[1:]):
        keys = reduce(lambda one, two: np.intersect1d(one, two, assume_unique=True), [part.keys for part in parts])
        parts = [part.part(np.searchsorted(part.keys, keys)) for part in parts]
        first = parts[0]
    if len(first.keys):
        yield Aligned(
            first.windows, first.positions, first.documents, [part.states for part in parts], first.numbers, first.ids
        )


# ---- What one pass over the text leaves of several models: cross-moments, the same of groups of documents, a sample.

GROUPS = 16
"""Groups of consecutive documents (or windows) that intervals leave out, one at a time: between 9 and 16 are occupied."""
DIRECTIONS = 24  # of each site, in which the groups' moments are kept
RUN = 16  # tokens of a sampled window
FEW = 4  # documents in the first batch from which on they, and not windows, are the clusters


@dataclass(frozen=True)
class Sampled:
    """The sample: rows [windows, m, d] of each site, the windows' numbers, ids [windows, T], positions [windows, m] in
    them, and documents [windows]. All is in the order of the text."""

    states: Sequence[Tensor]
    numbers: Tensor
    ids: Tensor
    positions: Tensor
    documents: Tensor


class Gathering:
    """Takes in aligned tokens of several models, in one pass.

    `models[u]` is the model of site u. From the first batch come the points about which sums are taken, and the 24 principal
    components of each site in which groups of documents are told apart.
    """

    def __init__(self, models: Sequence[int], *, sample: int, seed: int):
        self.models, self.sample, self.seed = list(models), sample, seed
        self.begun = False
        self.tokens = 0

    def _begin(self, first: Aligned, rows: Sequence[Tensor]) -> None:
        self.begun = True
        self.moments = CrossMoments(self.models, [x.mean(0, dtype=torch.float64).to(x.dtype) for x in rows])
        self.bases = [principal(x, DIRECTIONS).to(x.dtype) for x in rows]
        self.ends = list(accumulate(basis.shape[1] for basis in self.bases))
        self.groups = Blocks(GROUPS, lambda: Sums(self.ends[-1], device=rows[0].device))
        self.clusters = "documents" if len(np.unique(first.documents)) >= FEW else "windows"
        _, sizes = np.unique(first.windows, return_counts=True)
        self.run = int(min(RUN, max(1, np.median(sizes))))
        self.reservoir = Reservoir(max(2, self.sample // self.run), self.seed)

    def add(self, found: Aligned) -> None:
        """Take in some tokens, whole windows of the first model."""
        states = [rows for model in found.states for rows in model]
        device = states[0].device
        rows = [x.to(device) if x.dtype == torch.float64 else x.to(device).float() for x in states]
        if not self.begun:
            self._begin(found, rows)
        self.tokens += len(found.windows)
        self.moments.update(rows)
        self._groups(found, rows)
        self._offer(found, rows)

    def _groups(self, found: Aligned, rows: Sequence[Tensor]) -> None:
        pilots = self.moments.pilots
        reduced = torch.cat([(x - p) @ b for x, p, b in zip(rows, pilots, self.bases, strict=True)], dim=1)
        units = found.documents if self.clusters == "documents" else found.windows
        self.groups.index(int(units[-1]))  # coarsens once, before any group of this batch is chosen
        number = units // self.groups.size
        cuts = np.flatnonzero(np.diff(number)) + 1
        for part in np.split(np.arange(len(number)), cuts):
            chosen = reduced[int(part[0]) : int(part[-1]) + 1]
            self.groups[int(units[part[0]])].merge(Sums.of_rows(chosen))

    def _offer(self, found: Aligned, rows: Sequence[Tensor]) -> None:
        numbers, starts, sizes = np.unique(found.windows, return_index=True, return_counts=True)
        whole = np.flatnonzero(sizes >= self.run)
        if not len(whole):
            return
        chosen = self.reservoir.offer(numbers[whole].tolist(), 1)
        if not len(chosen):
            return
        kept = whole[chosen.rows]
        places = np.linspace(0, 1, self.run) if self.run > 1 else np.zeros(1)
        index = starts[kept][:, None] + np.rint(places * (sizes[kept][:, None] - 1)).astype(np.int64)
        at = torch.from_numpy(index)
        where = np.searchsorted(found.numbers, numbers[kept])
        self.reservoir.put(
            chosen,
            {f"state.{u}": x[at.to(x.device).flatten()].unflatten(0, at.shape) for u, x in enumerate(rows)}
            | {
                "ids": torch.from_numpy(found.ids[where]),
                "position": torch.from_numpy(found.positions[index]),
                "document": torch.from_numpy(found.documents[index[:, 0]]),
            },
        )

    def sampled(self) -> Sampled:
        """The sample, in the order of the text."""
        numbers = self.reservoir.places[:, 0]
        order = numbers.argsort()
        columns = {name: column[order] for name, column in self.reservoir.columns.items()}
        states = [columns[f"state.{u}"] for u in range(len(self.models))] if columns else []
        return Sampled(states, numbers[order], *(columns.get(n, numbers) for n in ("ids", "position", "document")))


# ---- The measures of shape of every model in the same pass, for their paired differences.


class Shapes:
    """Keeps a scan's statistics of every model's sites; `differences` are those that a scan of all would have."""

    def __init__(self, skip_first: int) -> None:
        self.skip_first = skip_first
        self.measures, _ = choose(None)
        self.kept: dict[str, dict[str, SiteStatistics]] = {}

    def watch(self, name: str, source: VectorSource, sites: Sequence[str]) -> Watch:
        """What is to see every batch of a source."""
        derive = Linearisation(self.measures)
        device = "cpu" if source.device.type == "mps" else source.device
        skipped = self.skip_first if source.context > 1 else 0
        own = {
            site: SiteStatistics(source.width(site), skip_first=skipped, device=device, derive=derive) for site in sites
        }
        self.kept[name] = own

        def see(site: str, states: Tensor, batch: Batch) -> None:
            ids, documents = torch.from_numpy(batch.ids), torch.from_numpy(batch.documents)
            own[site].update(states, batch.indices.tolist(), documents, ids)

        return see

    def differences(self) -> list[Difference]:
        """Of the sites of one name, between models."""
        found = [
            Estimates(name, site, site_cells(site, statistics, self.measures)[0], Errors.of(statistics, self.measures))
            for name, sites in self.kept.items()
            for site, statistics in sites.items()
        ]
        return [one for one in differences(found, list(SUFFIXES.values())) if one.model_a != one.model_b]
