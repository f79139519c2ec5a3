"""The same tokens in several models: their vectors side by side, as the text passes, whatever cuts
it into tokens.
"""

import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
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
from headscan.comparison.settings import ComparisonSettings
from headscan.model import Lens
from headscan.model.sentence import SENTENCE
from headscan.run import BadInput, ModelRecord, TextRecord
from headscan.scanner.sources import Subject
from headscan.statistics import Blocks, Reservoir, Sums
from headscan.statistics.hsic import CrossMoments

Integers = npt.NDArray[np.int64]
REACH = 40  # bits of a key that say where in its document a token ends


@dataclass(frozen=True)
class Passed:
    """Tokens of one model as they pass: `places` [n, 4], of each the key by which it is found in
    other models (ascending), its window, position and document; vectors [n, d] of each site; and
    the ids [B, T] of the windows with these `numbers`.
    """

    places: Integers
    states: Sequence[Tensor]
    numbers: Integers
    ids: Integers

    @property
    def keys(self) -> Integers:
        return self.places[:, 0]

    @property
    def windows(self) -> Integers:
        return self.places[:, 1]

    def part(self, index: Integers | slice) -> "Passed":
        chosen = index if isinstance(index, slice) else torch.from_numpy(index)
        states = [
            rows[chosen.to(rows.device) if isinstance(chosen, Tensor) else chosen]
            for rows in self.states
        ]
        own = np.isin(self.numbers, self.windows[index])
        return Passed(self.places[index], states, self.numbers[own], self.ids[own])

    def joined(self, following: "Passed") -> "Passed":
        states = [torch.cat(pair) for pair in zip(self.states, following.states, strict=True)]
        arrays = (
            (getattr(self, name), getattr(following, name)) for name in ("places", "numbers", "ids")
        )
        places, numbers, ids = (np.concatenate(pair) for pair in arrays)
        return Passed(places, states, numbers, ids)


