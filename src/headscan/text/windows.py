"""Windows: stretches of `context` tokens over a stream of documents, or each document by itself."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscan.run import BadInput, TextRecord
from headscan.text.documents import documents
from headscan.text.source import TextIdentity, TextLike, TextMark, source_name
from headscan.text.tokens import end_of_text, special_frame, tokenise, unknown_token


@dataclass(frozen=True, eq=False)
class Window:
    """One window: its number from the beginning of the text, its token ids, and each token's
    document, int64 [context].

    The end-of-text token between two documents belongs to the one that it ends. `ends` [context],
    where they were asked for: the character of its document behind each token, −1 of an end-of-text
    token.
    """

    index: int
    ids: NDArray[np.int64]
    documents: NDArray[np.int64]
    ends: NDArray[np.int64] | None = None


class Windows:
    """The windows of a text, each one row of a forward pass.

    Documents are tokenised without added special tokens and joined with the tokenizer's end-of-text
    token where it has one: between two documents, not after the last. (A document that has no
    tokens, such as white space to a BERT, is joined to nothing.) The tokens are cut into
    consecutive windows that do not overlap; a rest shorter than a window is dropped. Iterating
    twice gives the same windows twice (but standard input is read only once).

    `source`, `documents` and `field` are as in `headscan.text.documents`, `tokenizer` as in
    `headscan.text.tokenise`; `context` is the tokens of a window. Of at most `max_tokens` tokens
    whole windows are given. With `start` the reading goes on at this window, with the identical
    windows and record as if the ones before had been given; the text before is read and tokenised
    again, and compared with `expected`, the `mark()` of the reading that is continued. With `ends`,
    say of every token where it ends. Iterating raises `BadInput` for what `headscan.text.documents`
    raises, and for a text that is empty, shorter than one window, or not the one that was expected.

    With `alone`, what a sentence encoder reads: every document is a window of its own length
    between the special tokens that the tokenizer puts around a text; one that is longer than
    `context` becomes several.

    >>> class Letters:
    ...     eos_token_id, splits_anywhere = 0, True
    ...     def encode(self, text, add_special_tokens=False):
    ...         return [ord(letter) for letter in text]
    >>> windows = Windows(["abc", "de"], Letters(), 3)
    >>> [(window.index, window.ids.tolist(), window.documents.tolist()) for window in windows]
    [(0, [97, 98, 99], [0, 0, 0]), (1, [0, 100, 101], [0, 1, 1])]
    >>> windows.record().tokens, windows.record().dropped
    (6, 0)
    """

    def __init__(
        self,
        source: TextLike,
        tokenizer: Any,
        context: int,
        *,
        documents: str = "whole",
        field: str = "text",
        max_tokens: int | None = None,
        start: int = 0,
        expected: TextMark | None = None,
        ends: bool = False,
        alone: bool = False,
    ) -> None:
        if context < 1:
            raise BadInput(f"A window has at least one token, not {context}.")
        if max_tokens is not None and max_tokens < context and not alone:
            raise BadInput(
                f"At most {max_tokens} tokens are asked for, less than one window of {context}."
            )
        if start < 0:
            raise BadInput(f"The first window has the number 0, so none can start at {start}.")
        self.source = source
        self.tokenizer = tokenizer
        self.context = context
        self.documents = documents
        self.field = field
        self.start = start
        self.expected = expected
        self.ends = ends
        self.alone = alone
        self.most = max_tokens
        self._consumed = False  # standard input
        self._reset()

    def _reset(self) -> None:
        self._identity = TextIdentity(source_name(self.source), self.expected)
        self._windows = self._read = self._dropped = self._unknown = 0

    def mark(self) -> TextMark:
        """How far the text has been read, and what it said."""
        return self._identity.mark()

    def record(self) -> TextRecord:
        """What has been read up to now (all of it, once iteration has ended), for the protocol of a
        result.

        When `max_tokens` ends the reading, `documents`, `characters` and `sha256` go to the end of
        the stretch of text that holds the last window. Nothing depends on `start`. `dropped` tokens
        at the end of the text filled no window (0 when `max_tokens` ended the reading); `unknown`
        says how many of `tokens` are the tokenizer's unknown token.
        """
        read = self.mark()
        return TextRecord(
            source=self._identity.name,
            sha256=read.sha256,
            documents=read.documents,
            characters=read.characters,
            tokens=self._read,
            windows=self._windows,
            dropped=self._dropped,
            unknown=self._unknown,
            alone=self.alone,
            context=self.context,
        )

    def __iter__(self) -> Iterator[Window]:
        if str(self.source) == "-":
            if self._consumed:
                raise BadInput("Standard input can be read only once.")
            self._consumed = True
        self._reset()
        unknown = unknown_token(self.tokenizer)
        least = 0 if self.alone else self.context
        for index, (row, owners, *ends) in enumerate(
            self._alone() if self.alone else self._packed()
        ):
            if self.most is not None and self._read + len(row) > self.most:
                break
            self._windows = index + 1
            self._read = self._read + len(row)
            if unknown is not None:
                self._unknown += int(np.count_nonzero(row == unknown))
            if index >= self.start:
                yield Window(index, row.copy(), owners.copy(), ends[0].copy() if ends else None)
            if (
                least and self.most is not None and self._read + least > self.most
            ):  # read no further
                break
        name = self._identity.name
        if not self._identity.characters:
            raise BadInput(f"The text {name} is empty.")
        if not self._windows:
            if self.alone:
                raise BadInput(
                    f"The text {name} has no document of at most {self.most} tokens: give more to "
                    "--max-tokens."
                )
            many = (
                f"The text {name} has {self._dropped} tokens, less than one window of "
                f"{self.context}"
            )
            raise BadInput(
                f"{many}: --context {self._dropped} or less reads it."
                if self._dropped > 1
                else f"{many}."
            )
        self._identity.finish()

    def _packed(self) -> Iterator[NDArray[np.int64]]:
        """Windows [2 or 3, context] of ids, documents and ends; what is left at the end is dropped."""
        held = np.empty((3 if self.ends else 2, 0), dtype=np.int64)
        for part in self._tokens():
            held = np.concatenate([held, part], axis=1) if held.size else part
            whole = held.shape[1] // self.context
            yield from (
                held[:, : whole * self.context]
                .reshape(len(held), whole, self.context)
                .swapaxes(0, 1)
            )
            held = held[:, whole * self.context :]
        self._dropped = held.shape[1]

    def _alone(self) -> Iterator[NDArray[np.int64]]:
        """Windows [2, n] of ids and documents, each with the tokenizer's special tokens around it."""
        before, after = special_frame(self.tokenizer)
        room = max(1, self.context - len(before) - len(after))
        held = np.empty(0, dtype=np.int64)
        owner = 0

        def framed(ids: NDArray[np.int64]) -> NDArray[np.int64]:
            row = np.concatenate([before, ids, after])
            return np.stack([row, np.full_like(row, owner)])

        for stretch in tokenise(
            documents(self.source, documents=self.documents, field=self.field), self.tokenizer
        ):
            if stretch.begins:
                if len(held):
                    yield framed(held)
                held = held[:0]
                owner = self._identity.documents
            self._identity.add(stretch.text, begins=stretch.begins)
            held = np.concatenate([held, stretch.ids])
            while len(held) > room:
                yield framed(held[:room])
                held = held[room:]
        if len(held):
            yield framed(held)

    def _tokens(self) -> Iterator[NDArray[np.int64]]:
        """The token stream in parts [2 or 3, n] of ids, documents and ends, these joined; the
        identity follows each part.
        """
        joint = end_of_text(self.tokenizer)
        last = -1  # the document of the last token given out
        owed = False  # the joint before the next token
        texts = documents(self.source, documents=self.documents, field=self.field)
        for stretch in tokenise(texts, self.tokenizer, ends=self.ends):
            if stretch.begins:
                owed = last >= 0
            self._identity.add(stretch.text, begins=stretch.begins)
            if not len(stretch.ids):
                continue
            if owed and joint is not None:
                yield np.array([[joint], [last], [-1]])[: 3 if self.ends else 2]
            last = self._identity.documents - 1
            owed = False
            owners = np.full(len(stretch.ids), last)
            yield np.stack(
                [stretch.ids, owners]
                if stretch.ends is None
                else [stretch.ids, owners, stretch.ends]
            )


