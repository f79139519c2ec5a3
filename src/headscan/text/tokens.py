"""Streaming tokenisation: exactly the tokens of each whole document, though long documents are read
in pieces.
"""

import hashlib
import json
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscan.run.errors import BadInput
from headscan.text.documents import Document

# ---- Where the tokenisations of two overlapping pieces of a text may be joined, so that the whole is exact.
#
# Let piece A be right up to a character e where a token ends, and let piece B, which begins before
# e and ends after A, have a boundary at e too. The joined tokenisation is A's up to e and B's from
# e.
#
# * At a boundary of words (pre-tokens) in both pieces: a pre-tokeniser scans from left to right, so
# what follows a boundary
# depends on the text from there on alone, and a model (BPE, WordPiece, Unigram) never looks beyond
# a word. To end a word,
# patterns look ahead over white space (the `\s+(?!\S)` of GPT-2, the `\s*[\r\n]+` of GPT-4) and no
# further, so e is never
#   taken between two white spaces.
# * Inside a word, for BPE: a sequence of tokens is the BPE of its text if and only if every two
# neighbours are the BPE of
# theirs. (Consider the first merge, in the run over the whole word, that crosses a boundary between
# two neighbours. Until
# then what was done inside the two is what a run over the two alone does; that run would make the
# same crossing, for it
# picks by the same ranks and positions. The other direction is the same argument read backwards.)
# If A and B have the token
# before e in common, every two neighbours of the joined sequence are neighbours in A or in B. This
# needs both pieces to cut
# the same word there, which is certain where no pre-tokeniser cuts at all, or only at a single
# character: sentencepiece-like
#   tokenizers. Elsewhere only boundaries of words are used.
#
# Normalisation and the cutting out of added tokens look around too: over the marks on a letter, at
# the ends of a piece (a prefix space), as far as the longest added token. So e is never taken
# before a mark, and nothing within a margin of the ends of a piece is used, longer than any added
# token. The token before e must agree in id and place, the one after it in its beginning, and e is
# taken from the middle of the longest run of agreeing tokens. A text in which no such place exists
# is not cut there: the piece is made longer instead. The tests compare with whole documents, for
# pieces of a few dozen characters.


class Cut(NamedTuple):
    """A join: A's tokens before index `left`, then B's from index `right`; both at character `at`
    of the text.
    """

    left: int
    right: int
    at: int


@dataclass
class Piece:
    """A piece of a document on its way through the tokenizer."""

    text: str
    start: int  # in characters of the document
    last: bool  # nothing of the document follows
    encoding: Any = None  # `tokenizers.Encoding`


class _Token(NamedTuple):
    id: int
    start: int
    end: int


class _Next(NamedTuple):
    start: int
    new_word: bool


def cuts_inside_words(backend: Any) -> bool:
    """Whether a boundary inside a word may serve, which needs plain BPE and words that are cut by
    no context.
    """
    from tokenizers.models import BPE

    model = backend.model
    if (
        not isinstance(model, BPE)
        or model.dropout
        or model.continuing_subword_prefix
        or model.end_of_word_suffix
    ):
        return False
    if backend.pre_tokenizer is None:
        return True
    return _never_looks_around(json.loads(backend.pre_tokenizer.__getstate__()))


def _never_looks_around(part: dict[str, Any]) -> bool:
    match part["type"]:
        case "Sequence":
            return all(_never_looks_around(inner) for inner in part["pretokenizers"])
        case "ByteLevel":
            return not part.get("use_regex", True)
        case "Split":
            return len(part["pattern"].get("String", "")) == 1
        case kind:
            return bool(kind == "Metaspace")


def common_cut(a: Piece, b: Piece, low: int, high: int, inside_words: bool) -> Cut | None:
    """The best place to go over from piece A to piece B, or None; only tokens within characters
    [low, high) are considered.
    """
    a_first, a_tokens, a_next = _within(a, low, high)
    b_first, b_tokens, b_next = _within(b, low, high)
    # A character of several tokens (bytes of an emoji) can repeat an (id, start, end): such tokens
    # name no place.
    places: dict[_Token, int] = {}
    for j, token in enumerate(b_tokens):
        places[token] = -1 if token in places else j

    best: tuple[int, Cut] | None = None
    run: list[
        Cut | None
    ] = []  # the boundary after each of the current run of agreeing tokens, where admissible

    def close() -> None:
        nonlocal best
        cuts = [(abs(2 * k - len(run)), cut) for k, cut in enumerate(run, 1) if cut]
        if cuts and (best is None or len(run) > best[0]):
            best = (len(run), min(cuts)[1])
        run.clear()

    last = -2
    for i, token in enumerate(a_tokens):
        j = places.get(token, -1)
        if j != last + 1:
            close()
        last = j if j >= 0 else -2
        if j < 0:
            continue
        after = a_next[i]
        cut = None
        if (
            after is not None
            and after == b_next[j]
            and after.start >= token.end
            and (inside_words or after.new_word)
        ):
            text = a.text
            at = after.start - a.start
            alone = not (
                text[at].isspace() and text[at - 1].isspace()
            ) and not unicodedata.category(text[at]).startswith("M")
            cut = Cut(a_first + i + 1, b_first + j + 1, after.start) if alone else None
        run.append(cut)
    close()
    return best[1] if best else None


