"""Units of a prompt: the tokens that get one score together."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from headscan.statistics.uncertainty import Floats
from headscan.text.prompts import Prompt

UnitKind = Literal["token", "word", "sentence"]
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")
SENTENCE = re.compile(r"\S.*?(?:[.!?…。！？]+[\"'”’)\]]*(?=\s|$)|\n|$)|\S.*?[。！？]", re.DOTALL)


@dataclass(frozen=True)
class Unit:
    """Tokens that are attributed together: their indices, in order, and a text to show."""

    tokens: tuple[int, ...]
    text: str


def find_units(prompt: Prompt, units: UnitKind = "token") -> list[Unit]:
    """Return a prompt cut into tokens, words or sentences; each token is in one unit.

    A word is letters and digits together, or signs together.
    """
    piece_of_token: list[int | None] = [None] * len(prompt)
    if units != "token":
        pattern = WORD if units == "word" else SENTENCE
        starts = [match.start() for match in pattern.finditer(prompt.text)]
        piece_of_token = [_piece(prompt, index, starts) for index in range(len(prompt))]

    def group_of(index: int) -> int:
        piece = piece_of_token[index]
        # A token of no piece is a group by itself: no other one has its negative number.
        return -1 - index if piece is None else piece

    groups = [tuple(group) for _, group in groupby(range(len(prompt)), group_of)]
    return [Unit(group, "".join(prompt.tokens[index] for index in group)) for group in groups]


def _piece(prompt: Prompt, index: int, starts: list[int]) -> int | None:
    """Return the piece that holds a token's first visible character.

    None: a special token, which is a unit by itself.
    """
    begin, end = prompt.offsets[index]
    if prompt.special[index] or end <= begin:
        return None
    if not starts:
        return None
    text = prompt.text[begin:end]
    if text.strip():
        character = begin + len(text) - len(text.lstrip())
    elif "\n" in text:
        character = begin  # a line end belongs to what it ends
    else:
        character = end  # a space belongs to what follows
    return max(int(np.searchsorted(starts, character, side="right")) - 1, 0)


def spread(scores: Floats, units: Sequence[Unit], length: int) -> Floats:
    """Return scores of units [S, n] spread evenly over their tokens [S, length].

    The sums stay as they are.

    >>> spread(np.array([[2.0, 6.0]]), [Unit((0,), "a"), Unit((1, 2), "bc")], 3)
    array([[2., 3., 3.]])
    """
    token_scores = np.zeros((*scores.shape[:-1], length))
    for index, unit in enumerate(units):
        share = scores[..., index, None] / len(unit.tokens)
        token_scores[..., list(unit.tokens)] = share
    return token_scores


def gathered(scores: Floats, units: Sequence[Unit]) -> Floats:
    """Return the sums of scores of tokens [S, T] over units, [S, n]."""
    sums = [scores[..., list(unit.tokens)].sum(-1) for unit in units]
    return np.stack(sums, axis=-1)
