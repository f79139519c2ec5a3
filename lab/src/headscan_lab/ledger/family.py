"""The trained family: small GPT-2s whose width, depth, vocabulary, head and text vary by design.

`lab/scripts/train_family.py` trains them into the user's cache. Here stand the design and which
members are in the cache. Claims about width, depth and vocabulary become trends over the members;
where the family is not cached they say so.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

HeadKind: TypeAlias = Literal["tied", "untied", "headless"]
TextName: TypeAlias = Literal["first", "second"]
WIDTHS = (32, 64, 128, 256)
DEPTHS = (1, 2, 4, 8)
VOCABULARIES = (256, 1024, 4096, 8192)
HEADS: tuple[HeadKind, ...] = ("tied", "untied", "headless")
TEXTS: tuple[TextName, ...] = ("first", "second")
# Members that are trained under two more seeds, which shows what a seed alone changes.
REPEATED = (5, 6, 21, 26)


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
    text: TextName
    seed: int

    @property
    def name(self) -> str:
        return (
            f"w{self.width}-d{self.depth}-v{self.vocabulary}-{self.head}-{self.text}-s{self.seed}"
        )


def design(half: int = 0) -> list[Member]:
    """Return the 40 members of one half (0 or 1).

    Among 32 of them every two factors show all pairs of their levels; 8 are repetitions. Width and
    depth are crossed in full, twice; vocabulary is a Latin square over them, shifted in the second
    round, and head and text follow from both, so that no factor is a copy of another. The other
    half has other vocabularies, heads and texts in the same cells and other seeds: a second run of
    the ledger reads it.

    >>> len(design()), len(set(design(0)) & set(design(1)))
    (40, 0)
    """
    members = []
    for turn in range(2):
        for i, width in enumerate(WIDTHS):
            for j, depth in enumerate(DEPTHS):
                vocabulary = VOCABULARIES[(i + j + 2 * turn + half) % 4]
                head = HEADS[(i + 2 * j + turn + half) % 3]
                text = TEXTS[(i // 2 + j + turn + half) % 2]
                members.append(Member(width, depth, vocabulary, head, text, 10 * half))
    repetitions = []
    for index in REPEATED:
        member = members[index]
        for extra in (1, 2):
            repetitions.append(
                Member(
                    member.width,
                    member.depth,
                    member.vocabulary,
                    member.head,
                    member.text,
                    member.seed + extra,
                )
            )
    return members + repetitions


def family_folder() -> Path:
    """Return the folder of the members: `family` in `HEADSCAN_CACHE`, else in ~/.cache/headscan."""
    cache = os.environ.get("HEADSCAN_CACHE") or Path.home() / ".cache" / "headscan"
    return Path(cache) / "family"


def cached(half: int | None = None) -> list[Member]:
    """Return the members of one half of the design, or of both, whose training has ended.

    A member has ended where its card is written.
    """
    halves = (0, 1) if half is None else (half,)
    members = [member for number in halves for member in design(number)]
    folder = family_folder()
    return [member for member in members if (folder / member.name / "README.md").is_file()]
