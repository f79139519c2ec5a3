"""The same tokens in several models: their vectors side by side as the text is read, also where the
models cut it into different tokens.
"""

import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headscan.model import Lens
from headscan.model.sentence import SENTENCE
from headscan.run import BadInput, ModelRecord, TextRecord
from headscan.scanner.sources import Subject
from headscan.states import VectorSource
from headscan.text import Batch

Integers = npt.NDArray[np.int64]

KEY_BITS = 40
"""Bits of a key that hold the character at which a token ends in its document."""


@dataclass(frozen=True)
class TokenVectors:
    """Consecutive tokens of one model with their vectors.

    Attributes:
        keys: [n], ascending; tokens of several models with the same key are the same.
        windows, positions, documents: [n], of each token.
        states: vectors [n, d] at each site.
        window_numbers: [B], the windows that `ids` are of.
        ids: token ids [B, T] of these windows.
    """

    keys: Integers
    windows: Integers
    positions: Integers
    documents: Integers
    states: Sequence[Tensor]
    window_numbers: Integers
    ids: Integers

    def part(self, index: Integers | slice) -> "TokenVectors":
        """Return the tokens at these indices, with the ids of their windows."""
        windows = self.windows[index]
        read = np.isin(self.window_numbers, windows)
        return TokenVectors(
            keys=self.keys[index],
            windows=windows,
            positions=self.positions[index],
            documents=self.documents[index],
            states=[_rows_at(states, index) for states in self.states],
            window_numbers=self.window_numbers[read],
            ids=self.ids[read],
        )

    def joined(self, following: "TokenVectors") -> "TokenVectors":
        """Return these tokens and those that follow them."""
        pairs = zip(self.states, following.states, strict=True)
        return TokenVectors(
            keys=np.concatenate([self.keys, following.keys]),
            windows=np.concatenate([self.windows, following.windows]),
            positions=np.concatenate([self.positions, following.positions]),
            documents=np.concatenate([self.documents, following.documents]),
            states=[torch.cat(pair) for pair in pairs],
            window_numbers=np.concatenate([self.window_numbers, following.window_numbers]),
            ids=np.concatenate([self.ids, following.ids]),
        )


def _rows_at(states: Tensor, index: Integers | slice) -> Tensor:
    if isinstance(index, slice):
        return states[index]
    return states[torch.from_numpy(index).to(states.device)]


@dataclass(frozen=True)
class Sampled:
    """The sampled tokens of a comparison, in the order of the text.

    Attributes:
        states: rows [windows, m, d] of each site.
        numbers: [windows], of the windows.
        ids: [windows, T].
        positions: [windows, m], of the sampled tokens in their windows.
        documents: [windows].
    """

    states: Sequence[Tensor]
    numbers: Tensor
    ids: Tensor
    positions: Tensor
    documents: Tensor


