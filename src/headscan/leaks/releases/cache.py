"""A leaked key-value cache."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor

from headscan.leaks.applying import loss_with_cache
from headscan.leaks.audit import audit
from headscan.leaks.channel import Channel
from headscan.leaks.release import RELEASES, Auditing, Leak, Release
from headscan.leaks.releases.states import few_of
from headscan.model.lens import Lens
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.cache import cache_slice
from headscan.run import BadInput, Run

__all__ = ["CacheRelease"]


@RELEASES.register("cache")
class CacheRelease(Release):
    """Keys, values or both that attention stores, of some blocks and heads, in the number format of the cache."""

    name: ClassVar[str] = "cache"
    uses: ClassVar[tuple[str, ...]] = (
        "sites", "noise", "format", "defence", "stored", "heads", "prior", "windows", "length", "candidates", "draws",
        "particles", "others",
    )  # fmt: skip
    meaning: ClassVar[str] = (
        "Bits that what the cache holds of a token tells of that token to one who knows the tokens before it; what later "
        "tokens' entries add is in the bits of whole texts."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        """Bits and attacks at each block."""
        if lens.traits.encoder_decoder or not lens.traits.causal:
            raise BadInput(f"'{lens.name}' is no causal model with a key-value cache.")
        names = lens.match(settings.sites) if settings.sites else few_of(lens.match("block.*"))
        wrong = [name for name in names if re.fullmatch(r"block\.\d+", name) is None]
        if wrong:
            raise BadInput(f"A cache belongs to a block: write --sites 'block.3', not {wrong[0]}.")
        layers = [int(name.partition(".")[2]) for name in names]
        whole = cache_slice(lens, layers, settings.stored, settings.heads)
        each = len(whole.parts) // len(layers)
        parts = tuple(whole.parts[i : i + each] for i in range(0, len(whole.parts), each))
        loss = partial(_loss, lens, settings) if settings.heads is None else None
        channel = Channel(names, whole, tuple(map(sum, parts)), partial(_alone, lens, settings), parts, loss=loss)
        return audit(channel, texts, settings, run)


def _alone(lens: Lens, settings: Auditing, name: str) -> SlicedModel:
    return cache_slice(lens, [int(name.partition(".")[2])], settings.stored, settings.heads)


def _loss(
    lens: Lens, settings: Auditing, name: str, ids: Int[Tensor, "B T"], change: Callable[[Tensor], Tensor]
) -> Tensor:
    return loss_with_cache(lens, int(name.partition(".")[2]), settings.stored, ids, change)
