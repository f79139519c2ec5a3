"""What each head of attention adds to the cone: the branch of a block is a linear map of all heads' outputs side by side.

So a block's attention is Σ_h W_h z_h + b, exactly, and the share of a head in |m|², m the mean unit state, is that of its term:
Σ_t (z_{t,h}/‖x_t‖) is summed over tokens, and W_h applied once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headscan.model import Lens
from headscan.model.structure import Stack
from headscan.model.traits import random_ids

__all__ = ["HeadMap", "head_maps", "head_sums"]


@dataclass(frozen=True, eq=False)
class HeadMap:
    """The last linear layer of one attention branch: `site`, the module, its weight [d, H·e] and bias [d] in float64, and H."""

    site: str
    module: nn.Linear | Conv1D
    weight: Float[Tensor, "d he"]
    bias: Float[Tensor, " d"]
    heads: int

    @classmethod
    def of(cls, site: str, module: nn.Linear | Conv1D, heads: int) -> Self:
        """From a torch Linear or GPT-2's Conv1D."""
        weight, bias = module.weight.detach().double(), module.bias
        weight = weight.T if isinstance(module, Conv1D) else weight
        return cls(
            site, module, weight, weight.new_zeros(len(weight)) if bias is None else bias.detach().double(), heads
        )

    def parts(self, sums: Float[Tensor, "... he"], weight: Float[Tensor, ...]) -> Float[Tensor, "... k d"]:
        """From Σwz and Σw: the vectors that the H heads, and last the bias, have added."""
        cut = sums.unflatten(-1, (self.heads, -1))
        each = torch.einsum("...he,dhe->...hd", cut, self.weight.unflatten(-1, (self.heads, -1)))
        return torch.cat([each, (weight[..., None] * self.bias)[..., None, :]], dim=-2)


@torch.no_grad()
def head_maps(lens: Lens, stack: Stack) -> tuple[HeadMap, ...] | None:
    """The map of every attention branch of a stack, found by trying: the linear layer whose output *is* the branch.

    None where a branch has none (a norm of its own follows, or the layer is of another kind), or heads do not divide it.
    """
    heads = getattr(lens.model.config, "num_attention_heads", None) or getattr(lens.model.config, "n_head", None)
    sites = [site for site in stack.taps if site.endswith(".attention")]
    if not heads or not sites:
        return None
    made: list[tuple[nn.Linear | Conv1D, Tensor]] = []
    blocks = {site: stack.blocks[int(site.rsplit(".", 2)[-2])] for site in sites}
    handles = [
        module.register_forward_hook(lambda module, _, out: made.append((module, out.detach().clone())))
        for block in dict.fromkeys(blocks.values())
        for module in block.modules()
        if isinstance(module, (nn.Linear, Conv1D))
    ]
    try:
        found = lens.run(random_ids(lens, 1), sites=sites)
    finally:
        for handle in handles:
            handle.remove()
    maps = []
    for site in sites:
        inside = {id(module) for module in blocks[site].modules()}
        same = [
            module
            for module, out in made
            if id(module) in inside and out.shape == found[site].shape and torch.equal(out, found[site])
        ]
        maps += [HeadMap.of(site, module, int(heads)) for module in same[:1]]
        if not same or maps[-1].weight.shape[1] % heads:
            return None
    return tuple(maps) if len({id(one.module) for one in maps}) == len(maps) else None


@contextmanager
def _inputs(maps: Sequence[HeadMap]) -> Iterator[dict[str, Tensor]]:
    """What each map's layer is given, by site, in the passes of this context."""
    kept: dict[str, Tensor] = {}

    def keeps(site: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda _, given: kept.__setitem__(site, given[0].detach())

    handles = [one.module.register_forward_pre_hook(keeps(one.site)) for one in maps]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


def head_sums(lens: Lens, maps: Sequence[HeadMap], ids: Tensor, site: str) -> tuple[Tensor, Tensor, Tensor]:
    """Of windows [w, T]: by window Σx/‖x‖ at `site` [w, d], Σ1/‖x‖ [w], and by map Σz/‖x‖ [w, maps, H·e]; float64."""
    with _inputs(maps) as given:
        states = lens.run(ids.to(lens.device), sites=site)[site].double()
    norms = torch.linalg.vector_norm(states, dim=-1)
    weight = torch.where(norms > 0, 1 / norms, 0.0)
    sums = [torch.einsum("bt,btk->bk", weight, given[one.site].reshape(*weight.shape, -1).double()) for one in maps]
    return torch.einsum("bt,btd->bd", weight, states).cpu(), weight.sum(1).cpu(), torch.stack(sums, 1).cpu()
