"""States of a text that were handed over in another order: their tokens and their places."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.inversion.left_to_right import refuse_unordered
from headscan.inversion.losses import relative
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import Progress

__all__ = ["Unshuffled", "unshuffle"]


@dataclass(frozen=True)
class Unshuffled:
    """The tokens in order, the row of what leaked that is each one's, and its relative residual."""

    tokens: list[int]
    rows: list[int]
    residuals: list[float]


@torch.no_grad()
def unshuffle(cut: SlicedModel, seen: Float[Tensor, "T w"], *, progress: Progress | None = None) -> Unshuffled:
    """Find the tokens of states that leaked in a secret order of the positions.

    In a causal model the state of the first token is that of the token alone, the second's that of two tokens, and so on: after
    the tokens found, every token is run and compared with every state that is left. The nearest pair is the next token.

    Args:
        cut: a causal slice; of coordinates that were permuted, too, a `Mapped` one that sorts them.
        seen: [T, w] the states, in any order.
        progress: told the tokens found.

    Cost: V runs a token, and V · T · w multiplications.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> from headscan.model import Lens
    >>> from headscan.model.slicing import Slice
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2)))
    >>> cut = Slice(sites=("block.1",)).on(lens)
    >>> unshuffle(cut, cut.run([[7, 3, 5, 7]])[0][[2, 0, 3, 1]]).tokens
    [7, 3, 5, 7]
    """
    refuse_unordered(cut)
    goal = seen.to(cut.lens.device).float()
    every = torch.arange(cut.vocabulary_size, device=cut.lens.device)
    left, found = list(range(len(goal))), Unshuffled([], [], [])
    prefix = Prefix(cut, torch.zeros(1, 0, dtype=torch.int64))
    while left:
        points = prefix.evaluate(torch.zeros_like(every), every)
        far = torch.stack([relative(points, goal[row].expand_as(points)) for row in left])
        place, token = divmod(int(far.argmin()), len(every))
        found.tokens.append(token)
        found.rows.append(left.pop(place))
        found.residuals.append(float(far.min()))
        if left:
            prefix.extend(every[token].view(1, 1))
        if progress:
            progress("unshuffling", len(found.tokens), len(goal), "tokens")
    return found