class SourceReader:
    """One source read a batch at a time, without the first positions of each window (of windows of
    one token none is left out).

    `by_text`: tokens are found again by the character at which they end (end-of-text tokens, which
    end nowhere, are left out, and of several that end a character's bytes all but the last); else
    by window and position. What it says of the source (`sites`, `record`, `tokens`, `text`) is
    there once `batches` has begun, or ended. `controls` makes the model with fresh random weights,
    once for each of the draws, where `draws` are wanted.
    """

    record: ModelRecord
    text: TextRecord

    def __init__(
        self, subject: Subject, settings: ComparisonSettings, *, by_text: bool, draws: int
    ):
        self.subject = subject
        self.settings = settings
        self.by_text = by_text
        self.draws = draws
        self.sites: tuple[str, ...] = ()
        self.tokens = 0
        self.controls: list[Callable[[], Lens]] = []

    def batches(self) -> Generator[Passed, None, None]:
        """The pass; nothing is read or loaded before its first batch. BadInput where a vector is
        NaN or infinite.
        """
        sentences = self.settings.sites == SENTENCE  # by document, whatever cuts it into tokens
        by_text = self.by_text and not sentences
        source = self.subject.source(self.settings.text, ends=by_text)
        self.sites = tuple(
            site for site in self.subject.sites(source) if sentences or not source.pooled(site)
        )
        if sentences and not source.pooled(SENTENCE):
            raise BadInput(
                f"{source.name} has no vectors of texts at the site {SENTENCE}: choose other "
                "--sites."
            )
        if not self.sites:
            raise BadInput(f"Vectors of texts are compared by themselves: --sites {SENTENCE}.")
        before = -1
        self.record = replace(source.record(), name=self.subject.name)
        if source.lens is not None and not sentences:
            seeds = range(self.settings.seed + 1, self.settings.seed + 1 + self.draws)
            self.controls = [source.lens.twin(seed) for seed in seeds]
        skipped = self.settings.skip_first if source.context > 1 and not sentences else 0
        reach = 1 << REACH // 2 if source.alone else source.context
        try:
            for batch in source.batches():
                rows_of: dict[str, Tensor] = {}

                def keep(site: str, states: Tensor, rows_of: dict[str, Tensor] = rows_of) -> None:
                    rows = states.detach()[:, skipped:].flatten(0, 1)
                    rows_of[site] = (
                        rows.clone()
                        if rows.dtype == torch.float64
                        else rows.to(torch.float32, copy=True)
                    )
                    if not bool(torch.isfinite(rows).all()):
                        place = f"at site {site}: nothing can be compared there"
                        raise BadInput(f"{source.name} gives NaN or infinite values {place}.")

                source.visit(batch, self.sites, keep)
                if sentences:  # the first window of each document: encode reads no further
                    first = np.flatnonzero(np.diff(batch.documents[:, 0], prepend=before))
                    before = int(batch.documents[-1, 0])
                    numbers = batch.documents[first, 0]
                    states = [rows_of[site][torch.from_numpy(first)] for site in self.sites]
                    self.tokens += len(first)
                    table = np.stack([numbers, numbers, 0 * numbers, numbers], axis=1)
                    yield Passed(table, states, numbers, np.full((len(first), 1), -1))
                    continue
                places = np.arange(skipped, batch.ids.shape[1])
                windows, positions = (
                    grid.ravel() for grid in np.meshgrid(batch.indices, places, indexing="ij")
                )
                documents = batch.documents[:, skipped:].ravel()
                table = np.stack(
                    [windows * reach + positions, windows, positions, documents], axis=1
                ).astype(np.int64)
                self.tokens += len(table)
                short = source.context - batch.ids.shape[1] if source.alone else 0
                ids = np.pad(batch.ids, ((0, 0), (0, short)), constant_values=-1)
                whole = Passed(table, [rows_of[site] for site in self.sites], batch.indices, ids)
                if by_text:
                    assert batch.ends is not None
                    ends = batch.ends[:, skipped:].ravel()
                    table[:, 0] = (documents << REACH) + ends
                    real = np.flatnonzero(ends >= 0)
                    last = (
                        np.append(table[real[1:], 0] != table[real[:-1], 0], True)
                        if len(real)
                        else real > 0
                    )
                    whole = whole.part(real[last])
                yield whole
        finally:
            self.text = source.text()

    def redrawn(self, draw: int, sample: "Sampled") -> list[Tensor]:
        """The sampled vectors of each site with fresh random weights."""
        lens = self.controls[draw]()
        held: list[list[Tensor]] = [[] for _ in self.sites]
        step = 1 if bool((sample.ids < 0).any()) else 16
        for ids, at in zip(sample.ids.split(step), sample.positions.split(step), strict=True):
            states = lens.run(ids[:, (ids >= 0).all(0)].to(lens.device), sites=self.sites)
            for rows, site in zip(held, self.sites, strict=True):
                rows.append(
                    states[site]
                    .float()
                    .cpu()
                    .gather(1, at[..., None].expand(-1, -1, states[site].shape[2]))
                )
        return [torch.cat(parts) for parts in held]


def spilled(reader: Iterator[Passed], done: Callable[[], None]) -> Generator[Passed, None, None]:
    """A reader that runs to its end first, its vectors written to temporary files, and is then read
    from there. `done` is called in between: a model makes room for the next one.
    """
    with tempfile.TemporaryDirectory(prefix="headscan-compare-") as folder:
        rest: list[Passed] = []
        for part in reader:
            named = {str(u): rows.cpu().contiguous() for u, rows in enumerate(part.states)}
            save_file(named, str(Path(folder, f"{len(rest)}.safetensors")))
            rest.append(replace(part, states=()))
        done()
        for number, part in enumerate(rest):
            path = Path(folder, f"{number}.safetensors")
            held = load_file(str(path))
            path.unlink()
            yield replace(part, states=[held[str(u)] for u in range(len(held))])


