"""The sources of vectors: batches of named sites, with their tokens and documents."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headscan.model.framed import FramedLens, framed, with_beginning
from headscan.model.lens import Lens
from headscan.model.load import Preparation
from headscan.model.sentence import SENTENCE
from headscan.model.sites import match_sites
from headscan.run import Json, ModelRecord, TextRecord
from headscan.text import Batch, Windows, batches, display
from headscan.text.identity import TextMark
from headscan.text.source import CONTEXT, Reading, TextLike, has_texts, window_length
from headscan.text.tokens import Frame, frame_of

Integers = npt.NDArray[np.int64]

TOKENS_ON_CPU = 2048
TOKENS_ON_GPU = 16384
"""A forward pass reads about so many tokens, where the batch is not given."""

Each = Callable[[str, Tensor], object]
"""A function of a site and its states [B, T, width]; the tensor is the live one: copy it before
keeping or changing it.
"""


def reading_window(model: Preparation | Lens, context: int | None) -> tuple[bool, int]:
    """Return whether a model reads each document by itself, and how many tokens its windows have.

    `context`: tokens of a window; None for the default.
    """
    if model.sentence is None:
        return False, window_length(context)
    return True, window_length(context, model.sentence.length)


class VectorSource(ABC):
    """Vectors of named sites in windows of tokens: a model reading a text, stored states, arrays.

    Use: `for batch in source.batches(): source.visit(batch, sites, each)`. Batches are the same
    whatever the number of processes, and memory is that of one site of one batch.

    Attributes:
        name: in tables and messages.
        sites: all of them, in the order of depth.
        context: vectors of a window.
        batch: windows of a batch.
        vocabulary: token ids are below this; 0 where none are known, and then the ids of batches
            are −1.
        tokens: vectors of a site in all, as far as known.
        device: where the vectors are.
        lens: the model, where there is one.
        alone: whether windows are documents with lengths of their own, up to `context`.
    """

    name: str
    sites: tuple[str, ...]
    context: int
    batch: int
    vocabulary: int
    tokens: int | None
    device: torch.device
    lens: Lens | None = None
    alone: bool = False

    @property
    def default_sites(self) -> tuple[str, ...]:
        """Return the sites that are read where the user names none."""
        return self.sites

    def match(self, globs: str | Iterable[str]) -> tuple[str, ...]:
        """Return the sites that globs match, in the order of depth.

        Raises BadInput where a glob matches nothing.
        """
        return match_sites(globs, self.sites, self.name)

    @abstractmethod
    def width(self, site: str) -> int:
        """Return the numbers of a vector at a site."""

    @abstractmethod
    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
        """Yield the batches of one process, from window `start` on.

        All windows have `context` tokens; a batch of one shorter window may follow. `expected` is
        the `mark` of a reading that is continued; raises BadInput where the text has changed since.
        """

    @abstractmethod
    def visit(self, batch: Batch, sites: Sequence[str], each: Each) -> None:
        """Call `each` with the vectors [B, T, width] of each site of the latest batch in turn."""

    @abstractmethod
    def identity(self) -> Json:
        """Return a hash by which a resumed run recognises the source."""

    @abstractmethod
    def record(self) -> ModelRecord:
        """Return the description of the source for the protocol of a result."""

    @abstractmethod
    def text(self) -> TextRecord:
        """Return the record of the text that was read up to now."""

    @abstractmethod
    def words(self, ids: Sequence[int]) -> list[str]:
        """Return token ids as people can read them."""

    def sentences(self) -> list[str]:
        """Return what a reader has to know of the positions that were added to windows."""
        return []

    def mark(self) -> Json:
        """Return how far the text was read, and its hash, for a reading that is continued."""
        return None

    def expects(self, _windows: int) -> int | None:
        """Return the tokens in all, as far as known when so many windows have been read."""
        return self.tokens

    def pooled(self, site: str) -> bool:
        """Return whether a site has one vector a window, that of a sentence, not one a token."""
        return site == SENTENCE and (self.alone or self.context == 1)

    def positioned(self, site: str) -> bool:
        """Return whether position 0 of a window is that of a first token at a site."""
        return not self.pooled(site)

    def read(self, windows: int) -> int:
        """Return the tokens in the first windows."""
        return windows * self.context

    def __repr__(self) -> str:
        count = "" if self.tokens is None else f"{self.tokens:,} vectors at "
        return f"{type(self).__name__}({self.name!r}: {count}{len(self.sites)} sites)"


class ModelSource(VectorSource):
    """A model reading a text: each window is one row of a forward pass.

    The states of a site are there while the pass is at it. Every call of `batches` reads the text
    again; the remainder of the text that fills no window is dropped. Any batch can be visited.

    A sentence encoder reads each document by itself, with its special tokens, and has one more
    site, `sentence`: one vector a window, [B, 1, width] (not with `ends`, which compares tokens).
    Documents that are texts of their own (lines, paragraphs, rows, items of a list) are cut where
    `encode` cuts them, unless `context` is given; running text becomes several windows.

    Args:
        context: tokens of a window. Default: 128; of a sentence encoder as many as its `encode`
            reads.
        batch: windows of a forward pass. Default: about 2,048 tokens, 16,384 on a GPU.
        ends: whether batches have the characters at which tokens end in their documents.
    """

    lens: Lens

    def __init__(
        self,
        lens: Lens,
        text: TextLike,
        reading: Reading,
        *,
        context: int | None = None,
        batch: int | None = None,
        ends: bool = False,
    ) -> None:
        self.alone = lens.sentence is not None and not ends
        self.frame = Frame()
        if not self.alone:
            self.frame = frame_of(lens.tokenizer, reading.start)
        lens = framed(lens, self.frame)
        self.lens = lens
        self.source_text = text
        self.reading = reading
        self.ends = ends
        self.name = lens.name
        self.sites = lens.sites
        self.device = lens.device
        longest = None
        if lens.sentence is not None and self.alone:
            self.sites += (SENTENCE,)
            longest = lens.sentence.length
        elif context is None:
            longest = min(CONTEXT, lens.context_length or CONTEXT)
        self.context = window_length(context, longest)
        self.cut = self.alone and context is None and has_texts(text, reading.documents)
        self.vocabulary = lens.vocabulary_size
        self.tokens = reading.max_tokens
        tokens_a_batch = TOKENS_ON_CPU if lens.device.type == "cpu" else TOKENS_ON_GPU
        self.batch = batch or max(1, tokens_a_batch // self.context)
        self._windows: Windows | None = None

    @property
    def default_sites(self) -> tuple[str, ...]:
        sentence = self.sites[len(self.lens.sites) :]
        return self.lens.default_sites + sentence

    def width(self, site: str) -> int:
        if site == SENTENCE and self.lens.sentence is not None:
            return self.lens.sentence.width
        return self.lens.width(site)

    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
        head = self.lens.sentence if self.alone else None
        prepare = None if head is None else head.reading.prepared
        mark = TextMark(**expected) if isinstance(expected, dict) else None  # type: ignore[arg-type]
        self._windows = Windows(
            self.source_text,
            self.lens.require_tokenizer(),
            self.context,
            documents=self.reading.documents,
            field=self.reading.field,
            max_tokens=self.reading.max_tokens,
            start=start,
            expected=mark,
            ends=self.ends,
            alone=self.alone,
            cut=self.cut,
            prepare=prepare,
        )
        return batches(self._windows, self.batch, process=process, processes=processes)

    def visit(self, batch: Batch, sites: Sequence[str], each: Each) -> None:
        ids = torch.from_numpy(np.ascontiguousarray(batch.ids)).to(self.lens.device)
        sentence = self.lens.sentence if SENTENCE in sites else None
        token_sites = [site for site in sites if site != SENTENCE]
        if sentence is None:
            self.lens.run(ids, sites=token_sites, each=each)
            return

        last = self.lens.default_sites[-1]  # the site that sentences are pooled from

        def take(site: str, states: Tensor) -> None:
            if site in token_sites:
                each(site, states)
            if site == last:
                each(SENTENCE, sentence(states)[:, None])

        self.lens.run(ids, sites=[*token_sites, last], each=take)

    def whole_windows(self) -> tuple[Integers, Integers]:
        """Return the ids [W, T] of all whole windows behind the tokens that are added in front, and
        the document of each token; none where the text is too short.
        """
        whole = [batch for batch in self.batches() if batch.ids.shape[1] == self.context]
        if not whole:
            nothing = np.zeros((0, self.context), dtype=np.int64)
            return nothing, nothing
        ids = np.concatenate([batch.ids for batch in whole])
        documents = np.concatenate([batch.documents for batch in whole])
        front = np.tile(np.array(self.frame.front, dtype=ids.dtype), (len(ids), 1))
        documents_in_front = np.repeat(documents[:, :1], front.shape[1], axis=1)
        framed_documents = np.concatenate([documents_in_front, documents], axis=1)
        return np.concatenate([front, ids], axis=1), framed_documents

    def mark(self) -> Json:
        return None if self._windows is None else asdict(self._windows.mark())

    def text(self) -> TextRecord:
        if self._windows is None:
            record = TextRecord(source=str(self.source_text), context=self.context)
        else:
            record = self._windows.record()
        return with_beginning(record, self.lens.tokenizer, self.reading.start)

    def sentences(self) -> list[str]:
        return self.lens.sentences() if isinstance(self.lens, FramedLens) else []

    def read(self, windows: int) -> int:
        return self.text().tokens or 0 if self.alone else super().read(windows)

    def expects(self, windows: int) -> int | None:
        """Return `max_tokens`, or an estimate from the share of the file that has been read."""
        if self.tokens is not None:
            return self.tokens
        size = self._file_size()
        if size is None or self._windows is None:
            return None
        characters = self._windows.mark().characters
        if not characters:
            return None
        tokens = self.read(windows)
        return max(tokens, int(tokens * size / characters))

    def _file_size(self) -> int | None:
        """Return the bytes of the text; None where it is not one file that is not packed."""
        try:
            path = Path(str(self.source_text))
            if path.is_file() and path.suffix in (".txt", ".jsonl"):
                return path.stat().st_size or None
        except (ValueError, OSError):
            pass
        return None

    def identity(self) -> Json:
        return self.lens.identity()

    def record(self) -> ModelRecord:
        return self.lens.provenance()

    def words(self, ids: Sequence[int]) -> list[str]:
        return display(self.lens.tokenizer, ids)
