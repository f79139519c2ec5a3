"""Where the tokenisations of two overlapping pieces of a text may be joined, so that the whole is
exact.

Let piece A be right up to a character e where a token ends, and let piece B, which begins before e
and ends after A, have a boundary at e too. The joined tokenisation is A's up to e and B's from e.

* At a boundary of words (pre-tokens) in both pieces: a pre-tokeniser scans from left to right, so
  what follows a boundary depends on the text from there on alone, and a model (BPE, WordPiece,
  Unigram) never looks beyond a word. To end a word, patterns look ahead over white space (the
  `\\s+(?!\\S)` of GPT-2, the `\\s*[\\r\\n]+` of GPT-4) and no further, so e is never taken between
  two white spaces.

* Inside a word, for BPE: a sequence of tokens is the BPE of its text if and only if every two
  neighbours are the BPE of theirs. (Consider the first merge, in the run over the whole word, that
  crosses a boundary between two neighbours. Until then what was done inside the two is what a run
  over the two alone does; that run would make the same crossing, for it picks by the same ranks and
  positions. The other direction is the same argument read backwards.) If A and B have the token
  before e in common, every two neighbours of the joined sequence are neighbours in A or in B. This
  needs both pieces to cut the same word there, which is certain where no pre-tokeniser cuts at all,
  or only at a single character: sentencepiece-like tokenizers. Elsewhere only boundaries of words
  are used.

Normalisation and the cutting out of added tokens look around too: over the marks on a letter, at
the ends of a piece (a prefix space), as far as the longest added token. So e is never taken before
a mark, and nothing within a margin of the ends of a piece is used, longer than any added token. The
token before e must agree in id and position, the one after it in its beginning, and e is taken from
the middle of the longest run of agreeing tokens. A text without such a position is not cut there:
the piece is made longer instead. The tests compare with whole documents, for pieces of a few dozen
characters.
"""

import json
import unicodedata
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, NamedTuple


class Cut(NamedTuple):
    """A join: A's tokens before index `left`, then B's from index `right`; both at character `at`
    of the text.
    """

    left: int
    right: int
    at: int


@dataclass
class Piece:
    """A piece of a document on its way through the tokenizer.

    Attributes:
        text: its characters.
        start: the character of the document where it begins.
        last: it ends the document.
        encoding: its `tokenizers.Encoding`, once it is tokenised.
    """

    text: str
    start: int
    last: bool
    encoding: Any = None

    @property
    def end(self) -> int:
        """The character of the document behind its last one."""
        return self.start + len(self.text)


class _Token(NamedTuple):
    """A token and its characters in the document."""

    id: int
    start: int
    end: int


class _Next(NamedTuple):
    """The beginning of the token after another one."""

    start: int
    new_word: bool


@dataclass
class _Tokens:
    """Consecutive tokens of a piece, and the beginnings of the tokens after each of them."""

    first: int  # index of the first one in the piece
    tokens: list[_Token]
    following: list[_Next | None]


def cuts_inside_words(backend: Any) -> bool:
    """Return whether a boundary inside a word may be used.

    This needs plain BPE, and pre-tokenisers that find words without looking at what is around them.
    """
    from tokenizers.models import BPE

    model = backend.model
    if not isinstance(model, BPE) or model.dropout:
        return False
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        return False
    if backend.pre_tokenizer is None:
        return True
    return _never_looks_around(json.loads(backend.pre_tokenizer.__getstate__()))


def _never_looks_around(pre_tokenizer: dict[str, Any]) -> bool:
    match pre_tokenizer["type"]:
        case "Sequence":
            return all(_never_looks_around(part) for part in pre_tokenizer["pretokenizers"])
        case "ByteLevel":
            return not pre_tokenizer.get("use_regex", True)
        case "Split":
            return len(pre_tokenizer["pattern"].get("String", "")) == 1
        case kind:
            return bool(kind == "Metaspace")


def common_cut(a: Piece, b: Piece, low: int, high: int, inside_words: bool) -> Cut | None:
    """Return the best position to go over from piece A to piece B, or None.

    Only tokens within characters [low, high) are considered.
    """
    a_tokens = _tokens_within(a, low, high)
    b_tokens = _tokens_within(b, low, high)
    b_indices = _unique_indices(b_tokens.tokens)

    longest_run = 0
    best_cut = None
    run: list[Cut | None] = []  # the cut after each token of the current run, if admissible
    previous = -2  # index in B of the previous token of the run
    for i, token in enumerate(a_tokens.tokens):
        j = b_indices.get(token)
        if j is None or j != previous + 1:
            middle = _middle_cut(run)
            if middle is not None and len(run) > longest_run:
                longest_run = len(run)
                best_cut = middle
            run = []
        if j is None:
            previous = -2
            continue
        previous = j

        following = a_tokens.following[i]
        cut = None
        if following is not None and following == b_tokens.following[j]:
            at_token_end = following.start >= token.end
            at_boundary = inside_words or following.new_word
            if at_token_end and at_boundary and _may_cut(a.text, following.start - a.start):
                cut = Cut(a_tokens.first + i + 1, b_tokens.first + j + 1, following.start)
        run.append(cut)

    middle = _middle_cut(run)
    if middle is not None and len(run) > longest_run:
        best_cut = middle
    return best_cut


def _unique_indices(tokens: list[_Token]) -> dict[_Token, int]:
    """Return the index of each token that occurs once.

    A character of several tokens (bytes of an emoji) can repeat an (id, start, end): such tokens
    name no position.
    """
    indices: dict[_Token, int] = {}
    repeated = set()
    for index, token in enumerate(tokens):
        if token in indices:
            repeated.add(token)
        indices[token] = index
    return {token: index for token, index in indices.items() if token not in repeated}


def _middle_cut(run: list[Cut | None]) -> Cut | None:
    """Return the admissible cut nearest to the middle of a run of agreeing tokens."""
    distances = [(abs(2 * k - len(run)), cut) for k, cut in enumerate(run, 1) if cut is not None]
    return min(distances)[1] if distances else None


def _may_cut(text: str, position: int) -> bool:
    """Return whether a text may be cut here: not between white spaces, nor before a mark."""
    character = text[position]
    if character.isspace() and text[position - 1].isspace():
        return False
    return not unicodedata.category(character).startswith("M")


def _tokens_within(piece: Piece, low: int, high: int) -> _Tokens:
    """Return the tokens wholly inside [low, high), with the beginning of the token after each."""
    encoding = piece.encoding
    ids = encoding.ids
    start = piece.start
    low -= start
    high -= start

    # The starts never decrease.
    first = bisect_left(range(len(ids)), low, key=lambda index: encoding.token_to_chars(index)[0])
    tokens: list[_Token] = []
    following: list[_Next | None] = []
    word: int | None = None
    for index in range(first, len(ids)):
        token_start, token_end = encoding.token_to_chars(index)
        previous_word = word
        word = encoding.token_to_word(index)
        if tokens:
            following.append(_Next(token_start + start, word != previous_word))
        if token_end > high:
            break
        tokens.append(_Token(ids[index], token_start + start, token_end + start))
    following += [None] * (len(tokens) - len(following))
    return _Tokens(first, tokens, following)