class SourceReader:
    """Reads one source batch by batch, without the first positions of each window.

    In windows of one token no position is left out. `record`, `sites`, `tokens` and `text` are
    known once `batches` has begun, or ended.

    Attributes:
        by_text: whether tokens are recognised by the character at which they end, not by window and
            position. Then end-of-text tokens, which end nowhere, are left out, and of several
            tokens that share a character all but the last.
        draws: how many models with fresh random weights are wanted.
        controls: functions that make these models, each once.
        tokens: how many tokens were read.
    """

    record: ModelRecord
    text: TextRecord

    def __init__(self, subject: Subject, *, by_text: bool, draws: int) -> None:
        self.subject = subject
        # Vectors of documents are the same documents', whatever the tokens are.
        self.sentences = subject.plan.sites == SENTENCE
        self.by_text = by_text and not self.sentences
        self.draws = draws
        self.sites: tuple[str, ...] = ()
        self.tokens = 0
        self.controls: list[Callable[[], Lens]] = []

    def batches(self) -> Generator[TokenVectors, None, None]:
        """Yield the tokens of each batch; nothing is read or loaded before the first one.

        Raises BadInput where a vector is NaN or infinite.
        """
        source = self._opened()
        previous_document = -1
        try:
            for batch in source.batches():
                if self.sentences:
                    tokens = self._sentences(source, batch, previous_document)
                    previous_document = int(batch.documents[-1, 0])
                else:
                    tokens = self._tokens(source, batch)
                yield tokens
        finally:
            self.text = source.text()

    def _opened(self) -> VectorSource:
        """Return the source, and note its sites, record and controls."""
        plan = self.subject.plan
        source = self.subject.source(plan.text, ends=self.by_text)
        sites = self.subject.sites(source)
        if self.sentences:
            if not source.pooled(SENTENCE):
                raise BadInput(
                    f"{source.name} has no vectors of texts at the site {SENTENCE}: choose other "
                    "--sites."
                )
        else:
            sites = tuple(site for site in sites if not source.pooled(site))
        if not sites:
            raise BadInput(f"Vectors of texts are compared by themselves: --sites {SENTENCE}.")
        self.sites = sites
        self.record = replace(source.record(), name=self.subject.name)
        if source.lens is not None and not self.sentences:
            first_seed = plan.seed + 1
            seeds = range(first_seed, first_seed + self.draws)
            self.controls = [source.lens.twin(seed) for seed in seeds]
        return source

    def _rows(self, source: VectorSource, batch: Batch, skipped: int) -> dict[str, Tensor]:
        """Return the vectors [n, d] of a batch by site, without the first positions of windows."""
        rows_of_site: dict[str, Tensor] = {}

        def copy_rows(site: str, states: Tensor) -> None:
            rows = states.detach()[:, skipped:].flatten(0, 1)
            if not bool(torch.isfinite(rows).all()):
                raise BadInput(
                    f"{source.name} gives NaN or infinite values at site {site}: nothing can be "
                    "compared there."
                )
            if rows.dtype == torch.float64:
                rows_of_site[site] = rows.clone()
            else:
                rows_of_site[site] = rows.to(torch.float32, copy=True)

        source.visit(batch, self.sites, copy_rows)
        return rows_of_site

    def _sentences(
        self, source: VectorSource, batch: Batch, previous_document: int
    ) -> TokenVectors:
        """Return the vector of the first window of each document; `encode` reads no further."""
        rows_of_site = self._rows(source, batch, 0)
        documents = batch.documents[:, 0]
        first = np.flatnonzero(np.diff(documents, prepend=previous_document))
        numbers = documents[first]
        index = torch.from_numpy(first)
        self.tokens += len(first)
        return TokenVectors(
            keys=numbers,
            windows=numbers,
            positions=np.zeros_like(numbers),
            documents=numbers,
            states=[rows_of_site[site][index] for site in self.sites],
            window_numbers=numbers,
            ids=np.full((len(first), 1), -1),
        )

    def _tokens(self, source: VectorSource, batch: Batch) -> TokenVectors:
        """Return the tokens of a batch, by window and position or by the characters they end at."""
        skipped = self.subject.plan.windowing.skip_first if source.context > 1 else 0
        rows_of_site = self._rows(source, batch, skipped)
        length = batch.ids.shape[1]
        columns = np.arange(skipped, length)
        windows, positions = np.meshgrid(batch.indices, columns, indexing="ij")
        # Windows of a sentence encoder have lengths of their own, and the ids of all are padded.
        window_keys = 1 << KEY_BITS // 2 if source.alone else source.context
        padding = source.context - length if source.alone else 0
        tokens = TokenVectors(
            keys=(windows * window_keys + positions).ravel().astype(np.int64),
            windows=windows.ravel().astype(np.int64),
            positions=positions.ravel().astype(np.int64),
            documents=batch.documents[:, skipped:].ravel().astype(np.int64),
            states=[rows_of_site[site] for site in self.sites],
            window_numbers=batch.indices,
            ids=np.pad(batch.ids, ((0, 0), (0, padding)), constant_values=-1),
        )
        self.tokens += len(tokens.keys)
        if not self.by_text:
            return tokens
        assert batch.ends is not None
        return _by_text(tokens, batch.ends[:, skipped:].ravel())

    def redrawn(self, draw: int, sample: Sampled) -> list[Tensor]:
        """Return the sampled vectors of each site with fresh random weights."""
        lens = self.controls[draw]()
        parts_of_site: list[list[Tensor]] = [[] for _ in self.sites]
        padded = bool((sample.ids < 0).any())
        windows = 1 if padded else 16  # windows of different lengths are read one by one
        batches = zip(sample.ids.split(windows), sample.positions.split(windows), strict=True)
        for ids, positions in batches:
            read = ids[:, (ids >= 0).all(0)].to(lens.device)
            states = lens.run(read, sites=self.sites)
            for parts, site in zip(parts_of_site, self.sites, strict=True):
                rows = states[site].float().cpu()
                index = positions[..., None].expand(-1, -1, rows.shape[2])
                parts.append(rows.gather(1, index))
        return [torch.cat(parts) for parts in parts_of_site]


def _by_text(tokens: TokenVectors, ends: Integers) -> TokenVectors:
    """Return the tokens with keys made of their documents and of the characters they end at.

    Of several tokens with the same end the last stays; those that end nowhere (−1) are left out.
    """
    keys = (tokens.documents << KEY_BITS) + ends
    ending = np.flatnonzero(ends >= 0)
    keys_of_ending = keys[ending]
    is_last = np.append(keys_of_ending[1:] != keys_of_ending[:-1], True)[: len(ending)]
    return replace(tokens, keys=keys).part(ending[is_last])


