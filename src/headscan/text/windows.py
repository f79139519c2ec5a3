"""Windows: stretches of `context` tokens over a stream of documents, or each document by itself;
and batches of windows, with their deterministic shares for many processes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscan.run import BadInput, TextRecord
from headscan.text.documents import Document, documents
from headscan.text.identity import TextIdentity, TextMark
from headscan.text.source import TextLike, source_name
from headscan.text.tokens import (
    SpecialStrings,
    Stretch,
    end_of_text,
    special_frame,
    tokenise,
    unknown_token,
)

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Window:
    """One window of a text.

    Attributes:
        index: its number from the beginning of the text.
        ids: its token ids, int64 [context].
        documents: each token's document [context]. The end-of-text token between two documents
            belongs to the one that it ends.
        ends: where asked for, the character of its document behind each token [context]; −1 for an
            end-of-text token.
    """

    index: int
    ids: Ids
    documents: Ids
    ends: Ids | None = None


Prepare = Callable[[Iterable[str]], Iterable[str]]


class Windows:
    """The windows of a text, each one row of a forward pass.

    Documents are tokenised without added special tokens, and the string of a special token inside
    one is text (give it as `documents` where it parts documents). They are joined with the
    tokenizer's end-of-text token where it has one: between two documents, not after the last. (A
    document that has no tokens, such as white space to a BERT, is joined to nothing.) The tokens
    are cut into consecutive windows that do not overlap; a remainder shorter than a window is
    dropped. Iterating twice gives the same windows twice (but standard input is read only once).

    `source`, `documents` and `field` are as in `headscan.text.documents`, `tokenizer` as in
    `headscan.text.tokenise`; `context` is the tokens of a window. Whole windows of at most
    `max_tokens` tokens in all are given. With `start` the reading continues at this window, with
    the identical windows and record as if the earlier ones had been given; the text before it is
    read and tokenised again, and compared with `expected`, the `mark()` of the reading that is
    continued. `ends`: give the end of every token, too. Iterating raises `BadInput` for what
    `headscan.text.documents` raises, and for a text that is empty, shorter than one window, or not
    the one that was expected.

    With `alone`, windows are what a sentence encoder reads: every document is a window of its own
    length between the special tokens that the tokenizer puts around a text; one that is longer than
    `context` becomes several, or with `cut` its beginning. `prepare` makes of the pieces of each
    document those that are read.

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
        field: str | None = None,
        max_tokens: int | None = None,
        start: int = 0,
        expected: TextMark | None = None,
        ends: bool = False,
        alone: bool = False,
        cut: bool = False,
        prepare: Prepare | None = None,
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
        self.max_tokens = max_tokens
        self.start = start
        self.expected = expected
        self.ends = ends
        self.alone = alone
        self.cut = cut
        self.prepare = prepare
        self._standard_input_read = False
        self._reset()

    def _reset(self) -> None:
        self._identity = TextIdentity(source_name(self.source), self.expected)
        self._window_count = 0
        self._token_count = 0
        self._dropped = 0
        self._unknown = 0
        self._specials = SpecialStrings(self.tokenizer)

    def mark(self) -> TextMark:
        """Return how far the text has been read, and the hash of its content up to there."""
        return self._identity.mark()

    def record(self) -> TextRecord:
        """Return what has been read up to now (all of it, once iteration has ended), for the
        protocol of a result.

        When `max_tokens` ends the reading, `documents`, `characters` and `sha256` go to the end of
        the stretch of text that holds the last window. Nothing depends on `start`. `dropped` tokens
        at the end of the text filled no window (0 when `max_tokens` ended the reading); `unknown`
        is how many of `tokens` are the tokenizer's unknown token.
        """
        mark = self.mark()
        return TextRecord(
            source=self._identity.name,
            sha256=mark.sha256,
            documents=mark.documents,
            characters=mark.characters,
            tokens=self._token_count,
            windows=self._window_count,
            dropped=self._dropped,
            unknown=self._unknown,
            alone=self.alone,
            context=self.context,
            specials=dict(self._specials.counts),
        )

    def __iter__(self) -> Iterator[Window]:
        if str(self.source) == "-":
            if self._standard_input_read:
                raise BadInput("Standard input can be read only once.")
            self._standard_input_read = True
        self._reset()
        unknown = unknown_token(self.tokenizer)
        tables = self._alone() if self.alone else self._packed()
        for index, (ids, owners, *ends) in enumerate(tables):
            if not self._has_room(len(ids)):
                break
            self._window_count = index + 1
            self._token_count += len(ids)
            if unknown is not None:
                self._unknown += int(np.count_nonzero(ids == unknown))
            if index >= self.start:
                yield Window(index, ids.copy(), owners.copy(), ends[0].copy() if ends else None)
            if not self.alone and not self._has_room(self.context):
                break  # before more of the text is read
        self._check_read()
        self._identity.finish()

    def _has_room(self, tokens: int) -> bool:
        """Return whether so many more tokens are within `max_tokens`."""
        return self.max_tokens is None or self._token_count + tokens <= self.max_tokens

    def _check_read(self) -> None:
        """Raise BadInput where the text is empty, or too short for one window."""
        name = self._identity.name
        if not self._identity.characters:
            raise BadInput(f"The text {name} is empty.")
        if self._window_count:
            return
        if self.alone:
            raise BadInput(
                f"The text {name} has no document of at most {self.max_tokens} tokens: give more "
                "to --max-tokens."
            )
        message = (
            f"The text {name} has {self._dropped} tokens, less than one window of {self.context}"
        )
        if self._dropped > 1:
            message += f": --context {self._dropped} or less reads it"
        raise BadInput(f"{message}.")

    def _stretches(self, *, ends: bool) -> Iterator[Stretch]:
        """Return the tokenised stretches of the text."""
        texts = documents(self.source, documents=self.documents, field=self.field)
        if self.prepare is not None:
            prepare = self.prepare
            texts = (Document(document.name, prepare(document)) for document in texts)
        for stretch in tokenise(texts, self.tokenizer, ends=ends):
            self._specials.add(stretch)
            yield stretch

    def _packed(self) -> Iterator[Ids]:
        """Yield windows [2 or 3, context] of ids, documents and ends; the remainder is dropped."""
        unused = np.empty((3 if self.ends else 2, 0), dtype=np.int64)
        for table in self._token_tables():
            unused = np.concatenate([unused, table], axis=1) if unused.size else table
            count = unused.shape[1] // self.context
            used = count * self.context
            windows = unused[:, :used].reshape(len(unused), count, self.context)
            yield from windows.swapaxes(0, 1)
            unused = unused[:, used:]
        self._dropped = unused.shape[1]

    def _token_tables(self) -> Iterator[Ids]:
        """Yield the token stream in tables [2 or 3, n] of ids, documents and ends, with the
        end-of-text tokens between documents.
        """
        separator = end_of_text(self.tokenizer)
        last_document = -1  # that of the last token yielded
        needs_separator = False
        for stretch in self._stretches(ends=self.ends):
            self._identity.add(stretch.text, begins=stretch.begins)
            if stretch.begins:
                needs_separator = last_document >= 0
            if not len(stretch.ids):
                continue
            if needs_separator and separator is not None:
                column = np.array([[separator], [last_document], [-1]])
                yield column if self.ends else column[:2]
            needs_separator = False
            last_document = self._identity.documents - 1
            table = [stretch.ids, np.full(len(stretch.ids), last_document)]
            if stretch.ends is not None:
                table.append(stretch.ends)
            yield np.stack(table)

    def _alone(self) -> Iterator[Ids]:
        """Yield windows [2, n] of ids and documents, with the tokenizer's special tokens around."""
        front, end = special_frame(self.tokenizer)
        capacity = max(1, self.context - len(front) - len(end))
        unused = np.empty(0, dtype=np.int64)
        document = 0

        def framed(ids: Ids) -> Ids:
            row = np.concatenate([front, ids, end])
            return np.stack([row, np.full_like(row, document)])

        for stretch in self._stretches(ends=False):
            if stretch.begins:
                if len(unused):
                    yield framed(unused)
                unused = unused[:0]
                document = self._identity.documents
            # Only now: the identity must not run ahead of the windows.
            self._identity.add(stretch.text, begins=stretch.begins)
            unused = np.concatenate([unused, stretch.ids])
            if self.cut:
                unused = unused[:capacity]
            while len(unused) > capacity:
                yield framed(unused[:capacity])
                unused = unused[capacity:]
        if len(unused):
            yield framed(unused)


