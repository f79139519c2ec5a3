r"""Where the tokenisations of two overlapping pieces of a text may be joined, so that the whole is exact.

Why it is exact. Let piece A be right up to a character e where a token ends, and let piece B, which begins before e
and ends after A, have a boundary at e too. The joined tokenisation is A's up to e and B's from e.

* At a boundary of words (pre-tokens) in both pieces: a pre-tokeniser scans from left to right, so what follows a
  boundary depends on the text from there on alone, and a model (BPE, WordPiece, Unigram) never looks beyond a word.
  To end a word, patterns look ahead over white space (the `\s+(?!\S)` of GPT-2, the `\s*[\r\n]+` of GPT-4) and no
  further, so e is never taken between two white spaces.
* Inside a word, for BPE: a sequence of tokens is the BPE of its text if and only if every two neighbours are the BPE of
  theirs. (The merges are done one by one, the best rank first. Consider the first merge, in the run over the whole
  word, that crosses a boundary between two neighbours. Until then nothing has crossed any boundary, so what has been
  done inside the two is what a run over the two alone does; that run would make the same crossing, for it picks by the
  same ranks and positions. The other direction is the same argument read backwards.) If A and B have the token before
  e in common, every two neighbours of the joined sequence are neighbours in A or in B: it is the BPE of the whole.
  This needs both pieces to cut the same word there, which is certain where no pre-tokeniser cuts at all, or only at a
  single character: sentencepiece-like tokenizers. Elsewhere only boundaries of words are used.

Normalisation and the cutting out of added tokens look around too: over the marks on a letter, at the ends of a piece
(a prefix space), as far as the longest added token. Therefore e is never taken before a mark, and nothing within a
margin of the ends of a piece is used, longer than any added token. The token before e must agree in id and place, the
one after it in its beginning (a character whose tokens lie on both sides of e is not cut), and e is taken from the
middle of the longest run of agreeing tokens. A text in which no such place exists is not cut there: the piece is made
longer instead. The tests compare with whole documents, for pieces of a few dozen characters.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Cut", "Piece", "common_cut", "cuts_inside_words"]


class Cut(NamedTuple):
    """A join: A's tokens before index `left`, then B's from index `right`; both at character `at` of the text."""

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
    """Whether a boundary inside a word may serve, which needs plain BPE and words that are cut by no context.

    Args:
        backend: a `tokenizers.Tokenizer`.
    """
    from tokenizers.models import BPE

    model = backend.model
    if not isinstance(model, BPE) or model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix:
        return False
    if backend.pre_tokenizer is None:
        return True
    return _never_looks_around(json.loads(backend.pre_tokenizer.__getstate__()))


def _never_looks_around(part: dict[str, Any]) -> bool:
    match part["type"]:
        case "Sequence":
            return all(_never_looks_around(inner) for inner in part["pretokenizers"])
        case "Metaspace":
            return True
        case "ByteLevel":
            return not part.get("use_regex", True)
        case "Split":
            literal = part["pattern"].get("String")
            return literal is not None and len(literal) == 1
        case _:
            return False


def common_cut(a: Piece, b: Piece, low: int, high: int, inside_words: bool) -> Cut | None:
    """The best place to go over from piece A to piece B, or None when there is none.

    Args:
        a, b: two overlapping pieces of a text.
        low, high: only tokens that lie within these characters of the text are considered.
        inside_words: whether boundaries inside a word count (see `cuts_inside_words`).
    """
    a_first, a_tokens, a_next = _within(a, low, high)
    b_first, b_tokens, b_next = _within(b, low, high)
    # A character of several tokens (bytes of an emoji) can repeat an (id, start, end): such tokens name no place.
    places: dict[_Token, int] = {}
    for j, token in enumerate(b_tokens):
        places[token] = -1 if token in places else j

    best: tuple[int, Cut] | None = None
    run: list[Cut | None] = []  # the boundary after each of the current run of agreeing tokens, where admissible

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
        if (
            after is not None
            and after == b_next[j]
            and after.start >= token.end
            and (inside_words or after.new_word)
            and _stands_alone(a.text, after.start - a.start)
        ):
            run.append(Cut(a_first + i + 1, b_first + j + 1, after.start))
        else:
            run.append(None)
    close()
    return best[1] if best else None


def _stands_alone(text: str, i: int) -> bool:
    """Whether neither a run of white space nor a mark and what it stands on would be cut before character i."""
    return not (text[i].isspace() and text[i - 1].isspace()) and not unicodedata.category(text[i]).startswith("M")


def _within(piece: Piece, low: int, high: int) -> tuple[int, list[_Token], list[_Next | None]]:
    """The tokens wholly inside [low, high): the first one's index, they, and how the token after each one begins."""
    encoding, start = piece.encoding, piece.start
    ids, low, high = encoding.ids, low - start, high - start
    left, right = 0, len(ids)
    while left < right:  # starts never decrease, so the first token is found by halving
        middle = (left + right) // 2
        if encoding.token_to_chars(middle)[0] < low:
            left = middle + 1
        else:
            right = middle
    tokens: list[_Token] = []
    following: list[_Next | None] = []
    word: int | None = None
    for i in range(left, len(ids)):
        begin, end = encoding.token_to_chars(i)
        previous, word = word, encoding.token_to_word(i)
        if tokens:
            following.append(_Next(begin + start, word != previous))
        if end > high:
            break
        tokens.append(_Token(ids[i], begin + start, end + start))
    following += [None] * (len(tokens) - len(following))
    return left, tokens, following
