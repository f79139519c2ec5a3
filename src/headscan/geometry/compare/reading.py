"""The same tokens in several models: their vectors side by side, as the text passes, whatever cuts it into tokens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headscan.run import BadInput
from headscan.states import VectorSource
from headscan.text import Batch

__all__ = ["Aligned", "Passed", "aligned", "passed", "spilled"]

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
