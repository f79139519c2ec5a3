"""What may leak of a model's work on a text, and what `headscan privacy` can be asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

from headscan.inversion.privacy_result import LeakedGradient, ReleaseRow
from headscan.inversion.settings import refuse_unused
from headscan.model.lens import Lens
from headscan.model.settings import Loading
from headscan.run import Option, Registry, Run, Running
from headscan.text.settings import TEXT, Reading
from headscan.text.source import TextLike, check_text

__all__ = ["RELEASES", "Auditing", "Leak", "Release"]


Leak = tuple[list[ReleaseRow], LeakedGradient | None]
"""What the attacks on a release found: rows, and of a gradient its tokens."""


@dataclass(frozen=True)
class Release(ABC):
    """Something that leaks."""

    name: ClassVar[str]
    uses: ClassVar[tuple[str, ...]] = ()
    """The options in `SHARED` that mean something for it; the others are refused."""

    def plan(self, lens: Lens, settings: Auditing) -> tuple[Auditing, list[str]]:
        """What of the settings is done for this model, and what is left out for its cost, as sentences."""
        return settings, []

    @abstractmethod
    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        """Let it leak from the token ids of each document, and read off what can be read.

        Raises:
            BadInput: the model or the text is not fit for it.
        """


RELEASES: Registry[type[Release]] = Registry("release", "headscan.inversion.releases")
"""All releases by name."""

SHARED = ("sites", "noise", "rounding", "weights", "windows", "length", "candidates", "descent", "tolerance")


@dataclass(frozen=True)
class Auditing(Reading, Loading, Running):
    """What leaks of which text, and how it was damaged."""

    text: Annotated[TextLike, TEXT]
    _: KW_ONLY
    release: Annotated[str, Option("What leaks: states, or the gradient of one training step.", choices=RELEASES)] = (
        "states"
    )
    sites: Annotated[
        str | None, Option("Sites whose states leak, as globs. Default: all blocks; three, where all take too long.")
    ] = None
    noise: Annotated[Sequence[float], Option("Gaussian noise, as shares of each state's norm.", low=0)] = (
        0.01,
        0.1,
        0.3,
    )
    rounding: Annotated[Sequence[int], Option("Bits to which states are rounded.", low=2, high=64)] = (8, 4)
    weights: Annotated[
        Sequence[int], Option("The victim's weights have so many bits, the attacker's have not.", low=2, high=8)
    ] = (8,)
    windows: Annotated[int, Option("Pieces of the text that are attacked, evenly spaced.", low=1)] = 10
    length: Annotated[int, Option("Tokens of each piece.", low=1)] = 8
    candidates: Annotated[
        int | None,
        Option(
            "Candidates of a position, for exact search. Default: the vocabulary; fewer, where that takes long.", low=1
        ),
    ] = None
    descent: Annotated[bool, Option("Invert clean states by gradients, too.")] = True
    tolerance: Annotated[float, Option("Distance from the gradient's span that counts as inside.", above=0)] = 1e-3

    def check(self) -> None:
        """A text that can be read, a release that there is, and no option that it does not use."""
        super().check()
        check_text(self.text)
        uses = RELEASES[self.release].uses
        for name in SHARED:
            if name not in uses:
                users = [other for other, item in RELEASES.items() if name in item.uses]
                refuse_unused(self, [name], f"the release {self.release}", users)
