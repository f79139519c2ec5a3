"""The tokens of a corpus on disk (or in memory), document after document: what a count reads, once and in order."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from headscan.run import BadInput, Progress, TextRecord, write_atomic
from headscan.text.documents import Document
from headscan.text.documents import documents as read_documents
from headscan.text.source import Reading, TextIdentity, TextLike, TextMark, source_name
from headscan.text.tokens import tokenise, tokenizer_identity

# Seconds between two records of how far the store has come, and how often what a record costs at least goes by.
_COMMIT, _SPARSE = 10.0, 50
_BLOCK = 1 << 22  # bytes

Ids = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class TokenStore:
    """`tokens` uint16 or uint32 [n] (a memory map when on disk) and `starts` int64 [documents], where each begins.

    `sha256` is over both.
    """

    tokens: Ids
    starts: npt.NDArray[np.int64]
    vocabulary: int
    sha256: str

    @property
    def longest(self) -> int:
        return int(np.diff(self.starts, append=len(self.tokens)).max()) if len(self.starts) else 0

    def positions(self, first: int, last: int, order: int) -> npt.NDArray[np.bool_] | None:
        """Which positions of [first, last) have their context and next token in one document; None if all have.

        Position i stands for the context i .. i + order - 1 and the next token i + order.
        """
        ends = np.append(self.starts[1:], len(self.tokens))
        near = ends[np.searchsorted(ends, first, side="right") : np.searchsorted(ends, last + order, side="right")]
        near = near[near < len(self.tokens)]  # the end of the last document is the end of the tokens: no key crosses it
        if not len(near):
            return None
        valid = np.ones(last - first, dtype=bool)
        for back in range(1, order + 1):
            hit = near - back - first
            valid[hit[(hit >= 0) & (hit < len(valid))]] = False
        return valid


def store_tokens(
    documents: Iterable[Ids],
    vocabulary: int,
    work: Path | None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> TokenStore:
    """Store documents of token ids in the folder `work` (None: in memory).

    With `resume`, those already on disk are compared with what comes, and kept.
    """
    writer = _Writer(vocabulary, work, "documents of token ids", resume=resume)
    kept, again, starts, length = writer.kept, hashlib.sha256(), hashlib.sha256(), 0
    number = -1
    for number, document in enumerate(documents):
        ids = np.asarray(document)
        if number < kept.documents:
            starts.update(np.int64(length).tobytes())
            again.update(ids.astype(writer.dtype).tobytes())
            length += len(ids)
            continue
        if kept.closed:
            break
        writer.begin()
        writer.add(ids)
        writer.commit_if_due(None, progress)
    same = (starts.hexdigest(), again.hexdigest()) == (kept.starts_sha256, kept.tokens_sha256)
    if kept.documents and not (same and (number + 1 == kept.documents or not kept.closed)):
        raise writer.another("the documents have changed")
    return writer.close(None, progress)


def store_text(
    source: TextLike,
    tokenizer: Any,
    reading: Reading,
    work: Path | None,
    *,
    vocabulary: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> tuple[TokenStore, TextRecord]:
    """Store the tokens of a text in the folder `work` (None: in memory), tokenised in a stream; say which text it was.

    With `resume`, what was read before is read again, hashed and compared (not tokenised): a text that changed, another
    tokenizer and other settings of reading are refused.
    """
    size = len(tokenizer) if vocabulary is None else vocabulary
    spelt = tokenizer_identity(tokenizer)
    writer = _Writer(size, work, f"{spelt} {json.dumps(asdict(reading))}", resume=resume)
    identity = TextIdentity(source_name(source), writer.kept.mark)
    unread = iter(read_documents(source, documents=reading.documents, field=reading.field))
    _read_again(unread, identity, writer, reading.max_tokens)
    for stretch in () if writer.kept.closed else tokenise(unread, tokenizer):
        if stretch.begins:
            writer.commit_if_due(identity.mark(), progress)
            writer.begin()
        identity.add(stretch.text, begins=stretch.begins)
        ids = stretch.ids if reading.max_tokens is None else stretch.ids[: reading.max_tokens - writer.tokens]
        writer.add(ids)
        if reading.max_tokens is not None and writer.tokens >= reading.max_tokens:
            break
        if progress is not None:
            progress("reading", writer.tokens, reading.max_tokens, "tokens")
    mark = writer.kept.mark if writer.kept.closed and writer.kept.mark else identity.mark()
    held = writer.close(mark, progress)
    record = TextRecord(
        source=identity.name, sha256=mark.sha256, characters=mark.characters, documents=len(held.starts),
        tokens=len(held.tokens), tokenizer=spelt,
    )  # fmt: skip
    return held, record


def _read_again(unread: Iterator[Document], identity: TextIdentity, writer: _Writer, limit: int | None) -> None:
    """Read the documents that are stored already, and refuse the text where it does not say the same again."""
    kept, known = writer.kept, writer.kept.mark
    if known is None:
        return
    cut_off = kept.closed and limit is not None and kept.tokens >= limit  # the limit ended it, not the text
    while identity.documents < known.documents or (kept.closed and not cut_off):
        document = next(unread, None)
        if document is None:
            break
        begins = True
        for piece in document:
            identity.add(piece, begins=begins)
            begins = False
            if cut_off and identity.documents == known.documents and identity.characters >= known.characters:
                break
    identity.finish()
    if not cut_off and (identity.documents, identity.characters) != (known.documents, known.characters):
        raise writer.another(f"the text {identity.name} has grown")


@dataclass(frozen=True)
class _Kept:
    """What the record on disk says: how far the store had come, of what, and the checksums of its two files."""

    vocabulary: int
    made_of: str
    tokens: int = 0
    documents: int = 0
    closed: bool = False
    tokens_sha256: str = ""
    starts_sha256: str = ""
    mark: TextMark | None = None


class _Writer:
    """Appends tokens and starts to two files, and records after whole documents how far it has come.

    The files are flushed to the disk before the record that vouches for them is replaced, so a kill at any moment leaves
    a record whose tokens are all there; what lies behind them is cut off.
    """

    def __init__(self, vocabulary: int, folder: Path | None, made_of: str, *, resume: bool) -> None:
        if vocabulary < 1:
            raise BadInput("The vocabulary is empty.")
        self.vocabulary, self.made_of = vocabulary, made_of
        self.dtype = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
        self.parts: list[Ids] = []
        self.starts: list[int] = []
        self.tokens = self.written = 0
        self.next = monotonic() + _COMMIT
        self.kept = _Kept(vocabulary, made_of)
        self.sha, self.starts_sha = hashlib.sha256(), hashlib.sha256()
        self.folder = folder
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.record = self.folder / "tokens.json"
        if resume and self.record.exists():
            self._continue()
        else:
            self.record.unlink(missing_ok=True)
        self.files = [self._open("tokens.bin", self.tokens * self.dtype.itemsize)]
        self.files.append(self._open("starts.bin", 8 * self.kept.documents))

    def _open(self, name: str, size: int) -> Any:
        assert self.folder is not None
        file = (self.folder / name).open("ab")
        file.truncate(size)
        return file

    def another(self, why: str) -> BadInput:
        """What is said of a store that cannot be continued."""
        return BadInput(f"The count in {self.folder} cannot be resumed: {why}; start afresh without --resume.")

    def _damaged(self, name: str) -> BadInput:
        assert self.folder is not None
        return BadInput(
            f"What was stored of the count is damaged ({self.folder / name}): start afresh without --resume."
        )

    def _continue(self) -> None:
        try:
            stored = json.loads(self.record.read_text(encoding="utf-8"))
            mark = stored.pop("mark")
            self.kept = kept = _Kept(**stored, mark=None if mark is None else TextMark(**mark))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            raise self._damaged(self.record.name) from None
        if kept.vocabulary != self.vocabulary:
            raise self.another(f"the vocabulary had {kept.vocabulary} tokens and has {self.vocabulary} now")
        if kept.made_of != self.made_of:
            raise self.another("it was begun with another tokenizer or other settings of reading")
        self._hash("tokens.bin", kept.tokens * self.dtype.itemsize, self.sha, kept.tokens_sha256)
        starts = self._hash("starts.bin", 8 * kept.documents, self.starts_sha, kept.starts_sha256)
        self.starts = np.frombuffer(starts, dtype=np.int64).tolist()
        self.tokens = kept.tokens
        self.written = kept.documents

    def _hash(self, name: str, size: int, sha: Any, expected: str) -> bytes:
        """Read so many bytes of a stored file into a checksum; they are returned for the small one."""
        assert self.folder is not None
        held, left = b"", size
        try:
            with (self.folder / name).open("rb") as file:
                while left and (block := file.read(min(left, _BLOCK))):
                    sha.update(block)
                    left -= len(block)
                    held += block if name == "starts.bin" else b""
        except OSError:
            left = -1
        if left or sha.hexdigest() != expected:
            raise self._damaged(name)
        return held

    def begin(self) -> None:
        self.starts.append(self.tokens)

    def add(self, ids: Ids) -> None:
        if not len(ids):
            return
        if ids.min() < 0 or ids.max() >= self.vocabulary:
            raise BadInput(f"A token id lies outside the vocabulary of {self.vocabulary}.")
        part = ids.astype(self.dtype)
        self.tokens += len(part)
        self.sha.update(part.tobytes())
        if self.folder is None:
            self.parts.append(part)
        else:
            self.files[0].write(part.tobytes())

    def commit_if_due(self, mark: TextMark | None, progress: Progress | None) -> None:
        if self.folder is not None and monotonic() >= self.next:
            clock = monotonic()
            self._commit(mark, closed=False)
            now = monotonic()
            self.next = now + max(_COMMIT, _SPARSE * (now - clock))
        if progress is not None:
            progress("reading", self.tokens, None, "tokens")

    def _commit(self, mark: TextMark | None, *, closed: bool) -> None:
        new = np.asarray(self.starts[self.written :], dtype=np.int64).tobytes()
        self.starts_sha.update(new)
        self.files[1].write(new)
        for file in self.files:
            file.flush()
            os.fsync(file.fileno())
        state = _Kept(
            self.vocabulary, self.made_of, self.tokens, len(self.starts), closed, self.sha.hexdigest(),
            self.starts_sha.hexdigest(), mark,
        )  # fmt: skip
        write_atomic(self.record, json.dumps(asdict(state)))
        self.written = len(self.starts)

    def close(self, mark: TextMark | None, progress: Progress | None) -> TokenStore:
        tokens: Ids = np.zeros(0, dtype=self.dtype)
        if self.folder is None:
            tokens = np.concatenate(self.parts) if self.parts else tokens
        else:
            if not self.kept.closed:
                self._commit(mark, closed=True)
            for file in self.files:
                file.close()
            if self.tokens:
                tokens = np.memmap(self.folder / "tokens.bin", dtype=self.dtype, mode="r")
        # Documents without tokens have no positions: their starts would only repeat.
        starts = np.unique(np.asarray(self.starts, dtype=np.int64))
        starts = starts[starts < self.tokens]
        self.sha.update(starts.tobytes())
        if progress is not None:
            progress("reading", self.tokens, self.tokens, "tokens")
        return TokenStore(tokens, starts, self.vocabulary, self.sha.hexdigest())