class Batch(NamedTuple):
    """A batch of windows of one length.

    Attributes:
        number: its number.
        indices: its windows' indices [b].
        ids: their token ids [b, context], int64.
        documents: these tokens' documents [b, context].
        ends: where asked for, the characters where these tokens end [b, context].
    """

    number: int
    indices: Ids
    ids: Ids
    documents: Ids
    ends: Ids | None = None


def batches(
    windows: Iterable[Window], size: int, *, process: int = 0, processes: int = 1
) -> Iterator[Batch]:
    """Group windows into batches, and yield those of one process.

    Batch k holds the windows k * size ... (k + 1) * size - 1 (the last one may hold fewer) and
    belongs to process k mod `processes`. So the same batches exist whatever the number of
    processes, and also when the windows start at a multiple of `size`. Where windows differ in
    length, there are several batches of one number.

    >>> row = np.arange(2)
    >>> windows = [Window(index, row, row) for index in range(5)]
    >>> [batch.indices.tolist() for batch in batches(windows, 2, process=0, processes=2)]
    [[0, 1], [4]]
    """
    if size < 1 or not 0 <= process < processes:
        raise ValueError("A batch has at least one window, and processes are numbered from 0.")

    def number_and_length(window: Window) -> tuple[int, int]:
        return window.index // size, len(window.ids)

    for (number, _), group in groupby(windows, number_and_length):
        if number % processes == process:
            yield _batch_of(number, list(group))


def _batch_of(number: int, windows: list[Window]) -> Batch:
    ends = [window.ends for window in windows if window.ends is not None]
    return Batch(
        number,
        indices=np.array([window.index for window in windows], dtype=np.int64),
        ids=np.stack([window.ids for window in windows]),
        documents=np.stack([window.documents for window in windows]),
        ends=np.stack(ends) if ends else None,
    )
