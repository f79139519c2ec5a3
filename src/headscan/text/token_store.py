"""The tokens of a corpus, document after document, in a temporary file."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headscan.run import BadInput, Progress, TextRecord
from headscan.text.documents import documents as read_documents
from headscan.text.identity import TextIdentity
from headscan.text.source import Reading, TextLike, source_name
from headscan.text.tokens import SpecialStrings, tokenise, tokenizer_identity

Ids = npt.NDArray[np.integer[Any]]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TokenStore:
    """The tokens of a corpus.

    Attributes:
        tokens: uint16 or uint32 [n], a memory map of a temporary file.
        starts: where each document begins, int64 [documents].
        vocabulary: number of token ids.
    """

    tokens: Ids
    starts: Int64
    vocabulary: int

    @property
    def longest(self) -> int:
        """The number of tokens of the longest document."""
        if not len(self.starts):
            return 0
        return int(np.diff(self.starts, append=len(self.tokens)).max())

    def inside(self, first: int, last: int, order: int) -> npt.NDArray[np.bool_]:
        """Return which positions of [first, last) have context and next token in one document.

        The context of position i is the tokens i .. i + order - 1.
        """
        ends = np.append(self.starts[1:], len(self.tokens))
        low = np.searchsorted(ends, first, side="right")
        high = np.searchsorted(ends, last + order, side="right")
        ends = ends[low:high]
        inside = np.ones(last - first, dtype=bool)
        for distance in range(1, order + 1):
            positions = ends - distance - first
            in_range = (positions >= 0) & (positions < len(inside))
            inside[positions[in_range]] = False
        return inside


class _Writer:
    """Appends the tokens of documents to a temporary file.

    The file is deleted when nothing refers to it any more.
    """

    def __init__(self, vocabulary: int, work: Path | None) -> None:
        if vocabulary < 1:
            raise BadInput("The vocabulary is empty.")
        if work is not None:
            work.mkdir(parents=True, exist_ok=True)
        self.vocabulary = vocabulary
        self.tokens = 0
        self.dtype = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
        self.file = tempfile.TemporaryFile(dir=work)  # noqa: SIM115 (closed by `finish`)
        self.starts: list[int] = []

    def add(self, ids: Ids, *, begins: bool) -> None:
        """Append tokens; `begins`: a document begins with them."""
        if begins:
            self.starts.append(self.tokens)
        if len(ids) and (ids.min() < 0 or ids.max() >= self.vocabulary):
            raise BadInput(f"A token id lies outside the vocabulary of {self.vocabulary}.")
        self.file.write(ids.astype(self.dtype).tobytes())
        self.tokens += len(ids)

    def finish(self) -> TokenStore:
        """Return the stored tokens."""
        self.file.flush()
        with self.file:
            tokens: Ids = np.zeros(0, dtype=self.dtype)
            if self.tokens:
                tokens = np.memmap(self.file, self.dtype, "r")
        # Documents without tokens have no positions: their starts would only repeat.
        starts = np.unique(np.asarray(self.starts, dtype=np.int64))
        return TokenStore(tokens, starts[starts < self.tokens], self.vocabulary)


def store_tokens(documents: Iterable[Ids], vocabulary: int, work: Path | None = None) -> TokenStore:
    """Store documents of token ids in a temporary file (in the folder `work`)."""
    writer = _Writer(vocabulary, work)
    for document in documents:
        writer.add(np.asarray(document, dtype=np.int64), begins=True)
    return writer.finish()


def store_text(
    source: TextLike,
    tokenizer: Any,
    reading: Reading,
    work: Path | None = None,
    *,
    progress: Progress | None = None,
) -> tuple[TokenStore, TextRecord]:
    """Store the tokens of a text, tokenised in a stream, and return them with the text's record."""
    writer = _Writer(len(tokenizer), work)
    identity = TextIdentity(source_name(source))
    limit = reading.max_tokens
    texts = read_documents(source, documents=reading.documents, field=reading.field)
    specials = SpecialStrings(tokenizer)
    for stretch in tokenise(texts, tokenizer):
        specials.add(stretch)
        identity.add(stretch.text, begins=stretch.begins)
        ids = stretch.ids if limit is None else stretch.ids[: limit - writer.tokens]
        writer.add(ids, begins=stretch.begins)
        if progress is not None:
            progress("reading", writer.tokens, limit, "tokens")
        if writer.tokens == limit:
            break
    identity.finish()
    mark = identity.mark()
    store = writer.finish()
    record = TextRecord(
        source=identity.name,
        sha256=mark.sha256,
        characters=mark.characters,
        documents=len(store.starts),
        tokens=len(store.tokens),
        tokenizer=tokenizer_identity(tokenizer),
        specials=dict(specials.counts),
    )
    return store, record