def _within(piece: Piece, low: int, high: int) -> tuple[int, list[_Token], list[_Next | None]]:
    """The tokens wholly inside [low, high): the first one's index, they, and how the token after
    each one begins.
    """
    encoding = piece.encoding
    start = piece.start
    ids = encoding.ids
    low = low - start
    high = high - start
    # starts never decrease
    left = bisect_left(range(len(ids)), low, key=lambda i: encoding.token_to_chars(i)[0])
    tokens: list[_Token] = []
    following: list[_Next | None] = []
    word: int | None = None
    for i in range(left, len(ids)):
        begin, end = encoding.token_to_chars(i)
        previous = word
        word = encoding.token_to_word(i)
        if tokens:
            following.append(_Next(begin + start, word != previous))
        if end > high:
            break
        tokens.append(_Token(ids[i], begin + start, end + start))
    following += [None] * (len(tokens) - len(following))
    return left, tokens, following


PIECE = 1 << 12  # characters a piece
OVERLAP = 192  # characters two neighbouring pieces share
BATCH = 1 << 18  # characters given to the tokenizer in one call
# characters of the longest stretch that is tokenised at once because nowhere in it a word surely
# ends
WORD = 1 << 20


class Stretch(NamedTuple):
    """A stretch of one document: its characters, their tokens [n] int64, whether the document
    begins with it, and, where they were asked for, `ends` [n]: the character of the document behind
    each token's last one.
    """

    text: str
    ids: NDArray[np.int64]
    begins: bool
    ends: NDArray[np.int64] | None = None


def end_of_text(tokenizer: Any) -> int | None:
    """The id of the tokenizer's end-of-text token, or None where it has none (a BERT)."""
    return getattr(tokenizer, "eos_token_id", None)


def unknown_token(tokenizer: Any) -> int | None:
    """The id that stands for unknown text and for nothing else, or None (GPT-2 names its
    end-of-text token).
    """
    unknown = getattr(tokenizer, "unk_token_id", None)
    duties = (
        getattr(tokenizer, f"{duty}_token_id", None)
        for duty in ("eos", "bos", "pad", "sep", "cls", "mask")
    )
    return None if unknown in duties else unknown