# ---- Batches of windows, and their deterministic shares for many processes.


class Batch(NamedTuple):
    """A batch: its number, its windows' indices [b], their token ids and these tokens' documents
    [b, context], int64; where they were asked for, where these tokens end.
    """

    number: int
    indices: NDArray[np.int64]
    ids: NDArray[np.int64]
    documents: NDArray[np.int64]
    ends: NDArray[np.int64] | None = None


def batches(
    windows: Iterable[Window], size: int, *, process: int = 0, processes: int = 1
) -> Iterator[Batch]:
    """Group windows into batches, and keep those of one process.

    Batch k holds the windows k * size ... (k + 1) * size - 1 (the last one may hold fewer) and
    belongs to process k mod `processes`. So the same batches exist whatever the number of
    processes, and also when the windows start at a multiple of `size`. Where windows differ in
    length, there are several batches of one number.

    >>> row = np.arange(2)
    >>> [batch.indices.tolist() for batch in batches([Window(i, row, row) for i in range(5)], 2, process=0, processes=2)]
    [[0, 1], [4]]
    """
    if size < 1 or not 0 <= process < processes:
        raise ValueError("A batch has at least one window, and processes are numbered from 0.")
    for (number, _), group in groupby(
        windows, lambda window: (window.index // size, len(window.ids))
    ):
        if number % processes == process:
            held = list(group)
            ends = [window.ends for window in held if window.ends is not None]
            indices = np.array([window.index for window in held], dtype=np.int64)
            ids, documents = (
                np.stack([getattr(window, name) for window in held])
                for name in ("ids", "documents")
            )
            yield Batch(number, indices, ids, documents, np.stack(ends) if ends else None)
