"""Windows: consecutive, non-overlapping stretches of `context` tokens over a stream of documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscan.errors import BadInput
from headscan.text.documents import Source, documents
from headscan.text.tokens import end_of_text, tokenise, unknown_token

__all__ = ["Window", "Windows"]


@dataclass(frozen=True, eq=False)
class Window:
    """One window: its number from the beginning of the text, and its token ids, int64 [context]."""

    index: int
    ids: NDArray[np.int64]


class Windows:
    """The windows of a text, each one row of a forward pass.

    Documents are tokenised without added special tokens and joined with the tokenizer's end-of-text token where it
    has one: between two documents, not after the last. (A document that has no tokens, such as white space
    to a BERT, is joined to nothing.) The tokens are cut into consecutive windows that do not overlap; a rest shorter
    than a window is dropped. Iterating twice gives the same windows twice (but standard input is read only once).

    Args:
        source: where the text is; see `headscan.text.documents`.
        tokenizer: of transformers, or as `headscan.text.tokenise` says.
        context: tokens of a window, at least 1.
        documents: how a .txt is cut into documents: "whole", "lines", "paragraphs" or a separator.
        field: the field of a row that is its document.
        max_tokens: at most so many tokens, in whole windows: `max_tokens // context` windows.
        start: continue at this window, with the identical windows and account as if the ones before had been given.
            The text before is read and tokenised again (about a million tokens a second), nothing else.

    Raises:
        BadInput: on iterating, what `headscan.text.documents` raises; or the text is empty or shorter than one window.

    >>> class Letters:
    ...     eos_token_id, splits_anywhere = 0, True
    ...     def encode(self, text, add_special_tokens=False):
    ...         return [ord(letter) for letter in text]
    >>> windows = Windows(["abc", "de"], Letters(), 3)
    >>> [(window.index, window.ids.tolist()) for window in windows]
    [(0, [97, 98, 99]), (1, [0, 100, 101])]
    >>> windows.account()["tokens"], windows.account()["dropped_tokens"]
    (6, 0)
    """

    def __init__(
        self,
        source: Source,
        tokenizer: Any,
        context: int,
        *,
        documents: str = "whole",
        field: str = "text",
        max_tokens: int | None = None,
        start: int = 0,
    ) -> None:
        if context < 1:
            raise BadInput(f"A window has at least one token, not {context}.")
        if max_tokens is not None and max_tokens < context:
            raise BadInput(f"At most {max_tokens} tokens are asked for, less than one window of {context}.")
        if start < 0:
            raise BadInput(f"The first window has the number 0, so none can start at {start}.")
        self.source, self.tokenizer, self.context = source, tokenizer, context
        self.documents, self.field, self.start = documents, field, start
        self.limit = None if max_tokens is None else max_tokens // context
        self._consumed = False  # standard input
        self._reset()

    def _reset(self) -> None:
        self._sha256 = hashlib.sha256()
        self._documents = self._characters = self._windows = self._dropped = self._unknown = 0

    def account(self) -> dict[str, Any]:
        """What has been read up to now (all of it, once iteration has ended), for the protocol of a result.

        Returns:
            source: as given ("<list>" for a list of strings).
            sha256: of the text read: UTF-8, the byte 0xFF (which UTF-8 never has) between two documents. So it is the
                file's own SHA-256 when the text is one .txt read whole as one document (without byte order mark).
            documents, characters: begun and read. When `max_tokens` ends the reading, these and `sha256` go
                to the end of the stretch of text (at most 4 Ki characters of one document, as a rule) that holds
                the last window; they do not depend on `start`.
            tokens: in windows, those before `start` too; so windows * context.
            windows: their number, those before `start` too.
            dropped_tokens: tokens at the end of the text that filled no window; 0 when `max_tokens` ended the reading.
            unknown_tokens: how many of `tokens` are the tokenizer's unknown token.
        """
        return {
            "source": "<list>" if isinstance(self.source, (list, tuple)) else str(self.source),
            "sha256": self._sha256.hexdigest(),
            "documents": self._documents,
            "characters": self._characters,
            "tokens": self._windows * self.context,
            "windows": self._windows,
            "dropped_tokens": self._dropped,
            "unknown_tokens": self._unknown,
        }

    def __iter__(self) -> Iterator[Window]:
        if str(self.source) == "-":
            if self._consumed:
                raise BadInput("Standard input can be read only once.")
            self._consumed = True
        self._reset()
        unknown = unknown_token(self.tokenizer)
        held = np.empty(0, dtype=np.int64)
        for part in self._tokens():
            held = np.concatenate([held, part]) if len(held) else part
            whole = len(held) // self.context
            if self.limit is not None:
                whole = min(whole, self.limit - self._windows)
            for row in held[: whole * self.context].reshape(whole, self.context):
                index = self._windows
                self._windows += 1
                if unknown is not None:
                    self._unknown += int(np.count_nonzero(row == unknown))
                if index >= self.start:
                    yield Window(index, row.copy())
            held = held[whole * self.context :]
            if self._windows == self.limit:
                return
        self._dropped = len(held)
        if not self._characters:
            raise BadInput(f"The text {self.account()['source']} is empty.")
        if not self._windows:
            raise BadInput(
                f"The text {self.account()['source']} has {len(held)} tokens, less than one window of {self.context}."
            )

    def _tokens(self) -> Iterator[NDArray[np.int64]]:
        """The token stream in parts, documents joined; the account follows each part."""
        joint = end_of_text(self.tokenizer)
        begun = False  # a token has been given out
        owed = False  # the joint before the next token
        texts = documents(self.source, documents=self.documents, field=self.field)
        for stretch in tokenise(texts, self.tokenizer):
            if stretch.begins:
                if self._documents:
                    self._sha256.update(b"\xff")
                self._documents += 1
                owed = begun
            self._sha256.update(stretch.text.encode())
            self._characters += len(stretch.text)
            if not len(stretch.ids):
                continue
            if owed and joint is not None:
                yield np.concatenate([[joint], stretch.ids])
            else:
                yield stretch.ids
            begun, owed = True, False
