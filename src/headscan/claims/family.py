"""The trained family: small GPT-2s whose width, depth, vocabulary, head and text vary by a fractional design.

`scripts/train_family.py` trains them into the user's cache; here stand the design and what is found there. Claims about width,
depth and vocabulary become trends over the members; where the family is not cached they say so, and nothing else steps in.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["HEADS", "Member", "cached", "design", "family_folder"]

HeadKind: TypeAlias = Literal["tied", "untied", "headless"]
WIDTHS, DEPTHS, VOCABULARIES = (32, 64, 128, 256), (1, 2, 4, 8), (256, 1024, 4096, 8192)
HEADS: tuple[HeadKind, ...] = ("tied", "untied", "headless")
TEXTS: tuple[Literal["first", "second"], ...] = ("first", "second")
REPEATED = 4  # members trained under two more seeds: what a seed alone changes


@dataclass(frozen=True, order=True)
class Member:
    """One model of the family; all are trained on the same number of tokens.

    >>> Member(64, 2, 1024, "tied", "first", 0).name
    'w64-d2-v1024-tied-first-s0'
    """

    width: int
    depth: int
    vocabulary: int
    head: HeadKind
    text: Literal["first", "second"]
    seed: int

    @property
    def name(self) -> str:
        """Its folder."""
        return f"w{self.width}-d{self.depth}-v{self.vocabulary}-{self.head}-{self.text}-s{self.seed}"


def design(half: int = 0) -> list[Member]:
    """The 40 members of one half (0 or 1): 32 of which every two factors show all pairs of their levels, and 8 repetitions.

    Width and depth are crossed in full, twice; vocabulary is a Latin square over them, shifted in the second round, and head
    and text follow from both, so that no factor is a copy of another. The other half takes other vocabularies, heads and
    texts in the same cells and other seeds: what a second run of the ledger looks at.

    >>> len(design()), len(set(design(0)) & set(design(1)))
    (40, 0)
    """
    found = []
    for turn in range(2):
        for i, width in enumerate(WIDTHS):
            for j, depth in enumerate(DEPTHS):
                vocabulary = VOCABULARIES[(i + j + 2 * turn + half) % 4]
                head = HEADS[(i + 2 * j + turn + half) % 3]
                text = TEXTS[(i // 2 + j + turn + half) % 2]
                found.append(Member(width, depth, vocabulary, head, text, 10 * half))
    corners = [found[index] for index in (5, 6, 21, 26)[:REPEATED]]
    again = [
        Member(one.width, one.depth, one.vocabulary, one.head, one.text, one.seed + extra)
        for one in corners
        for extra in (1, 2)
    ]
    return found + again


def family_folder() -> Path:
    """Where the members are: `HEADSCAN_CACHE`, else `~/.cache/headscan`, then `family`."""
    return Path(os.environ.get("HEADSCAN_CACHE") or Path.home() / ".cache" / "headscan") / "family"


def cached(half: int | None = None) -> list[Member]:
    """Members of the design (of one half, or of both) whose training has ended, as their card says."""
    halves = (0, 1) if half is None else (half,)
    return [one for each in halves for one in design(each) if (family_folder() / one.name / "README.md").is_file()]
