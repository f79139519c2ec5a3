"""Leaked hidden states."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from headscan.leaks.applying import loss_with
from headscan.leaks.audit import audit
from headscan.leaks.channel import Channel
from headscan.leaks.release import RELEASES, Auditing, Leak, Release
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import Run

__all__ = ["StatesRelease", "few_of"]

MANY = 12


@RELEASES.register("states")
class StatesRelease(Release):
    """The states of a site at every position: what a split model sends, or a server keeps."""

    name: ClassVar[str] = "states"
    uses: ClassVar[tuple[str, ...]] = (
        "sites", "noise", "format", "prior", "windows", "length", "candidates", "draws", "particles", "defence",
    )  # fmt: skip
    meaning: ClassVar[str] = (
        "Bits that the state at a token's position tells of that token to one who knows the tokens before it; what later "
        "states add is in the bits of whole texts."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        """Bits and attacks at each site."""
        names = lens.match(settings.sites) if settings.sites else few_of(lens.match("block.*"))
        widths = tuple(lens.width(name) for name in names)
        channel = Channel(
            names, Slice(sites=names).on(lens), widths, partial(_alone, lens), loss=partial(loss_with, lens)
        )
        return audit(channel, texts, settings, run)


def few_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """All of few names; of many the first, the middle and the last."""
    return names if len(names) <= MANY else (names[0], names[len(names) // 2], names[-1])


def _alone(lens: Lens, name: str) -> SlicedModel:
    return Slice(sites=(name,)).on(lens)