class _Buffer:
    """What one reader has given and the others have not reached."""

    def __init__(self, reader: Iterator[Passed]) -> None:
        self.reader = reader
        self.ended = False
        self.last = -1
        self.held: Passed | None = None

    def pull(self) -> None:
        if (part := next(self.reader, None)) is None:
            self.ended = True
            return
        self.held = part if self.held is None or not len(self.held.keys) else self.held.joined(part)
        self.last = int(part.keys[-1]) if len(part.keys) else self.last

    def take(self, limit: int) -> Passed:
        """The tokens up to a key, which leave the buffer."""
        assert self.held is not None
        count = int(np.searchsorted(self.held.keys, limit, side="right"))
        if count == len(self.held.keys):
            taken = self.held
            self.held = None
            return taken
        taken = self.held.part(slice(0, count))
        self.held = self.held.part(slice(count, None))
        return taken


def aligned(
    readers: Sequence[Iterator[Passed]], *, by_place: bool = False
) -> Iterator[list[Passed]]:
    """The tokens that all models have, of each model, in whole windows of the first: whoever is
    behind in the text goes on.

    Memory: about a batch of each model's vectors. The text ends where the shortest reading does.
    With `by_place` windows of one number are the same: BadInput where their token ids, as far as
    they are known, are not.
    """
    buffers = [_Buffer(reader) for reader in readers]
    while True:
        behind = min(buffers, key=lambda buffer: buffer.last)
        last = behind.ended
        if last:
            limit = behind.last
        else:
            behind.pull()
            limit = _whole(buffers[0], min(buffer.last for buffer in buffers))
        if limit >= 0 and all(buffer.held is not None for buffer in buffers):
            parts = [buffer.take(limit) for buffer in buffers]
            if by_place:
                _check_ids(parts)
            if not all(np.array_equal(part.keys, parts[0].keys) for part in parts[1:]):
                keys = reduce(
                    lambda a, b: np.intersect1d(a, b, assume_unique=True),
                    [part.keys for part in parts],
                )
                parts = [part.part(np.searchsorted(part.keys, keys)) for part in parts]
            if len(parts[0].keys):
                yield parts
        if last:
            return


def _whole(first: _Buffer, bound: int) -> int:
    """The last key of the first model's windows that lie wholly within the bound; −1 for none."""
    if first.held is None or not len(first.held.keys):
        return -1
    keys = first.held.keys
    windows = first.held.windows
    count = int(np.searchsorted(keys, bound, side="right"))
    if 0 < count < len(keys) and windows[count] == windows[count - 1]:
        count = int(np.searchsorted(windows, windows[count]))
    return int(keys[count - 1]) if count else -1


def _check_ids(parts: Sequence[Passed]) -> None:
    for part in parts[1:]:
        _, first, second = np.intersect1d(parts[0].numbers, part.numbers, return_indices=True)
        mine = parts[0].ids[first]
        theirs = part.ids[second]
        if len(first) and (
            mine.shape != theirs.shape
            or bool(((mine != theirs) & (mine >= 0) & (theirs >= 0)).any())
        ):
            raise BadInput(
                "The sources hold vectors of different tokens: they are not of the same text in "
                "the same windows."
            )


# ---- What one pass over the text leaves of several models: cross-moments, the same of groups of documents, a sample.

GROUPS = 16
"""Groups of consecutive documents (or windows) that intervals leave out, one at a time: between 9
and 16 are occupied.
"""
DIRECTIONS = 24  # of each site, in which the groups' moments are kept
RUN = 16  # tokens of a sampled window
FEW = 4  # documents in the first batch from which on they, and not windows, are the clusters


@dataclass(frozen=True)
class Sampled:
    """The sample: rows [windows, m, d] of each site, the windows' numbers, ids [windows, T],
    positions [windows, m] in them, and documents [windows]. All is in the order of the text.
    """

    states: Sequence[Tensor]
    numbers: Tensor
    ids: Tensor
    positions: Tensor
    documents: Tensor


