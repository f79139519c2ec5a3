"""A release of every position, as what the audit needs of it: slices to run, and what the model loses by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.bounds import GAUSSIAN, Law
from headscan.model.slicing import SlicedModel

__all__ = ["Change", "Channel", "cross_entropy"]

Change = Callable[[Float[Tensor, "*batch w"]], Float[Tensor, "*batch w"]]


@dataclass(frozen=True)
class Channel:
    """What leaks at several sites.

    Attributes:
        names: of the sites.
        together: all of them as one slice, their features one after another; widths: of each.
        alone: a site as a slice of its own.
        parts: of each site the widths that are rounded together; empty where that is the whole.
        defence: what is done to the release before the noise, in a word.
        rounded: whether that makes some releases equal, so that there are bits without noise.
        law: of the noise; withheld: whether nothing is released of a position.
        working: from a site, sigma and a generator to what the release makes of states for whoever goes on with them; None
            for noise alone.
        loss: nats a token of the model on each token row if, at a site, its states are changed so; None where it cannot be run.
    """

    names: tuple[str, ...]
    together: SlicedModel
    widths: tuple[int, ...]
    alone: Callable[[str], SlicedModel]
    parts: tuple[tuple[int, ...], ...] = ()
    defence: str = "none"
    rounded: bool = False
    law: Law = GAUSSIAN
    withheld: Callable[[int], bool] = lambda place: False
    working: Callable[[str, float, torch.Generator], Change] | None = None
    loss: Callable[[str, Int[Tensor, "B T"], Change], Float[Tensor, " B"]] | None = None


def cross_entropy(logits: Float[Tensor, "B T V"], ids: Int[Tensor, "B T"]) -> Float[Tensor, " B"]:
    """Nats a token of each row, of all its tokens but the first."""
    flat = logits[:, :-1].double().flatten(0, 1)
    nats = torch.nn.functional.cross_entropy(flat, ids[:, 1:].flatten().to(flat.device), reduction="none")
    return nats.view(len(ids), -1).mean(1).cpu()
