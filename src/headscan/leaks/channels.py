"""Releases of every position: hidden states, a key-value cache, logits."""

import re
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.audit import audit
from headscan.leaks.defences import Change
from headscan.leaks.exposure import Exposure, cross_entropy, loss_with, loss_with_cache
from headscan.leaks.least_squares import least_squares
from headscan.leaks.registry import CHANNEL_OPTIONS, CHANNELS, Leak, LeakChannel
from headscan.leaks.settings import PrivacySettings
from headscan.model.lens import Lens
from headscan.model.slicing import Slice, SlicedModel
from headscan.model.slicing.cache_slice import CacheSlice, blocks_with_cache, cache_slice
from headscan.model.slicing.mapped import Mapped
from headscan.model.traits import LinearHead
from headscan.run import BadInput, Run

MANY = 12  # blocks from which on a few are examined by default
COUNTED = ("noise", "prior", "windows", "length", "candidates", "draws")
"""The options that every release with bits reads."""
BLOCK = re.compile(r"block\.(\d+)")


def is_deep(lens: Lens) -> bool:
    """Return whether a model has so many blocks that a few are examined by default."""
    return len(lens.match("block.*")) > MANY


def sites_of(
    lens: Lens, settings: PrivacySettings, blocks: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Return the sites asked for; else all blocks (or those of `blocks`), of a deep model a few.

    These are the first, the middle and the last, or for several defences the first. Of a cache the
    last is left out: whoever has it has those of the blocks before it, which are read in less time.
    """
    if settings.sites:
        return lens.match(settings.sites)
    blocks = blocks or lens.match("block.*")
    if len(blocks) <= MANY:
        return blocks
    few = (blocks[0], blocks[len(blocks) // 2], blocks[-1])
    if len(settings.defences) > 1:
        return few[:1]
    return few[:2] if settings.release == "cache" else few


@CHANNELS.register("states")
class StatesChannel(LeakChannel):
    """The states of a site at every position: what a split model sends, or a server keeps."""

    uses: ClassVar[tuple[str, ...]] = ("sites", "format", "defence", *COUNTED)
    meaning: ClassVar[str] = (
        "Bits that the state at a token's position reveals of that token to an attacker who knows "
        "the tokens before it; what later states add is not counted."
    )

    def attack(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, run: Run
    ) -> Leak:
        sites = sites_of(lens, settings)
        exposure = Exposure(
            sites=sites,
            combined=Slice(sites=sites).on(lens),
            widths=tuple(lens.width(site) for site in sites),
            alone=lambda site: Slice(sites=(site,)).on(lens),
            loss=partial(loss_with, lens),
        )
        return audit(exposure, texts, settings, run)


@CHANNELS.register("cache")
class CacheChannel(LeakChannel):
    """Keys, values or both that attention stores, of some blocks and heads, in the number format of
    the cache.
    """

    uses: ClassVar[tuple[str, ...]] = CHANNEL_OPTIONS
    meaning: ClassVar[str] = (
        "Bits that what the cache holds of a token reveals of that token to an attacker who knows "
        "the tokens before it; what later tokens' entries add is not counted."
    )

    def attack(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, run: Run
    ) -> Leak:
        if lens.traits.encoder_decoder or not lens.traits.causal:
            raise BadInput(f"'{lens.name}' is no causal model with a key-value cache.")
        stored_blocks = blocks_with_cache(lens)
        sites = sites_of(lens, settings, stored_blocks)
        for site in sites:
            if BLOCK.fullmatch(site) is None:
                raise BadInput(f"A cache belongs to a block: write --sites 'block.3', not {site}.")
            if site not in stored_blocks:
                raise BadInput(
                    f"{site} of '{lens.name}' stores no keys and values: it has no such cache. "
                    f"These have: {', '.join(stored_blocks)}."
                )

        def loss(site: str, ids: Int[Tensor, "B T"], change: Change) -> Float[Tensor, " B"]:
            return loss_with_cache(lens, block_number(site), settings.stored, ids, change)

        def alone(site: str) -> SlicedModel:
            return cache_slice(lens, [block_number(site)], settings.stored)

        combined = cache_slice(lens, [block_number(site) for site in sites], settings.stored)
        parts = _parts_of_sites(combined, len(sites))
        exposure = Exposure(
            sites=sites,
            combined=combined,
            widths=tuple(sum(widths) for widths in parts),
            alone=alone,
            parts=parts,
            loss=loss,
        )
        return audit(exposure, texts, settings, run)


def block_number(site: str) -> int:
    """Return the number of a block from its site's name.

    >>> block_number("block.3")
    3
    """
    return int(site.partition(".")[2])


def _parts_of_sites(cut: CacheSlice, sites: int) -> tuple[tuple[int, ...], ...]:
    """Return the widths of keys and values (or the one stored) of each site."""
    count = len(cut.parts) // sites
    starts = range(0, len(cut.parts), count)
    return tuple(cut.parts[start : start + count] for start in starts)


@CHANNELS.register("logits")
class LogitsChannel(LeakChannel):
    """The logits of every position, or log-probabilities, which lack one number of them.

    Logits are W h + b, with the head's weight W [V, d] and the state h before it: d numbers seen V
    times. All that noise of equal power in every logit leaves of h is in Wᵀ y, so with WᵀW = RᵀR
    the release is R h with d noises of that power: the same distances, the same bits, at d numbers
    a token and not V. Log-probabilities lack the logits' normaliser: they are taken centred over
    the vocabulary, which is the same for W with its columns centred. A factor on the logits is one
    on W. Where the model caps its logits, they are taken before the cap, which can be undone.
    """

    uses: ClassVar[tuple[str, ...]] = COUNTED
    meaning: ClassVar[str] = (
        "Bits that the logits at a token's position, given as log-probabilities, reveal of that "
        "token to an attacker who knows the tokens before it."
    )

    def attack(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, run: Run
    ) -> Leak:
        """Return bits and attacks at the head.

        Noise is in the rms of the equivalent d numbers, times √(d/V) that of a logit.
        """
        head = lens.traits.linear_head
        if head is None:
            raise BadInput(
                f"The head of '{lens.name}' is no linear map of its states, so its logits are not "
                "read back."
            )
        root = _root_of_gram(head)

        def seen(states: Tensor) -> Tensor:
            return states.float() @ root.T

        @torch.no_grad()
        def loss(_: str, ids: Int[Tensor, "B T"], change: Change) -> Float[Tensor, " B"]:
            states = lens.run(ids, sites=head.site)[head.site].float()
            logits = states @ root.T
            moved = (change(logits) - logits).flatten(0, 1)
            shift = least_squares(root, moved.T).T
            return cross_entropy(head.logits(states + shift.view_as(states)), ids)

        seen_as = "centred logits" if head.cap is None else "centred logits before their cap"
        cut = Mapped(Slice(sites=(head.site,)).on(lens), seen, seen_as)
        exposure = Exposure(
            sites=("head",), combined=cut, widths=(cut.width,), alone=lambda _: cut, loss=loss
        )
        return audit(exposure, texts, settings, run)


def _root_of_gram(head: LinearHead) -> Float[Tensor, "d d"]:
    """Return R with RᵀR = WᵀW, where W is the head's scaled weight with its columns centred."""
    weight = head.weight.detach().double() * head.scale
    centred = weight - weight.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    root: Tensor = values.clamp_min(0).sqrt()[:, None] * vectors.T
    return root.float()
