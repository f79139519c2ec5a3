"""Streaming tokenisation: exactly the tokens of each whole document, though long documents are read in pieces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscan.run.errors import BadInput
from headscan.text.documents import Document
from headscan.text.stitching import Cut, Piece, common_cut, cuts_inside_words

__all__ = ["Stretch", "end_of_text", "tokenise", "tokenizer_identity", "unknown_token"]

PIECE = 1 << 12  # characters a piece
OVERLAP = 192  # characters two neighbouring pieces share
BATCH = 1 << 18  # characters given to the tokenizer in one call
WORD = 1 << 20  # characters of the longest stretch that is tokenised at once because nowhere in it a word surely ends


class Stretch(NamedTuple):
    """A stretch of one document: its characters, their tokens [n] int64, and whether the document begins with it.

    `ends` [n], where they were asked for: the character of the document behind each token's last one.
    """

    text: str
    ids: NDArray[np.int64]
    begins: bool
    ends: NDArray[np.int64] | None = None


def end_of_text(tokenizer: Any) -> int | None:
    """The id of the tokenizer's end-of-text token, or None where it has none (a BERT)."""
    return getattr(tokenizer, "eos_token_id", None)


def unknown_token(tokenizer: Any) -> int | None:
    """The id that stands for unknown text, or None where there is none.

    Some byte-level tokenizers (GPT-2) name their end-of-text token as the unknown one though they never need it;
    an id with another duty is not taken for an unknown one.
    """
    unknown = getattr(tokenizer, "unk_token_id", None)
    duties = (getattr(tokenizer, f"{duty}_token_id", None) for duty in ("eos", "bos", "pad", "sep", "cls", "mask"))
    return None if unknown in duties else unknown


def tokenizer_identity(tokenizer: Any) -> str:
    """A tokenizer by its content: its class, and the hash of its vocabulary and rules (how it pads and cuts aside).

    >>> class Letters:
    ...     def get_vocab(self):
    ...         return {"a": 0}
    >>> tokenizer_identity(Letters())
    'Letters 67961a330b536700'
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        rules = json.loads(backend.to_str())
        content = json.dumps({key: rules[key] for key in sorted(rules) if key not in ("truncation", "padding")})
    else:
        vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
        content = json.dumps(sorted(vocabulary.items(), key=lambda entry: int(entry[1])))
    return f"{type(tokenizer).__name__} {hashlib.sha256(content.encode()).hexdigest()[:16]}"


def tokenise(
    documents: Iterable[Document],
    tokenizer: Any,
    *,
    piece: int = PIECE,
    overlap: int = OVERLAP,
    batch: int = BATCH,
    ends: bool = False,
) -> Iterator[Stretch]:
    """Stream the tokens of documents, equal to `tokenizer(document, add_special_tokens=False)` of each whole one.

    A fast tokenizer of transformers gets many short documents, and long ones in overlapping pieces, in one call; the
    pieces are joined where both tokenise alike (`headscan.text.stitching` says why that is exact). A document in
    which no such place is found (one word of thousands of letters) is tokenised in longer and longer pieces, up to
    1,048,576 characters.
    A tokenizer with the attribute `splits_anywhere` (bytes, characters: the tokens of a text are the tokens of
    its parts, wherever it is cut) gets pieces without overlap. Any other one, the slow tokenizers of transformers
    among them, gives no offsets and gets each document whole, in memory.

    Args:
        documents: each is read once, in order.
        tokenizer: of transformers, or any object with `encode(text, add_special_tokens=False) -> list of ids`.
        piece: characters of a piece.
        overlap: characters that two neighbouring pieces share; less than half a piece.
        batch: characters of one call of the tokenizer.
        ends: say of every token where it ends.

    Yields:
        Stretch(text, ids, begins), whose texts join to the documents and whose ids join to their tokens.

    Raises:
        BadInput: a word is longer than that, or a document of the third kind longer than 16,777,216 characters; with
            `ends`, a tokenizer that does not say where its tokens end.

    Memory: independent of the documents' lengths, for the first two kinds of tokenizers.
    """
    if not 0 < 2 * overlap < piece:
        raise ValueError("The overlap is more than nothing and less than half a piece.")
    anywhere = bool(getattr(tokenizer, "splits_anywhere", False))
    if not anywhere and getattr(tokenizer, "is_fast", False) and hasattr(tokenizer, "backend_tokenizer"):
        yield from _stitched(documents, tokenizer, piece, overlap, batch, ends)
        return
    for document in documents:
        done = 0
        for text in document if anywhere else [document.text()]:
            if text:
                ids = _plain(tokenizer, text)
                yield Stretch(text, ids, done == 0, done + _letters(tokenizer, text, ids) if ends else None)
                done += len(text)


def _letters(tokenizer: Any, text: str, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the tokens end, of a tokenizer of characters or of UTF-8 bytes (a character's last byte ends it, and all)."""
    characters = np.arange(1, len(text) + 1)
    if getattr(tokenizer, "splits_anywhere", False):
        if len(ids) == len(text):
            return characters
        bytes_of = np.array([len(letter.encode("utf-8", "replace")) for letter in text])
        if len(ids) == bytes_of.sum():
            return np.repeat(characters, bytes_of)
    raise BadInput(
        f"The tokenizer {type(tokenizer).__name__} does not say where its tokens end, so that they cannot be held against "
        "those of another one: use a fast tokenizer."
    )


