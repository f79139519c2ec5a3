"""Streaming tokenisation: exactly the tokens of each whole document, though long documents are read
in pieces.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscan.run.errors import BadInput
from headscan.text.documents import Document
from headscan.text.joining import Cut, Piece, common_cut, cuts_inside_words

PIECE = 1 << 12
"""Characters of a piece."""

OVERLAP = 192
"""Characters that two neighbouring pieces share."""

BATCH = 1 << 18
"""Characters given to the tokenizer in one call."""

WORD = 1 << 20
"""Characters of the longest stretch that is tokenised at once because no word surely ends in it."""

SPECIAL_TOKENS = ("eos", "bos", "pad", "sep", "cls", "mask")


class Stretch(NamedTuple):
    """A stretch of one document.

    Attributes:
        text: its characters.
        ids: their tokens [n] int64.
        begins: the document begins with it.
        ends: where asked for, the character of the document behind each token's last one [n].
    """

    text: str
    ids: NDArray[np.int64]
    begins: bool
    ends: NDArray[np.int64] | None = None


def end_of_text(tokenizer: Any) -> int | None:
    """Return the id of the tokenizer's end-of-text token; None where it has none (a BERT)."""
    return getattr(tokenizer, "eos_token_id", None)


def unknown_token(tokenizer: Any) -> int | None:
    """Return the id of unknown text if it means nothing else (GPT-2 uses its end-of-text token)."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    special_ids = [getattr(tokenizer, f"{name}_token_id", None) for name in SPECIAL_TOKENS]
    return None if unknown in special_ids else unknown


def special_frame(tokenizer: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the special tokens that the tokenizer puts before and after a text."""
    with _refusing_unreadable():
        plain = list(tokenizer.encode("a", add_special_tokens=False))
        framed = list(tokenizer.encode("a", add_special_tokens=True))
    front: list[int] = []
    end: list[int] = []
    for start in range(len(framed) - len(plain) + 1):
        stop = start + len(plain)
        if framed[start:stop] == plain:
            front = framed[:start]
            end = framed[stop:]
            break
    return np.asarray(front, dtype=np.int64), np.asarray(end, dtype=np.int64)


class Frame(NamedTuple):
    """Token ids that stand before and after the text of a window."""

    front: tuple[int, ...] = ()
    end: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """The number of added positions."""
        return len(self.front) + len(self.end)

    def text(self, length: int) -> slice:
        """Return the positions of the text in `length` positions with the added ones.

        >>> Frame(front=(1,), end=(2, 3)).text(10)
        slice(1, 8, None)
        """
        return slice(len(self.front), length - len(self.end))


NO_FRAME = Frame()


def frame_of(tokenizer: Any, start: str) -> Frame:
    """Return what stands around the text of a window: nothing, the start token, or all that the
    tokenizer adds to a text (nothing where there is no tokenizer).

    Raises:
        BadInput: for "bos", where the tokenizer has no start token; where it cannot read a text.
    """
    if start == "none" or (start == "tokenizer" and tokenizer is None):
        return NO_FRAME
    if start == "tokenizer":
        front, end = special_frame(tokenizer)
        return Frame(tuple(front.tolist()), tuple(end.tolist()))
    for name in ("bos_token_id", "cls_token_id"):
        token = getattr(tokenizer, name, None)
        if token is not None:
            return Frame((int(token),))
    raise BadInput("--start bos is for tokenizers that have a start token: leave it out.")


class SpecialStrings:
    """Counts the strings of a tokenizer's special tokens in a text that is read stretch by stretch.

    >>> class Tokenizer:
    ...     all_special_tokens = ["<unk>"]
    >>> strings = SpecialStrings(Tokenizer())
    >>> for text in ("a <u", "nk> b"):
    ...     strings.add(Stretch(text, np.zeros(0, dtype=np.int64), begins=False))
    >>> dict(strings.counts)
    {'<unk>': 1}
    """

    def __init__(self, tokenizer: Any) -> None:
        strings = [str(string) for string in getattr(tokenizer, "all_special_tokens", ()) if string]
        strings.sort(key=len, reverse=True)
        self.counts: Counter[str] = Counter()
        self._pattern = re.compile("|".join(map(re.escape, strings))) if strings else None
        self._overlap = max(map(len, strings), default=1) - 1
        self._end = ""  # of the text before

    def add(self, stretch: Stretch) -> None:
        """Count the strings that end in this stretch."""
        if self._pattern is None:
            return
        before = "" if stretch.begins else self._end
        text = before + stretch.text
        self.counts.update(
            match[0] for match in self._pattern.finditer(text) if match.end() > len(before)
        )
        self._end = text[len(text) - self._overlap :] if self._overlap else ""


