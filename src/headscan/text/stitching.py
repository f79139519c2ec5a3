"""Where the tokenisations of two overlapping pieces of a text may be joined, so that the whole is exact.

Why it is exact. Let piece A be right up to a character e where a token ends, and let piece B, which begins before e
and ends after A, have a boundary at e too. The joined tokenisation is A's up to e and B's from e.

* At a boundary of words (pre-tokens) in both pieces: a pre-tokeniser scans from left to right, so what follows a
  boundary depends on the text from there on alone, and a model (BPE, WordPiece, Unigram) never looks beyond a word.
* Inside a word, for BPE: a sequence of tokens is the BPE of its text if and only if every two neighbours are the BPE of
  theirs. (The merges are done one by one, the best rank first. Consider the first merge, in the run over the whole
  word, that crosses a boundary between two neighbours. Until then nothing has crossed any boundary, so what has been
  done inside the two is what a run over the two alone does; that run would make the same crossing, for it picks by the
  same ranks and positions. The other direction is the same argument read backwards.) If A and B have the token before
  e in common, every two neighbours of the joined sequence are neighbours in A or in B: it is the BPE of the whole.
  This needs both pieces to cut the same word there, which is certain where no pre-tokeniser cuts at all, or only at a
  single character: sentencepiece-like tokenizers. Elsewhere only boundaries of words are used.

Normalisation and the cutting out of added tokens may look a few characters around (combining marks, runs of white
space, a prefix space at the beginning of a piece). Therefore nothing within a margin of the ends of a piece is used,
the tokens on both sides of e must agree in id, place and word boundary, and e is taken from the middle of the longest
run of agreeing tokens. A text in which no such place exists is not cut there: the piece is made longer instead.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["Cut", "common_cut", "cuts_inside_words"]


class Cut(NamedTuple):
    """A join: A's tokens before index `left`, then B's from index `right`; both at character `at` of the text."""

    left: int
    right: int
    at: int


class _Token(NamedTuple):
    id: int
    start: int
    end: int


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


def common_cut(
    a: Any, b: Any, a_start: int, b_start: int, low: int, high: int, inside_words: bool
) -> Cut | None:
    """The best place to go over from piece A to piece B, or None when there is none.

    Args:
        a, b: the `tokenizers.Encoding` of the two pieces.
        a_start, b_start: where in the text the pieces begin, in characters.
        low, high: only tokens that lie within these characters of the text are considered.
        inside_words: whether boundaries inside a word count (see `cuts_inside_words`).
    """
    a_first, a_tokens, a_breaks = _within(a, a_start, low, high)
    b_first, b_tokens, b_breaks = _within(b, b_start, low, high)
    # A character of several tokens (bytes of an emoji) can repeat an (id, start, end): such tokens name no place.
    places: dict[_Token, int] = {}
    for i, token in enumerate(b_tokens):
        places[token] = -1 if token in places else i

    best: tuple[int, Cut] | None = None
    run: list[Cut | None] = []  # the boundaries in the current run of agreeing tokens; None: not admissible

    def close() -> None:
        nonlocal best
        cuts = [(abs(2 * i + 1 - len(run)), cut) for i, cut in enumerate(run) if cut]
        if cuts and (best is None or len(run) > best[0]):
            best = (len(run), min(cuts)[1])
        run.clear()

    for i, (before, after) in enumerate(pairwise(a_tokens)):
        j = places.get(before, -1)
        if j < 0 or j + 1 >= len(b_tokens) or b_tokens[j + 1] != after:
            close()
            continue
        clean = before.end <= after.start  # no character has tokens on both sides
        same = a_breaks[i + 1] == b_breaks[j + 1]
        admissible = clean and same and (inside_words or a_breaks[i + 1])
        run.append(Cut(a_first + i + 1, b_first + j + 1, after.start) if admissible else None)
    close()
    return best[1] if best else None


def _within(encoding: Any, start: int, low: int, high: int) -> tuple[int, list[_Token], list[bool]]:
    """The tokens wholly inside [low, high): the first one's index, the tokens, and whether each begins a word."""
    ids, low, high = encoding.ids, low - start, high - start
    left, right = 0, len(ids)
    while left < right:  # starts never decrease, so the first token is found by halving
        middle = (left + right) // 2
        if encoding.token_to_chars(middle)[0] < low:
            left = middle + 1
        else:
            right = middle
    tokens: list[_Token] = []
    breaks: list[bool] = []
    word: int | None = None
    for i in range(left, len(ids)):
        begin, end = encoding.token_to_chars(i)
        if end > high:
            break
        previous, word = word, encoding.token_to_word(i)
        tokens.append(_Token(ids[i], begin + start, end + start))
        breaks.append(word != previous)
    return left, tokens, breaks
