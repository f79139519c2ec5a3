"""Units: which tokens are looked at together: single tokens, words, sentences, or spans that the caller names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from headscan.run import BadInput
from headscan.text.prompts import Prompt

__all__ = ["Unit", "UnitKind", "find_units", "gathered", "spread"]

UnitKind = Literal["token", "word", "sentence"]
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")
SENTENCE = re.compile(r"\S.*?(?:[.!?…。！？]+[\"'”’)\]]*(?=\s|$)|\n|$)|\S.*?[。！？]", re.DOTALL)


@dataclass(frozen=True)
class Unit:
    """Tokens that are attributed together: their indices, in order, and a text to show."""

    tokens: tuple[int, ...]
    text: str

    @property
    def first(self) -> int:
        """The index of the first token."""
        return self.tokens[0]


def find_units(
    prompt: Prompt, units: UnitKind = "token", spans: Sequence[str | tuple[int, int]] | None = None
) -> list[Unit]:
    """Cut a prompt into units; every token is in exactly one.

    Args:
        prompt: the tokens with their places in the text.
        units: "token", "word" (letters and digits together, signs together), or "sentence".
        spans: in their place, pairs of token indices (first, behind the last) or texts that occur in the prompt; what
            they leave over becomes units of single tokens.

    Raises:
        BadInput: a span that is not there, or spans that overlap.
    """
    if spans is not None:
        return _named(prompt, spans)
    if units == "token":
        return [Unit((i,), token) for i, token in enumerate(prompt.tokens)]
    pieces = [match.span() for match in (WORD if units == "word" else SENTENCE).finditer(prompt.text)]
    return _grouped(prompt, [_piece(prompt, place, pieces) for place in range(len(prompt))])


def _piece(prompt: Prompt, index: int, pieces: list[tuple[int, int]]) -> int | None:
    """The piece that holds the token's first visible character; a special token stands alone."""
    first, last = prompt.offsets[index]
    if prompt.special[index] or last <= first:
        return None
    inner = prompt.text[first:last]
    # A space of its own goes with what follows, a line end with what it ends.
    blank = first if "\n" in inner else last
    visible = first + len(inner) - len(inner.lstrip()) if inner.strip() else blank
    starts = [start for start, _ in pieces]
    k = int(np.searchsorted(starts, visible, side="right")) - 1
    return k if k >= 0 else (0 if pieces else None)


def _grouped(prompt: Prompt, piece: list[int | None]) -> list[Unit]:
    units: list[list[int]] = []
    last: int | None = None
    for index, k in enumerate(piece):
        if k is not None and k == last:
            units[-1].append(index)
        else:
            units.append([index])
        last = k
    return [Unit(tuple(unit), "".join(prompt.tokens[i] for i in unit)) for unit in units]


def _named(prompt: Prompt, spans: Sequence[str | tuple[int, int]]) -> list[Unit]:
    owner: list[int | None] = [None] * len(prompt)
    for number, span in enumerate(spans):
        for index in _tokens_of(prompt, span):
            if owner[index] is not None:
                raise BadInput(f"Two spans share token {index} ('{prompt.tokens[index]}').")
            owner[index] = number
    return _grouped(prompt, owner)


def _tokens_of(prompt: Prompt, span: str | tuple[int, int]) -> list[int]:
    if not isinstance(span, str):
        first, last = span
        if not 0 <= first < last <= len(prompt):
            raise BadInput(f"The span {first}:{last} is not inside the {len(prompt)} tokens of the prompt.")
        return list(range(first, last))
    if match := re.fullmatch(r"(\d+):(\d+)", span):
        return _tokens_of(prompt, (int(match[1]), int(match[2])))
    at = prompt.text.find(span) if span else -1
    found = [i for i, (a, b) in enumerate(prompt.offsets) if a < at + len(span) and b > at and b > a] if at >= 0 else []
    if not found:
        raise BadInput(f"The span '{span}' is not in the prompt.")
    return found


def spread(values: npt.NDArray[np.float64], units: Sequence[Unit], length: int) -> npt.NDArray[np.float64]:
    """Scores of units [S, n] spread evenly over their tokens [S, length], so that sums stay what they were.

    >>> spread(np.array([[2.0, 6.0]]), [Unit((0,), "a"), Unit((1, 2), "bc")], 3)
    array([[2., 3., 3.]])
    """
    found = np.zeros((*values.shape[:-1], length))
    for k, unit in enumerate(units):
        found[..., list(unit.tokens)] = values[..., k, None] / len(unit.tokens)
    return found


def gathered(scores: npt.NDArray[np.float64], units: Sequence[Unit]) -> npt.NDArray[np.float64]:
    """Scores of tokens [S, T] summed over units [S, n]."""
    return np.stack([scores[..., list(unit.tokens)].sum(-1) for unit in units], axis=-1)
