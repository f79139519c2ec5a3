"""The tokens of a corpus on disk (or in memory), document after document: what a count reads, once and in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headscan.errors import BadInput
from headscan.text.documents import Document, Source
from headscan.text.documents import documents as read_documents
from headscan.text.tokens import tokenise

__all__ = ["Spool", "spool", "spool_text"]

Progress = Callable[[str, int, int | None], None]
_COMMIT = 1 << 22  # tokens between two records of how far the spool has come


@dataclass(frozen=True, eq=False)
class Spool:
    """`tokens` uint16 or uint32 [n] (a memory map when on disk) and `starts` int64 [documents], where each begins."""

    tokens: np.ndarray
    starts: np.ndarray
    vocabulary: int
    fingerprint: str

    @property
    def longest(self) -> int:
        """Tokens of the longest document."""
        return int(np.diff(self.starts, append=len(self.tokens)).max()) if len(self.starts) else 0

    def positions(self, first: int, last: int, order: int) -> np.ndarray | None:
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


def spool(
    documents: Iterable[np.ndarray], vocabulary: int, folder: Path | None, *, resume: bool, progress: Progress | None
) -> Spool:
    """Spool documents of token ids; with `resume`, those already on disk are skipped."""
    writer = _Writer(vocabulary, folder, resume=resume)
    for number, document in enumerate(documents):
        if number < writer.documents_kept:
            continue
        writer.begin()
        writer.add(np.asarray(document))
        writer.commit_if_due(progress)
    return writer.close(progress)


def spool_text(
    source: Source,
    tokenizer: Any,
    vocabulary: int,
    folder: Path | None,
    *,
    documents: str,
    field: str,
    max_tokens: int | None,
    resume: bool,
    progress: Progress | None,
    account: dict[str, Any] | None = None,
) -> Spool:
    """Spool the tokens of a text, tokenised in a stream; `account` is given the characters read and their SHA-256."""
    writer = _Writer(vocabulary, folder, resume=resume)
    kept = writer.documents_kept

    def unread() -> Iterator[Document]:
        for number, document in enumerate(read_documents(source, documents=documents, field=field)):
            if number >= kept:
                yield document

    sha, characters = hashlib.sha256(), 0
    for stretch in () if writer.closed else tokenise(unread(), tokenizer):
        if stretch.begins:
            writer.commit_if_due(progress)
            writer.begin()
            sha.update(b"\xff" if characters else b"")
        sha.update(stretch.text.encode())
        characters += len(stretch.text)
        ids = stretch.ids if max_tokens is None else stretch.ids[: max_tokens - writer.tokens]
        writer.add(ids)
        if max_tokens is not None and writer.tokens >= max_tokens:
            break
        if progress is not None:
            progress("reading", writer.tokens, max_tokens)
    if account is not None and not kept and not writer.closed:
        account |= {"sha256": sha.hexdigest(), "characters": characters}
    return writer.close(progress)


class _Writer:
    """Appends tokens, and records after whole documents how far it has come."""

    def __init__(self, vocabulary: int, folder: Path | None, *, resume: bool) -> None:
        self.vocabulary = vocabulary
        self.dtype = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.uint32)
        self.parts: list[np.ndarray] = []
        self.starts: list[int] = []
        self.tokens = self.documents_kept = self.committed = 0
        self.closed = False
        self.sha = hashlib.sha256()
        self.folder = None if folder is None else folder / "work"
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.record, self.path = self.folder / "spool.json", self.folder / "tokens.bin"
        if resume and self.record.exists():
            self._continue()
        else:
            self.record.unlink(missing_ok=True)
            self.path.write_bytes(b"")
        self.file = self.path.open("ab")

    def _continue(self) -> None:
        assert self.folder is not None
        kept = json.loads(self.record.read_text())
        if kept["vocabulary"] != self.vocabulary:
            raise BadInput("The count to resume was begun with another vocabulary; start afresh in another folder.")
        self.tokens = self.committed = kept["tokens"]
        self.documents_kept, self.closed = kept["documents"], kept["closed"]
        self.starts = np.fromfile(self.folder / "starts.bin", dtype=np.int64)[: self.documents_kept].tolist()
        with self.path.open("r+b") as file:
            file.truncate(self.tokens * self.dtype.itemsize)
        with self.path.open("rb") as file:
            while block := file.read(1 << 22):
                self.sha.update(block)

    def begin(self) -> None:
        self.starts.append(self.tokens)

    def add(self, ids: np.ndarray) -> None:
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
            self.file.write(part.tobytes())

    def commit_if_due(self, progress: Progress | None) -> None:
        if self.folder is not None and self.tokens - self.committed >= _COMMIT:
            self._commit(closed=False)
        if progress is not None:
            progress("reading", self.tokens, None)

    def _commit(self, *, closed: bool) -> None:
        assert self.folder is not None
        self.file.flush()
        np.asarray(self.starts, dtype=np.int64).tofile(self.folder / "starts.bin")
        state = {"vocabulary": self.vocabulary, "tokens": self.tokens, "documents": len(self.starts), "closed": closed}
        aside = self.record.with_suffix(".new")
        aside.write_text(json.dumps(state))
        aside.replace(self.record)
        self.committed = self.tokens

    def close(self, progress: Progress | None) -> Spool:
        # Documents without tokens have no positions: their starts would only repeat.
        if self.folder is None:
            tokens = np.concatenate(self.parts) if self.parts else np.zeros(0, dtype=self.dtype)
        else:
            if not self.closed:
                self._commit(closed=True)
            self.file.close()
            tokens = np.memmap(self.path, dtype=self.dtype, mode="r") if self.tokens else np.zeros(0, dtype=self.dtype)
        starts = np.unique(np.asarray(self.starts, dtype=np.int64))
        starts = starts[starts < self.tokens]
        self.sha.update(starts.tobytes())
        if progress is not None:
            progress("reading", self.tokens, self.tokens)
        return Spool(tokens, starts, self.vocabulary, self.sha.hexdigest())