def special_frame(tokenizer: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The special tokens that the tokenizer puts before and after a text; none where it adds none."""
    plain, whole = (
        list(tokenizer.encode("a", add_special_tokens=special)) for special in (False, True)
    )
    at = next(
        (k for k in range(len(whole) - len(plain) + 1) if whole[k : k + len(plain)] == plain), None
    )
    before, after = ([], []) if at is None else (whole[:at], whole[at + len(plain) :])
    return np.asarray(before, dtype=np.int64), np.asarray(after, dtype=np.int64)


def tokenizer_identity(tokenizer: Any) -> str:
    """A tokenizer by its content: its class, and the hash of its vocabulary and rules (how it pads
    and cuts aside).
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        rules = json.loads(backend.to_str())
        content = json.dumps(
            {key: rules[key] for key in sorted(rules) if key not in ("truncation", "padding")}
        )
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
    """Stream the tokens of documents, equal to `tokenizer(document, add_special_tokens=False)` of
    each whole one.

    A fast tokenizer of transformers gets many short documents, and long ones in pieces of `piece`
    characters, of which two neighbours share `overlap`, `batch` characters in one call; pieces are
    joined where both tokenise alike (why that is exact stands above). A tokenizer with the
    attribute `splits_anywhere` (bytes, characters: the tokens of a text are those of its parts,
    wherever it is cut) gets pieces without overlap. Any other one, with `encode(text,
    add_special_tokens=False)`, gets each document whole. Memory: independent of the documents'
    lengths, for the first two kinds.

    Yields stretches whose texts join to the documents and whose ids join to their tokens; with
    `ends`, say of every token where it ends. Raises `BadInput` for a word of more than 1,048,576
    characters, a document of the third kind of more than 16,777,216, and, with `ends`, a tokenizer
    that does not say where its tokens end.
    """
    if not 0 < 2 * overlap < piece:
        raise ValueError("The overlap is more than nothing and less than half a piece.")
    anywhere = bool(getattr(tokenizer, "splits_anywhere", False))
    if (
        not anywhere
        and getattr(tokenizer, "is_fast", False)
        and hasattr(tokenizer, "backend_tokenizer")
    ):
        yield from _stitched(documents, tokenizer, piece, overlap, batch, ends)
        return
    for document in documents:
        done = 0
        for text in document if anywhere else [document.text()]:
            if text:
                ids = _plain(tokenizer, text)
                yield Stretch(
                    text, ids, done == 0, done + _letters(tokenizer, text, ids) if ends else None
                )
                done += len(text)


def _letters(tokenizer: Any, text: str, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the tokens end, of a tokenizer of characters or of UTF-8 bytes."""
    characters = np.arange(1, len(text) + 1)
    if getattr(tokenizer, "splits_anywhere", False):
        if len(ids) == len(text):
            return characters
        bytes_of = np.array([len(letter.encode("utf-8", "replace")) for letter in text])
        if len(ids) == bytes_of.sum():
            return np.repeat(characters, bytes_of)
    raise BadInput(
        f"The tokenizer {type(tokenizer).__name__} does not say where its tokens end, so that "
        "they cannot be held against those of another one: use a fast tokenizer."
    )


def _plain(tokenizer: Any, text: str) -> NDArray[np.int64]:
    # transformers warns of texts longer than the model's context, unless told not to; others know
    # no such word
    if hasattr(tokenizer, "model_max_length"):
        return np.asarray(
            tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], dtype=np.int64
        )
    return np.asarray(tokenizer.encode(text, add_special_tokens=False), dtype=np.int64)


def _encode(tokenizer: Any, texts: list[str]) -> list[Any]:
    """One call for many texts, without special tokens, truncation, padding and warnings."""
    words = ("return_attention_mask", "return_token_type_ids", "truncation", "padding", "verbose")
    try:
        encodings: list[Any] = tokenizer(
            texts, add_special_tokens=False, **dict.fromkeys(words, False)
        ).encodings
    except Exception as error:  # the tokenizers library raises bare Exception
        raise BadInput(
            f"The tokenizer cannot read the text: {' '.join(str(error).split())[:200]}."
        ) from error
    return encodings


def _pieces(document: Document, size: int, overlap: int) -> Iterator[Piece]:
    held: list[str] = []
    length = 0
    start = 0
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
        held = [joined[begin:]]
        length = length - begin
        start = start + begin
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
                waiting = []
                length = 0
    yield from stitcher.take(waiting)


class _Stitcher:
    """Joins the pieces of one document after another; holds the piece that awaits its successor."""

    def __init__(self, tokenizer: Any, margin: int, ends: bool) -> None:
        self.tokenizer = tokenizer
        self.ends = ends
        self.margin = margin  # characters at the ends of a piece that are not trusted
        self.inside_words = cuts_inside_words(tokenizer.backend_tokenizer)
        self.held: Piece | None = None
        self.more = ""  # text after the held piece, of pieces that could not be joined to it
        self.token = 0  # tokens of the held piece before this index, and ...
        self.done = 0  # ... characters of the document before this one have been given out

    def take(self, pieces: list[Piece]) -> Iterator[Stretch]:
        if not pieces:
            return
        for piece, encoding in zip(
            pieces, _encode(self.tokenizer, [piece.text for piece in pieces]), strict=True
        ):
            piece.encoding = encoding
            yield from self._join(piece)

    def _join(self, piece: Piece) -> Iterator[Stretch]:
        if self.held is None:
            self.held = piece
            self.token = 0
            self.done = 0
        else:
            end = self.held.start + len(self.held.text)
            cut = (
                None
                if self.more
                else self._cut(piece, piece.start + self.margin, end - self.margin)
            )
            if cut is None:
                # No place in the overlap: make one piece of both. By doubling its length the cost
                # stays linear.
                self.more += piece.text[end + len(self.more) - piece.start :]
                if len(self.held.text) + len(self.more) > WORD:
                    raise BadInput(
                        f"The text has a word of more than {WORD:,} characters (from character "
                        f"{self.done:,} of a document on), which no tokenizer is made for: is it "
                        "text?"
                    )
                if len(self.more) < len(self.held.text) and not piece.last:
                    return
                piece = Piece(self.held.text + self.more, self.held.start, piece.last)
                [piece.encoding] = _encode(self.tokenizer, [piece.text])
                self.more = ""
                if piece.start > 0:
                    # the token before the last cut is where they agree for certain
                    low = self.held.start + self.held.encoding.token_to_chars(self.token - 1)[0]
                    if (cut := self._cut(piece, low, end - self.margin)) is None:
                        raise RuntimeError(
                            f"Characters {self.done} to {end} of a document are tokenised in "
                            "another way each time the text around them changes, so the document "
                            "cannot be streamed."
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
        begins = self.done == 0
        self.done = at
        if not self.ends:
            return Stretch(text, ids, begins)
        offsets = np.asarray(piece.encoding.offsets, dtype=np.int64).reshape(-1, 2)[
            self.token : token, 1
        ]
        return Stretch(text, ids, begins, offsets + piece.start)
