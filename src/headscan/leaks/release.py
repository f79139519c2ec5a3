"""What may leak of a model's work on a text, and what `headscan privacy` can be asked for."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from headscan.inversion.settings import refuse_unused
from headscan.leaks.defence import DEFENCES, Defence
from headscan.leaks.result import LeakedGradient, LeakRow, OutsideStates, WholeText
from headscan.leaks.rounding import read_format
from headscan.model.lens import Lens
from headscan.model.settings import Loading
from headscan.model.slicing.cache import CachePart
from headscan.run import Option, Registry, Run, Running
from headscan.text.settings import TEXT, Reading
from headscan.text.source import TextLike, check_text

__all__ = ["RELEASES", "Auditing", "Leak", "PriorName", "Release"]

PriorName = Literal["model", "uniform", "text"]


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What was found on a release: rows, bits of whole texts, of a gradient its tokens, and what was left out, as sentences."""

    rows: list[LeakRow]
    whole: list[WholeText] = field(default_factory=list)
    gradient: LeakedGradient | None = None
    outside: OutsideStates | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Release(ABC):
    """Something that leaks."""

    name: ClassVar[str]
    uses: ClassVar[tuple[str, ...]] = ()
    """The options in `SHARED` that mean something for it; the others are refused."""
    meaning: ClassVar[str] = ""
    """What the bits in its rows are bits of, in a sentence."""

    @abstractmethod
    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        """Let it leak from the token ids of each document; bound it, and read off what can be read.

        Raises:
            BadInput: the model or the text is not fit for it.
        """


RELEASES: Registry[type[Release]] = Registry("release", "headscan.leaks.releases")
"""All releases by name."""

SHARED = (
    "sites", "noise", "format", "defence", "stored", "heads", "prior", "windows", "length", "candidates", "draws", "particles",
    "others", "states", "tolerance",
)  # fmt: skip


@dataclass(frozen=True)
class Auditing(Reading, Loading, Running):
    """What leaks of which text, and how it was protected."""

    text: Annotated[TextLike, TEXT]
    _: KW_ONLY
    release: Annotated[
        str, Option("What leaks: states, cache (keys and values), logits, embedding, gradient.", choices=RELEASES)
    ] = "states"
    sites: Annotated[
        str | None, Option("Sites whose states (or caches) leak, as globs. Default: all blocks; three of many.")
    ] = None
    noise: Annotated[
        Sequence[float],
        Option("Gaussian noise, in the rms of the release's centred coordinates; 0 is none.", low=0),
    ] = (0.0, 0.4, 0.8, 1.6)
    format: Annotated[
        str | None,
        Option(
            "Number format in which it leaks: fp16, bf16, fp8, int8, int4, int2, int4/32 in groups. Default: as computed."
        ),
    ] = None
    defence: Annotated[
        str | Defence | Sequence[str | Defence] | None,
        Option(
            "What is done to the release, known to the attacker; several, with commas, or all, are put beside noise alone. "
            "Default: noise alone.",
            choices=DEFENCES,
        ),
    ] = None
    stored: Annotated[CachePart, Option("What of the cache: keys, values, both.")] = "both"
    heads: Annotated[
        Sequence[int] | None, Option("Stored heads of the cache that leak, with commas. Default: all.", low=0)
    ] = None
    prior: Annotated[
        PriorName,
        Option(
            "What the attacker knows of texts: model (what this model expects next), text (how often each token stands in this "
            "text), uniform."
        ),
    ] = "model"
    windows: Annotated[int, Option("Pieces of the text that are looked at, evenly spaced.", low=1)] = 5
    length: Annotated[
        int, Option("Tokens of each piece; the first is taken as known where bits are counted.", low=2)
    ] = 21
    candidates: Annotated[
        int | None,
        Option(
            "Candidates of a position, the likeliest first. Default: the vocabulary; fewer, where that takes long.",
            low=2,
        ),
    ] = None
    draws: Annotated[int, Option("Monte Carlo draws a position, for truth and attack.", low=2)] = 64
    particles: Annotated[
        int | None,
        Option(
            "Prefixes of the filter that bounds the bits of whole texts drawn from the model; 0: leave it out. Default: 32, "
            "where that takes a minute.",
            low=0,
        ),
    ] = None
    others: Annotated[
        int,
        Option(
            "Positions of each piece at which also the bits are counted that all releases tell of a token to one who knows "
            "all other tokens, where all candidates are run.",
            low=0,
        ),
    ] = 2
    states: Annotated[
        str | os.PathLike[str] | Tensor | np.ndarray[Any, Any] | Mapping[str, Any] | None,
        Option(
            "States of the text that leaked, with noise that is estimated: a file, folder or URL of any format that scan reads; "
            "in Python also an array [T, w]. Default: those that the model makes of the text, with the noise of --noise.",
            content=True, metavar="FILE",
        ),
    ] = None  # fmt: skip
    tolerance: Annotated[float, Option("Distance from the gradient's span that counts as inside.", above=0)] = 1e-3

    def check(self) -> None:
        """A text that can be read, a release that there is, a format, and no option that it does not use."""
        super().check()
        check_text(self.text)
        if self.format is not None:
            read_format(self.format)
        self.protections()
        uses = RELEASES[self.release].uses
        for name in SHARED:
            if name not in uses:
                users = [other for other, item in RELEASES.items() if name in item.uses]
                refuse_unused(self, [name], f"the release {self.release}", users)

    def protections(self) -> list[Defence | None]:
        """The defences, with their defaults where only names were given; None is noise alone, which is put before several."""
        given = [self.defence] if isinstance(self.defence, str | Defence) else list(self.defence or ())
        words = [part.strip() for one in given if isinstance(one, str) for part in one.split(",") if part.strip()]
        names = DEFENCES.names() if words == ["all"] else words
        found = [DEFENCES[name]() for name in names] + [one for one in given if isinstance(one, Defence)]
        protections: list[Defence | None] = [None, *found]
        return protections[1:] if len(found) == 1 else protections
