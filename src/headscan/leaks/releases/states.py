"""Leaked hidden states."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch

from headscan.inversion.leaked import leaked
from headscan.leaks.applying import loss_with
from headscan.leaks.audit import audit, scales_of
from headscan.leaks.channel import Channel
from headscan.leaks.outside import estimated, read_through_noise
from headscan.leaks.priors import prior_of
from headscan.leaks.release import RELEASES, Auditing, Leak, Release
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.run import BadInput, Run

__all__ = ["StatesRelease", "few_of"]

MANY = 12


@RELEASES.register("states")
class StatesRelease(Release):
    """The states of a site at every position: what a split model sends, or a server keeps."""

    name: ClassVar[str] = "states"
    uses: ClassVar[tuple[str, ...]] = (
        "sites", "noise", "format", "prior", "windows", "length", "candidates", "draws", "particles", "defence", "others",
        "states",
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
        if settings.states is not None:
            return _outside(lens, channel, texts, settings, run)
        return audit(channel, texts, settings, run)


def few_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """All of few names; of many the first, the middle and the last."""
    return names if len(names) <= MANY else (names[0], names[len(names) // 2], names[-1])


def _outside(lens: Lens, channel: Channel, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
    """The noise of given states, what is read through it, and the bits at this noise on the same tokens."""
    if len(channel.names) > 1:
        raise BadInput("States that are given are of one site: name it with --sites.")
    cut = channel.together
    given = leaked(cut, settings.states)
    seen, stored = given.targets[0], list(given.prompts[0].ids)
    run.identify("the states", given.sha256)
    ids = stored or [token for text in texts for token in text][: len(seen)]
    if len(ids) < len(seen) or len(seen) < 2:
        raise BadInput(f"The states are of {len(seen)} tokens, and the text has {len(ids)}; both need two at least.")
    known = torch.tensor(ids)
    scale = scales_of(channel, known[None])[0]
    tokens, sigma = read_through_noise(cut, seen, prior_of(settings.prior, lens, texts), progress=run.progress)
    found = estimated(cut, seen, known, tokens, sigma, scale)
    leak = audit(channel, [ids], settings.but(windows=1, length=len(ids), noise=(found.noise,)), run)
    return replace(leak, outside=found)


def _alone(lens: Lens, name: str) -> SlicedModel:
    return Slice(sites=(name,)).on(lens)
