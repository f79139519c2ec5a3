"""The leak check: which outputs of a slice move when one input token is changed."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.model.inputs import IdsLike
from headscan.model.lens import Lens
from headscan.model.slicing.slice import Slice

__all__ = ["leak_check"]


@torch.no_grad()
def leak_check(
    slice_: Slice, lens: Lens, input_ids: IdsLike, *, trials: int = 4, seed: int = 0, batch: int = 256
) -> Float[Tensor, "T kept"]:
    """How far each output moves when each input token is replaced by random others.

    Args:
        slice_: the slice.
        lens: the model.
        input_ids: one prompt, [T] or [1, T].
        trials: random replacements of each token; the largest movement counts.
        seed: of the replacements.
        batch: rows of a forward pass.

    Returns:
        float32 [T, T']: entry (j, i) is the largest ||O_i(changed at j) - O_i|| / ||O_i|| seen over the trials. Zero
        means that output i did not see token j at all (up to `1e-6`, the rounding of other batch shapes). A zero says
        that the outputs cannot tell these replacements apart from the token; it is no proof for all tokens.

    Cost: T x trials rows of T tokens.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2)))
    >>> (leak_check(Slice(), lens, [1, 2, 3]) > 0).int()
    tensor([[1, 1, 1],
            [0, 1, 1],
            [0, 0, 1]], dtype=torch.int32)
    """
    cut = slice_.on(lens)
    ids = cut.check(torch.atleast_2d(torch.as_tensor(input_ids)))[:1]
    length, vocabulary = ids.shape[1], cut.vocabulary_size
    generator = torch.Generator().manual_seed(seed)
    rows = ids.repeat(length * trials, 1)
    place = torch.arange(length).repeat_interleave(trials)
    shift = torch.randint(1, max(vocabulary, 2), (length * trials,), generator=generator).to(ids.device)
    index = torch.arange(len(rows), device=ids.device)
    rows[index, place.to(ids.device)] = (rows[index, place.to(ids.device)] + shift) % vocabulary
    moved = []
    for chunk in rows.split(max(1, batch - 1)):
        # The unchanged prompt runs in the same batch, so that both see the same kernels.
        both = cut.run(torch.cat([ids, chunk])).float()
        moved.append((both[1:] - both[:1]).norm(dim=-1) / both[:1].norm(dim=-1).clamp_min(1e-30))
    found = torch.cat(moved).reshape(length, trials, -1).amax(1).cpu()
    return torch.where(found > 1e-6, found, torch.zeros_like(found))