def _plain(tokenizer: Any, text: str) -> NDArray[np.int64]:
    # transformers warns of texts longer than the model's context, unless told not to; others know no such word
    if hasattr(tokenizer, "model_max_length"):
        return np.asarray(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], dtype=np.int64)
    return np.asarray(tokenizer.encode(text, add_special_tokens=False), dtype=np.int64)


def _encode(tokenizer: Any, texts: list[str]) -> list[Any]:
    """One call for many texts, without special tokens, truncation, padding and warnings."""
    encodings: list[Any] = tokenizer(
        texts,
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        truncation=False,
        padding=False,
        verbose=False,
    ).encodings
    return encodings


def _pieces(document: Document, size: int, overlap: int) -> Iterator[Piece]:
    held: list[str] = []
    length, start = 0, 0
    for text in document:
        held.append(text)
        length += len(text)
        if length <= size:
            continue
        joined = "".join(held)
        begin = 0
        while length - begin > size:  # more than a piece is there, so this one is not the last
            yield Piece(joined[begin : begin + size], start + begin, False)
            begin += size - overlap
        held, length, start = [joined[begin:]], length - begin, start + begin
    yield Piece("".join(held), start, True)


def _stitched(
    documents: Iterable[Document], tokenizer: Any, size: int, overlap: int, batch: int, ends: bool
) -> Iterator[Stretch]:
    longest = max((len(str(token)) for token in tokenizer.get_added_vocab()), default=0)
    overlap = max(overlap, 4 * longest)  # at least half of it lies outside the margins
    size = max(size, 2 * overlap + 1)
    stitcher = _Stitcher(tokenizer, max(overlap // 8, longest), ends)
    waiting: list[Piece] = []
    length = 0
    for document in documents:
        for piece in _pieces(document, size, overlap):
            waiting.append(piece)
            length += len(piece.text)
            if length >= batch:
                yield from stitcher.take(waiting)
                waiting, length = [], 0
    yield from stitcher.take(waiting)


class _Stitcher:
    """Joins the pieces of one document after another; holds the piece that awaits its successor."""

    def __init__(self, tokenizer: Any, margin: int, ends: bool) -> None:
        self.tokenizer, self.ends = tokenizer, ends
        self.margin = margin  # characters at the ends of a piece that are not trusted
        self.inside_words = cuts_inside_words(tokenizer.backend_tokenizer)
        self.held: Piece | None = None
        self.more = ""  # text after the held piece, of pieces that could not be joined to it
        self.token = 0  # tokens of the held piece before this index, and ...
        self.done = 0  # ... characters of the document before this one have been given out

    def take(self, pieces: list[Piece]) -> Iterator[Stretch]:
        if not pieces:
            return
        for piece, encoding in zip(pieces, _encode(self.tokenizer, [piece.text for piece in pieces]), strict=True):
            piece.encoding = encoding
            yield from self._join(piece)

    def _join(self, piece: Piece) -> Iterator[Stretch]:
        if self.held is None:
            self.held, self.token, self.done = piece, 0, 0
        else:
            end = self.held.start + len(self.held.text)
            cut = None if self.more else self._cut(piece, piece.start + self.margin, end - self.margin)
            if cut is None:
                # No place in the overlap: make one piece of both. By doubling its length the cost stays linear.
                self.more += piece.text[end + len(self.more) - piece.start :]
                if len(self.held.text) + len(self.more) > WORD:
                    raise BadInput(
                        f"The text has a word of more than {WORD:,} characters (from character {self.done:,} of a document "
                        "on), which no tokenizer is made for: is it text?"
                    )
                if len(self.more) < len(self.held.text) and not piece.last:
                    return
                piece = Piece(self.held.text + self.more, self.held.start, piece.last)
                [piece.encoding] = _encode(self.tokenizer, [piece.text])
                self.more = ""
                if piece.start > 0:
                    # the token before the last cut is where they agree for certain
                    low = self.held.start + self.held.encoding.token_to_chars(self.token - 1)[0]
                    cut = self._cut(piece, low, end - self.margin)
                    if cut is None:
                        raise RuntimeError(
                            f"Characters {self.done} to {end} of a document are tokenised in another way each time "
                            "the text around them changes, so the document cannot be streamed."
                        )
            if cut is not None:
                yield self._given(cut.left, cut.at)
                self.token = cut.right
            self.held = piece
        if piece.last:
            yield self._given(None, piece.start + len(piece.text))
            self.held = None

    def _cut(self, b: Piece, low: int, high: int) -> Cut | None:
        assert self.held is not None
        return common_cut(self.held, b, low, high, self.inside_words)

    def _given(self, token: int | None, at: int) -> Stretch:
        """The held piece from where the last stretch ended to this token and this character."""
        piece = self.held
        assert piece is not None
        text = piece.text[self.done - piece.start : at - piece.start]
        ids = np.asarray(piece.encoding.ids[self.token : token], dtype=np.int64)
        begins, self.done = self.done == 0, at
        if not self.ends:
            return Stretch(text, ids, begins)
        offsets = np.asarray(piece.encoding.offsets, dtype=np.int64).reshape(-1, 2)[self.token : token, 1]
        return Stretch(text, ids, begins, offsets + piece.start)