class Gathering:
    """Takes in aligned tokens of several models, in one pass.

    `models[u]` is the model of site u. From the first batch come the points about which sums are
    taken, and the 24 principal components of each site in which groups of documents are told apart.
    """

    def __init__(self, models: Sequence[int], *, sample: int, seed: int):
        self.models = list(models)
        self.sample = sample
        self.seed = seed
        self.begun = False
        self.tokens = 0

    def _begin(self, first: Passed, rows: Sequence[Tensor]) -> None:
        self.begun = True
        self.moments = CrossMoments(
            self.models, [x.mean(0, dtype=torch.float64).to(x.dtype) for x in rows]
        )
        self.bases = [principal(x, DIRECTIONS).to(x.dtype) for x in rows]
        self.ends = list(accumulate(basis.shape[1] for basis in self.bases))
        self.groups = Blocks(GROUPS, lambda: Sums(self.ends[-1], device=rows[0].device))
        self.clusters = "documents" if len(np.unique(first.places[:, 3])) >= FEW else "windows"
        _, sizes = np.unique(first.windows, return_counts=True)
        self.run = int(min(RUN, max(1, np.median(sizes))))
        self.reservoir = Reservoir(max(2, self.sample // self.run), self.seed)

    def add(self, parts: Sequence[Passed]) -> None:
        """Take in the same tokens of all models, whole windows of the first."""
        states = [rows for part in parts for rows in part.states]
        device = states[0].device
        rows = [x.to(device) if x.dtype == torch.float64 else x.to(device).float() for x in states]
        if not self.begun:
            self._begin(parts[0], rows)
        self.tokens += len(parts[0].places)
        self.moments.update(rows)
        self._groups(parts[0], rows)
        self._offer(parts[0], rows)

    def _groups(self, first: Passed, rows: Sequence[Tensor]) -> None:
        reduced = torch.cat(
            [(x - p) @ b for x, p, b in zip(rows, self.moments.pilots, self.bases, strict=True)],
            dim=1,
        )
        units = first.places[:, 3] if self.clusters == "documents" else first.windows
        self.groups.index(int(units[-1]))  # coarsens once, before any group of this batch is chosen
        number = units // self.groups.size
        cuts = np.flatnonzero(np.diff(number)) + 1
        for start, end in zip([0, *cuts], [*cuts, len(number)], strict=True):
            self.groups[int(units[start])].merge(Sums.of_rows(reduced[int(start) : int(end)]))

    def _offer(self, first: Passed, rows: Sequence[Tensor]) -> None:
        numbers, starts, sizes = np.unique(first.windows, return_index=True, return_counts=True)
        whole = np.flatnonzero(sizes >= self.run)
        chosen = self.reservoir.offer(numbers[whole].tolist(), 1)
        if not len(chosen):
            return
        kept = whole[chosen.rows]
        places = np.linspace(0, 1, self.run) if self.run > 1 else np.zeros(1)
        index = starts[kept][:, None] + np.rint(places * (sizes[kept][:, None] - 1)).astype(
            np.int64
        )
        at = torch.from_numpy(index)
        columns = {
            f"state.{u}": x[at.to(x.device).flatten()].unflatten(0, at.shape)
            for u, x in enumerate(rows)
        }
        columns["ids"] = torch.from_numpy(first.ids[np.searchsorted(first.numbers, numbers[kept])])
        columns["position"] = torch.from_numpy(first.places[index, 2])
        columns["document"] = torch.from_numpy(first.places[index[:, 0], 3])
        self.reservoir.put(chosen, columns)

    def sampled(self) -> Sampled:
        """The sample, in the order of the text."""
        numbers = self.reservoir.places[:, 0]
        order = numbers.argsort()
        columns = {name: column[order] for name, column in self.reservoir.columns.items()}
        states = [columns[f"state.{u}"] for u in range(len(self.models))] if columns else []
        return Sampled(
            states,
            numbers[order],
            *(columns.get(n, numbers) for n in ("ids", "position", "document")),
        )