def tokenizer_identity(tokenizer: Any) -> str:
    """Return a tokenizer's class and the hash of its vocabulary and rules, without its truncation
    and padding.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        rules = json.loads(backend.to_str())
        names = sorted(name for name in rules if name not in ("truncation", "padding"))
        content = json.dumps({name: rules[name] for name in names})
    else:
        vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
        content = json.dumps(sorted(vocabulary.items(), key=lambda entry: int(entry[1])))
    digest = hashlib.sha256(content.encode()).hexdigest()
    return f"{type(tokenizer).__name__} {digest[:16]}"


def tokenise(
    documents: Iterable[Document],
    tokenizer: Any,
    *,
    piece: int = PIECE,
    overlap: int = OVERLAP,
    batch: int = BATCH,
    ends: bool = False,
) -> Iterator[Stretch]:
    """Stream the tokens of documents, equal to `tokenizer(document, add_special_tokens=False)` of
    each whole one.

    A fast tokenizer of transformers gets many short documents, and long ones in pieces of `piece`
    characters, of which two neighbours share `overlap`, `batch` characters in one call; pieces are
    joined where both tokenise alike (`headscan.text.joining` explains why that is exact). A
    tokenizer with the attribute `splits_anywhere` (bytes, characters: the tokens of a text are
    those of its parts, wherever it is cut) gets pieces without overlap. Any other one, with
    `encode(text, add_special_tokens=False)`, gets each document whole. Memory: independent of the
    documents' lengths, for the first two kinds.

    Yields stretches whose texts join to the documents and whose ids join to their tokens; with
    `ends`, also where every token ends. Raises `BadInput` for a word of more than 1,048,576
    characters, a document of the third kind of more than 16,777,216, and, with `ends`, a tokenizer
    that does not say where its tokens end.
    """
    if not 0 < 2 * overlap < piece:
        raise ValueError("The overlap is more than nothing and less than half a piece.")
    splits_anywhere = bool(getattr(tokenizer, "splits_anywhere", False))
    is_fast = getattr(tokenizer, "is_fast", False) and hasattr(tokenizer, "backend_tokenizer")
    if is_fast and not splits_anywhere:
        yield from _stitched(documents, tokenizer, piece, overlap, batch, ends)
        return

    for document in documents:
        done = 0
        for text in document if splits_anywhere else [document.text()]:
            if not text:
                continue
            ids = encode_text(tokenizer, text)
            token_ends = done + _token_ends(tokenizer, text, ids) if ends else None
            yield Stretch(text, ids, done == 0, token_ends)
            done += len(text)


def _token_ends(tokenizer: Any, text: str, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where the tokens of a tokenizer of characters or of UTF-8 bytes end."""
    character_ends = np.arange(1, len(text) + 1)
    if getattr(tokenizer, "splits_anywhere", False):
        if len(ids) == len(text):
            return character_ends
        byte_counts = np.array([len(letter.encode("utf-8", "replace")) for letter in text])
        if len(ids) == byte_counts.sum():
            return np.repeat(character_ends, byte_counts)
    raise BadInput(
        f"The tokenizer {type(tokenizer).__name__} does not say where its tokens end, so that "
        "they cannot be aligned with another one's: use a fast tokenizer."
    )


def encode_text(tokenizer: Any, text: str) -> NDArray[np.int64]:
    """Return the tokens of one text, without special tokens: their strings in it are text."""
    # Tokenizers of transformers warn of texts longer than the model's context, unless `verbose` is
    # off; others do not have that argument.
    if hasattr(tokenizer, "model_max_length"):
        ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)[
            "input_ids"
        ]
    else:
        ids = tokenizer.encode(text, add_special_tokens=False)
    return np.asarray(ids, dtype=np.int64)


def _encode(tokenizer: Any, texts: list[str]) -> list[Any]:
    """Return the encodings of many texts from one call, without special tokens and truncation."""
    with _refusing_unreadable():
        encodings: list[Any] = tokenizer(
            texts,
            add_special_tokens=False,
            split_special_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            truncation=False,
            padding=False,
            verbose=False,
        ).encodings
    return encodings


@contextmanager
def _refusing_unreadable() -> Iterator[None]:
    """Turn what a tokenizer raises at a text into BadInput."""
    try:
        yield
    except Exception as error:  # the tokenizers library raises bare Exception
        message = " ".join(str(error).split())[:200]
        raise BadInput(f"The tokenizer cannot read the text: {message}.") from error


def _pieces(document: Document, size: int, overlap: int) -> Iterator[Piece]:
    """Yield a document in pieces of `size` characters, of which two neighbours share `overlap`."""
    unread: list[str] = []
    length = 0
    start = 0
    for text in document:
        unread.append(text)
        length += len(text)
        if length <= size:
            continue
        joined = "".join(unread)
        position = 0
        while length - position > size:  # more than a piece is there, so this one is not the last
            yield Piece(joined[position : position + size], start + position, False)
            position += size - overlap
        unread = [joined[position:]]
        length -= position
        start += position
    yield Piece("".join(unread), start, True)