def spilled(
    reader: Iterator[TokenVectors], release: Callable[[], None]
) -> Generator[TokenVectors, None, None]:
    """Run a reader to its end, with its vectors in temporary files, and then yield its tokens.

    `release` is called in between: a model makes room for the next one.
    """
    with tempfile.TemporaryDirectory(prefix="headscan-compare-") as folder:
        parts: list[TokenVectors] = []
        for part in reader:
            named = {str(site): rows.cpu().contiguous() for site, rows in enumerate(part.states)}
            save_file(named, str(Path(folder, f"{len(parts)}.safetensors")))
            parts.append(replace(part, states=()))
        release()
        for number, part in enumerate(parts):
            path = Path(folder, f"{number}.safetensors")
            tensors = load_file(str(path))
            path.unlink()
            yield replace(part, states=[tensors[str(site)] for site in range(len(tensors))])


class _Buffer:
    """The tokens of one reader that the others have not reached yet."""

    def __init__(self, reader: Iterator[TokenVectors]) -> None:
        self.reader = reader
        self.ended = False
        self.last_key = -1
        self.tokens: TokenVectors | None = None

    def pull(self) -> None:
        """Read on by a batch."""
        part = next(self.reader, None)
        if part is None:
            self.ended = True
            return
        if self.tokens is None or not len(self.tokens.keys):
            self.tokens = part
        else:
            self.tokens = self.tokens.joined(part)
        if len(part.keys):
            self.last_key = int(part.keys[-1])

    def take(self, limit: int) -> TokenVectors:
        """Return the tokens up to a key, and remove them from the buffer."""
        tokens = self.tokens
        assert tokens is not None
        count = int(np.searchsorted(tokens.keys, limit, side="right"))
        if count == len(tokens.keys):
            self.tokens = None
            return tokens
        self.tokens = tokens.part(slice(count, None))
        return tokens.part(slice(0, count))

    def last_key_of_windows(self, limit: int) -> int:
        """Return the last key of the windows that lie entirely up to a key; −1 for none."""
        if self.tokens is None or not len(self.tokens.keys):
            return -1
        keys = self.tokens.keys
        windows = self.tokens.windows
        count = int(np.searchsorted(keys, limit, side="right"))
        if 0 < count < len(keys) and windows[count] == windows[count - 1]:
            count = int(np.searchsorted(windows, windows[count]))
        return int(keys[count - 1]) if count else -1


def aligned(
    readers: Sequence[Iterator[TokenVectors]], *, by_position: bool = False
) -> Iterator[list[TokenVectors]]:
    """Yield the tokens that all models have, of each model, in complete windows of the first.

    The reader that is behind in the text goes on; the text ends where the shortest reading does.
    Memory: about a batch of each model's vectors.

    `by_position`: windows of one number are the same. Raises BadInput where their token ids, as far
    as they are known, differ.
    """
    buffers = [_Buffer(reader) for reader in readers]
    while True:
        behind = min(buffers, key=lambda buffer: buffer.last_key)
        ended = behind.ended
        if ended:
            limit = behind.last_key
        else:
            behind.pull()
            read_by_all = min(buffer.last_key for buffer in buffers)
            limit = buffers[0].last_key_of_windows(read_by_all)
        if limit >= 0 and all(buffer.tokens is not None for buffer in buffers):
            parts = [buffer.take(limit) for buffer in buffers]
            if by_position:
                _check_ids(parts)
            parts = _common(parts)
            if len(parts[0].keys):
                yield parts
        if ended:
            return


def _common(parts: list[TokenVectors]) -> list[TokenVectors]:
    """Return the tokens whose keys all parts have."""
    if all(np.array_equal(part.keys, parts[0].keys) for part in parts[1:]):
        return parts
    keys = reduce(_common_keys, [part.keys for part in parts])
    return [part.part(np.searchsorted(part.keys, keys)) for part in parts]


def _common_keys(first: Integers, second: Integers) -> Integers:
    return np.intersect1d(first, second, assume_unique=True)


def _check_ids(parts: Sequence[TokenVectors]) -> None:
    """Raise BadInput where two parts have different token ids in the same window."""
    first = parts[0]
    for part in parts[1:]:
        _, rows_of_first, rows_of_part = np.intersect1d(
            first.window_numbers, part.window_numbers, return_indices=True
        )
        if not len(rows_of_first):
            continue
        ids_of_first = first.ids[rows_of_first]
        ids_of_part = part.ids[rows_of_part]
        if ids_of_first.shape == ids_of_part.shape:
            known = (ids_of_first >= 0) & (ids_of_part >= 0)
            if not bool(((ids_of_first != ids_of_part) & known).any()):
                continue
        raise BadInput(
            "The sources hold vectors of different tokens: they are not of the same text in the "
            "same windows."
        )
