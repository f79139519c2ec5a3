"""What all releases tell of one token to one who knows all the others: later ones of earlier tokens included."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.bounds import Code
from headscan.leaks.positions import Asked, PositionLeak, at_position
from headscan.model.slicing import SlicedModel

__all__ = ["others_leaks", "places_of"]

BATCH = 256


def places_of(length: int, count: int) -> list[int]:
    """So many positions of a window, evenly spaced, the first (which is known) left out.

    >>> places_of(21, 2), places_of(3, 9), places_of(5, 0)
    ([1, 11], [1, 2], [])
    """
    count = min(count, length - 1)
    return [1 + place * (length - 1) // count for place in range(count)]


@torch.no_grad()
def others_leaks(
    cut: SlicedModel, ids: Int[Tensor, " T"], asked: Asked, places: list[int], *, joined: bool
) -> list[PositionLeak]:
    """B_t = I(X_t; Y | all other tokens) at some positions t, under the true tokens before and after.

    Given the tokens before t, the releases there are known but for their noise, so what counts are those from t on, as one
    vector. The prior is that of the token given all others, p(v | x_<t) · p(x_>t | x_<t, v) divided by its sum, where the prior
    is a model's; tokens that are independent have the prior they have.

    Args:
        cut: a causal slice; of several sites the features stand one after another.
        ids: the text's tokens.
        asked: what is asked; all candidates are run.
        places: the positions.
        joined: whether the prior depends on the tokens before (a model's).

    Cost: V · T token positions at each, of the slice and, with a model's prior, of the head; V² exponentials a site and noise.
    """
    clean, found = cut.run(ids[None].to(cut.lens.device))[0].double().cpu(), list[PositionLeak]()
    for place in places:
        rows = ids.repeat(cut.vocabulary_size, 1)
        rows[:, place] = torch.arange(cut.vocabulary_size)
        shares = asked.prior(ids[None])[0, place - 1]
        if joined:
            shares = torch.softmax(shares.log() + _later(asked, rows, place), 0)
        there = (shares > 0).nonzero()[:, 0]
        seen = torch.cat([cut.run(some.to(cut.lens.device))[:, place:].cpu() for some in rows[there].split(BATCH)])
        gone = [one - place for one in range(place, len(ids)) if asked.withheld(one)]
        own = (there == ids[place]).nonzero()
        start = 0
        for site, width in enumerate(asked.widths):
            part, truth = seen[..., start : start + width].clone(), clean[place:, start : start + width].clone()
            part[:, gone], truth[gone] = 0, 0
            found += at_position(
                Code(part.flatten(1), shares[there]), truth.flatten(), int(own[0]) if len(own) else None, site,
                asked.sigmas[site], asked.draws, asked.seed + 7919 * place + site, asked.law,
            )  # fmt: skip
            start += width
    return found


def _later(asked: Asked, rows: Int[Tensor, "V T"], place: int) -> Float[Tensor, " V"]:
    """ln p of the tokens after a position, given those up to it, for each row."""
    if place + 1 == rows.shape[1]:
        return torch.zeros(len(rows), dtype=torch.float64)
    found = []
    for some in rows.split(BATCH):
        shares = asked.prior(some)[:, place:-1]
        found.append(shares.gather(2, some[:, place + 1 :, None])[..., 0].log().sum(1))
    return torch.cat(found)