def _stitched(
    documents: Iterable[Document], tokenizer: Any, size: int, overlap: int, batch: int, ends: bool
) -> Iterator[Stretch]:
    """Yield the tokens of documents that a fast tokenizer reads in pieces."""
    longest_added = max((len(str(token)) for token in tokenizer.get_added_vocab()), default=0)
    overlap = max(overlap, 4 * longest_added)  # at least half of it lies outside the margins
    size = max(size, 2 * overlap + 1)
    margin = max(overlap // 8, longest_added)
    stitcher = _Stitcher(tokenizer, margin, ends)
    waiting: list[Piece] = []
    length = 0
    for document in documents:
        for piece in _pieces(document, size, overlap):
            waiting.append(piece)
            length += len(piece.text)
            if length >= batch:
                yield from stitcher.add(waiting)
                waiting = []
                length = 0
    yield from stitcher.add(waiting)


class _Stitcher:
    """Joins the pieces of one document after another; holds the piece that awaits its successor.

    Attributes:
        margin: characters at the ends of a piece that are not used.
        current: the piece that awaits its successor.
        extension: text after the current piece, of pieces that could not be joined to it.
        token: index of the first token of the current piece that was not yielded.
        done: number of the document's characters that were yielded.
    """

    def __init__(self, tokenizer: Any, margin: int, ends: bool) -> None:
        self.tokenizer = tokenizer
        self.ends = ends
        self.margin = margin
        self.inside_words = cuts_inside_words(tokenizer.backend_tokenizer)
        self.current: Piece | None = None
        self.extension = ""
        self.token = 0
        self.done = 0

    def add(self, pieces: list[Piece]) -> Iterator[Stretch]:
        """Tokenise pieces in one call, and yield the stretches that are certain."""
        if not pieces:
            return
        encodings = _encode(self.tokenizer, [piece.text for piece in pieces])
        for piece, encoding in zip(pieces, encodings, strict=True):
            piece.encoding = encoding
            yield from self._join(piece)

    def _join(self, piece: Piece) -> Iterator[Stretch]:
        """Join a piece to the current one, which it replaces."""
        if self.current is None:
            self.token = 0
            self.done = 0
        else:
            end = self.current.end - self.margin
            cut = None
            if not self.extension:
                cut = self._cut(self.current, piece, piece.start + self.margin, end)
            if cut is None:
                longer = self._extended(self.current, piece)
                if longer is None:
                    return
                piece = longer
                cut = self._cut_of_extended(self.current, piece, end)
            if cut is not None:
                yield self._stretch(self.current, cut.left, cut.at)
                self.token = cut.right

        self.current = piece
        if piece.last:
            yield self._stretch(piece, None, piece.end)
            self.current = None

    def _extended(self, current: Piece, piece: Piece) -> Piece | None:
        """Return one piece of both; None while the extension is still too short.

        It is tokenised again when the current piece has doubled its length, so that the cost stays
        linear.
        """
        known_end = current.end + len(self.extension)
        self.extension += piece.text[known_end - piece.start :]
        if len(current.text) + len(self.extension) > WORD:
            raise BadInput(
                f"The text has a word of more than {WORD:,} characters (from character "
                f"{self.done:,} of a document on), which no tokenizer is made for: is it text?"
            )
        if len(self.extension) < len(current.text) and not piece.last:
            return None
        longer = Piece(current.text + self.extension, current.start, piece.last)
        [longer.encoding] = _encode(self.tokenizer, [longer.text])
        self.extension = ""
        return longer

    def _cut_of_extended(self, current: Piece, longer: Piece, end: int) -> Cut | None:
        """Return where the extended piece replaces the current one.

        At the beginning of a document it replaces all of it (None).
        """
        if longer.start == 0:
            return None
        # Both agree for certain on the token before the last cut.
        low = current.start + current.encoding.token_to_chars(self.token - 1)[0]
        cut = self._cut(current, longer, low, end)
        if cut is None:
            raise RuntimeError(
                f"Characters {self.done} to {current.end} of a document are tokenised in another "
                "way each time the text around them changes, so the document cannot be streamed."
            )
        return cut

    def _cut(self, a: Piece, b: Piece, low: int, high: int) -> Cut | None:
        return common_cut(a, b, low, high, self.inside_words)

    def _stretch(self, piece: Piece, token: int | None, end: int) -> Stretch:
        """Return a piece from where the last stretch ended to this token and this character."""
        text = piece.text[self.done - piece.start : end - piece.start]
        ids = np.asarray(piece.encoding.ids[self.token : token], dtype=np.int64)
        begins = self.done == 0
        self.done = end
        if not self.ends:
            return Stretch(text, ids, begins)
        offsets = np.asarray(piece.encoding.offsets, dtype=np.int64).reshape(-1, 2)
        token_ends = offsets[self.token : token, 1]
        return Stretch(text, ids, begins, token_ends + piece.start)
