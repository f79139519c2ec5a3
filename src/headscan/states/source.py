"""What yields vectors: batches of named sites, with the tokens and documents that they are of."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from headscan.model.inputs import SENTENCE
from headscan.model.lens import Lens
from headscan.model.load import Preparation
from headscan.model.sites import match_sites
from headscan.run import Json, ModelRecord, TextRecord
from headscan.text import Batch, Windows, batches, display
from headscan.text.source import Reading, TextLike, TextMark, window_length


def reading_window(model: Preparation | Lens, context: int | None) -> tuple[bool, int]:
    """Return whether a model reads each document by itself, and how many tokens its windows have.

    `context`: tokens of a window; None for the default.
    """
    if model.sentence is None:
        return False, window_length(context)
    return True, window_length(context, model.sentence.length)


Each = Callable[[str, Tensor], object]
"""Called with a site and its states [B, T, width]; the tensor is the live one: copy it before
keeping or changing it.
"""


class VectorSource(ABC):
    """Vectors of named sites in windows of tokens: a model reading a text, stored states, arrays.
    What follows does not know which.

    Use: `for batch in source.batches(): source.visit(batch, sites, each)`. Batches are the same
    whatever the number of processes, and memory is that of one site of one batch.
    """

    name: str  # in tables and messages
    sites: tuple[str, ...]  # all of them, in the order of depth
    context: int  # vectors of a window
    batch: int  # windows of a batch
    vocabulary: (
        int  # token ids are below this; 0 where none are known, and the ids of batches are −1 then
    )
    tokens: int | None  # vectors of a site in all, as far as it is known
    device: torch.device  # where the vectors are
    lens: Lens | None = None  # the model, where there is one
    alone: bool = False  # whether windows are documents, of lengths of their own up to `context`

    @property
    def default_sites(self) -> tuple[str, ...]:
        """What is looked at where nobody says which."""
        return self.sites

    def match(self, globs: str | Iterable[str]) -> tuple[str, ...]:
        """The sites that globs match, in the order of depth; BadInput where one matches nothing."""
        return match_sites(globs, self.sites, self.name)

    @abstractmethod
    def width(self, site: str) -> int:
        """Numbers of a vector at a site."""

    @abstractmethod
    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
        """The batches of one process, from window `start` on.

        All windows have `context` tokens; after them may come a batch of one shorter window, the
        rest. `expected` is the `mark` of a reading that is continued: BadInput where this is not
        the same text.
        """

    @abstractmethod
    def visit(self, batch: Batch, sites: Sequence[str], each: Each) -> None:
        """Call `each` with the vectors [B, T, width] of each site in turn, of the batch that was
        given last.
        """

    @abstractmethod
    def identity(self) -> Json:
        """A hash by which a resumed run knows the source again."""

    @abstractmethod
    def record(self) -> ModelRecord:
        """What it is, for the protocol of a result."""

    @abstractmethod
    def text(self) -> TextRecord:
        """What has been read up to now."""

    @abstractmethod
    def words(self, ids: Sequence[int]) -> list[str]:
        """Token ids as people can read them."""

    def mark(self) -> Json:
        """How far it has been read, and what it said: what a resumed reading is to find again."""
        return None

    def expects(self, windows: int) -> int | None:
        """Tokens in all, when so many windows have been read."""
        return self.tokens

    def pooled(self, site: str) -> bool:
        """Whether a site has one vector a window, that of a sentence, and not one a token."""
        return site == SENTENCE and (self.alone or self.context == 1)

    def read(self, windows: int) -> int:
        """Tokens up to now, when so many windows have been read."""
        return windows * self.context

    def __repr__(self) -> str:
        many = "" if self.tokens is None else f"{self.tokens:,} vectors at "
        return f"{type(self).__name__}({self.name!r}: {many}{len(self.sites)} sites)"


class ModelSource(VectorSource):
    """A model reading a text: each window is one row of a forward pass, and a site's states are
    there when it is passed.

    Every call of `batches` reads the text anew; a rest of the text that fills no window is dropped.
    Any batch can be visited. With `ends` its batches say where in their documents tokens end.

    A sentence encoder reads each document alone, with its special tokens, and has one more site,
    `sentence`: one vector a window, [B, 1, width] (but with `ends`, which compares tokens).

    `context`: tokens of a window. Default: 128; of a document of a sentence encoder, as many as its
    `encode` reads.
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
        self.lens = lens
        self.given = text
        self.reading = reading
        self.ends = ends
        self.name = lens.name
        self.sites = lens.sites
        self.device = lens.device
        self.alone = lens.sentence is not None and not ends
        if lens.sentence is not None and self.alone:
            self.sites += (SENTENCE,)
        self.context = window_length(
            context, lens.sentence.length if lens.sentence is not None and self.alone else None
        )
        self.vocabulary = lens.vocabulary_size
        self.tokens = reading.max_tokens
        self.batch = batch or max(1, (2048 if lens.device.type == "cpu" else 16384) // self.context)
        self._windows: Windows | None = None

    @property
    def default_sites(self) -> tuple[str, ...]:
        return self.lens.default_sites + self.sites[len(self.lens.sites) :]

    def width(self, site: str) -> int:
        sentence = self.lens.sentence if site == SENTENCE else None
        return self.lens.width(site) if sentence is None else sentence.width

    def batches(
        self, *, start: int = 0, process: int = 0, processes: int = 1, expected: Json = None
    ) -> Iterator[Batch]:
        mark = TextMark(**expected) if isinstance(expected, dict) else None  # type: ignore[arg-type]
        self._windows = Windows(
            self.given,
            self.lens.require_tokenizer(),
            self.context,
            documents=self.reading.documents,
            field=self.reading.field,
            max_tokens=self.reading.max_tokens,
            start=start,
            expected=mark,
            ends=self.ends,
            alone=self.alone,
        )
        return batches(self._windows, self.batch, process=process, processes=processes)

    def visit(self, batch: Batch, sites: Sequence[str], each: Each) -> None:
        ids = torch.from_numpy(np.ascontiguousarray(batch.ids)).to(self.lens.device)
        sentence = self.lens.sentence if SENTENCE in sites else None
        last = self.lens.default_sites[-1]
        wanted = [site for site in sites if site != SENTENCE]

        def take(site: str, states: Tensor) -> None:
            if site in wanted:
                each(site, states)
            if sentence is not None and site == last:
                each(SENTENCE, sentence(states)[:, None])

        self.lens.run(ids, sites=[*wanted, last] if sentence is not None else wanted, each=take)

    def mark(self) -> Json:
        return None if self._windows is None else asdict(self._windows.mark())

    def text(self) -> TextRecord:
        return (
            TextRecord(source=str(self.given), context=self.context)
            if self._windows is None
            else self._windows.record()
        )

    def read(self, windows: int) -> int:
        return self.text().tokens or 0 if self.alone else super().read(windows)

    def expects(self, windows: int) -> int | None:
        """`max_tokens`, or what the share of the file that has been read lets expect."""
        if self.tokens is not None:
            return self.tokens
        try:
            path = Path(str(self.given))
            size = (
                path.stat().st_size
                if path.is_file() and path.suffix in (".txt", ".jsonl")
                else None
            )
        except (ValueError, OSError):
            return None
        read = 0 if self._windows is None else self._windows.mark().characters
        known = self.read(windows)
        return None if not size or not read else max(known, int(known * size / read))

    def identity(self) -> Json:
        return self.lens.identity()

    def record(self) -> ModelRecord:
        return self.lens.provenance()

    def words(self, ids: Sequence[int]) -> list[str]:
        return display(self.lens.tokenizer, ids)
