"""Where in its context a leaked cache begins, if that is not known: its first token and its offset together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.inversion.losses import relative
from headscan.leaks.rounding import NumberFormat
from headscan.model.slicing.cache import CacheSlice
from headscan.run import BadInput, Progress

__all__ = ["FoundOffset", "find_offset"]

SHORT = 256
BATCH = 4096


@dataclass(frozen=True, kw_only=True)
class FoundOffset:
    """A first token and where it stands.

    Attributes:
        offset, token: the nearest; residual: its relative distance.
        rival: least distance of any token at another offset: where it is not larger, the offset is not told by what leaked
            (values, in a model with rotary positions, are the same at every offset).
        evaluations: tokens that were run.
    """

    offset: int
    token: int
    residual: float
    rival: float
    evaluations: int

    @property
    def told(self) -> bool:
        """Whether one offset is nearer than every other by more than rounding in float32."""
        return self.residual < 0.5 * self.rival


@torch.no_grad()
def find_offset(
    cut: CacheSlice, first: Float[Tensor, " w"], *, offsets: int | None = None, form: NumberFormat | None = None,
    progress: Progress | None = None,
) -> FoundOffset:  # fmt: skip
    """The offset of a cache from its first entry.

    A rotary angle turns keys and leaves the length of each head's key as it is: tokens are ranked by these lengths at offset
    0, and the nearest 256 are run at every offset. Where lengths change with the offset (learned positions) every token is run
    at every offset.

    Args:
        cut: the cache at offset 0: layers, part and heads that leaked.
        first: [w] what it holds of the first token that was read.
        offsets: how many are tried, from 0; the context by default.
        form: the number format of the cache: candidates are rounded as it was.
        progress: told the offsets done.

    Cost: V + 256 · offsets runs of one token with rotary positions, V · offsets with learned ones.

    Raises:
        BadInput: a model that is not told positions, or of which no context is known where none is given.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from headscan.model import Lens
    >>> from headscan.model.slicing.cache import cache_slice
    >>> config = LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    ...                      num_attention_heads=2, max_position_embeddings=64)
    >>> lens = Lens(LlamaForCausalLM(config))
    >>> leaked = cache_slice(lens, [0], "keys", offset=37).run([[5, 6, 7]])
    >>> found = find_offset(cache_slice(lens, [0], "keys"), leaked[0, 0])
    >>> found.offset, found.token, found.told
    (37, 5, True)
    """
    lens, count = cut.lens, offsets or cut.lens.context_length
    if not cut.takes("position_ids") or count is None:
        raise BadInput(f"The offset of a cache of '{lens.name}' is not known to be told: give the number of offsets.")
    work = _Offsets(cut, first.to(lens.device).float(), form)
    every = torch.arange(cut.vocabulary_size, device=lens.device)
    here, there = work.run(every, 0), work.run(every[:SHORT], count - 1)
    turned = bool(relative(work.lengths(there), work.lengths(here[:SHORT])).max() < 1e-3)
    short = relative(work.lengths(here), work.lengths(first.to(here)).expand(len(here), -1)).argsort()[:SHORT]
    some = short if turned else every
    best: list[tuple[float, int]] = []
    for offset in range(count):
        far = relative(work.rounded(work.run(some, offset)), work.goal)
        low, place = far.min(0)
        best.append((float(low), int(some[place])))
        if progress:
            progress("offsets", offset + 1, count, "offsets")
    offset = min(range(count), key=lambda one: best[one][0])
    rival = min((far for one, (far, _) in enumerate(best) if one != offset), default=float("inf"))
    return FoundOffset(
        offset=offset, token=best[offset][1], residual=best[offset][0], rival=rival,
        evaluations=len(every) + len(there) + count * len(some),
    )  # fmt: skip


class _Offsets:
    """Single tokens at an offset."""

    def __init__(self, cut: CacheSlice, goal: Tensor, form: NumberFormat | None) -> None:
        self.cut, self.goal = cut, goal
        self.form = form

    def run(self, tokens: Tensor, offset: int) -> Tensor:
        """[n, w] of each token at that position, nothing being before it."""
        place = {"position_ids": torch.full((1, 1), offset, device=tokens.device)}
        return torch.cat(
            [self.cut.states(part[:, None], extra=dict(place))[:, 0].float() for part in tokens.split(BATCH)]
        )

    def rounded(self, values: Tensor) -> Tensor:
        """As the cache holds them."""
        return values if self.form is None else self.form.each(self.cut.parts)(values)

    def lengths(self, values: Tensor) -> Tensor:
        """The length of each head's vector."""
        found: Tensor = values.float().unflatten(-1, (-1, self.cut.size)).norm(dim=-1)
        return found
