"""Masked language modelling: which tokens are hidden, and what is put in their place."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.run import BadInput
from headscan.training.losses.cross_entropy import IGNORE

__all__ = ["MASKINGS", "mask_tokens"]

MASKINGS = ("bert", "published")


def mask_tokens(
    ids: Tensor,
    *,
    mask_id: int,
    vocabulary: int,
    special: Tensor | None = None,
    share: float = 0.15,
    scheme: str = "bert",
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Corrupted ids and labels, both shaped as `ids` int64 [B, T]; labels are -100 where nothing is to be predicted.

    scheme "bert": `share` of the ordinary tokens are chosen; of those 80 % become [MASK], 10 % a random token, 10 %
    stay. scheme "published" (the released code of the headless paper, which deviates): first 10 % of *all* tokens
    are replaced at random, then `share` are chosen, of which 80 % become [MASK] and the rest stay as they now are; the
    labels are the ids before any change, and most of the random tokens carry no loss.
    special: bool [B, T], positions never chosen ([CLS], padding, ...). vocabulary: random tokens are drawn below it.

    >>> ids = torch.arange(20).view(1, 20)
    >>> seen, labels = mask_tokens(ids, mask_id=99, vocabulary=20, generator=torch.Generator().manual_seed(1))
    >>> bool(((labels == -100) | (labels == ids)).all()), bool((seen[labels == -100] == ids[labels == -100]).all())
    (True, True)
    """
    if scheme not in MASKINGS:
        raise BadInput(f"The masking scheme must be one of {', '.join(MASKINGS)}, not {scheme!r}.")
    if not 0 < share < 1:
        raise BadInput(f"The share of masked tokens must lie between 0 and 1, not {share}.")

    def draw() -> Tensor:
        return torch.rand(ids.shape, generator=generator).to(ids.device)

    def random_tokens() -> Tensor:
        return torch.randint(vocabulary, ids.shape, generator=generator).to(ids.device)

    allowed = torch.ones_like(ids, dtype=torch.bool) if special is None else ~special
    chosen = (draw() < share) & allowed
    labels = ids.masked_fill(~chosen, IGNORE)
    fate = draw()
    if scheme == "bert":
        seen = torch.where(chosen & (fate < 0.8), torch.full_like(ids, mask_id), ids)
        return torch.where(chosen & (fate >= 0.9), random_tokens(), seen), labels
    seen = torch.where(draw() < 0.1, random_tokens(), ids)
    return torch.where(chosen & (fate < 0.8), torch.full_like(ids, mask_id), seen), labels
