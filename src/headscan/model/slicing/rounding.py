"""Weights rounded to few bits, as 8-bit loading does, on any machine."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["round_weights"]


@torch.no_grad()
def round_weights(model: nn.Module, bits: int, skip: Callable[[str], bool] = lambda name: False) -> int:
    """Round the weight of every linear map to `bits` bits in place: per output row, symmetric, by its largest entry.

    Embeddings and norms stay. Returns the number of weights rounded. It is what 8-bit loading does to the weights
    (LLM.int8 keeps outlier features of the *activations* in half precision, which this does not model).
    """
    levels, count = 2 ** (bits - 1) - 1, 0
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2 or isinstance(module, nn.Embedding) or skip(name):
            continue
        # transformers' Conv1D keeps [in, out]; nn.Linear keeps [out, in].
        dim = 0 if type(module).__name__ == "Conv1D" else 1
        scale = weight.abs().amax(dim=dim, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny) / levels
        weight.copy_((weight / scale).round().clamp(-levels, levels) * scale)
        count += weight.numel()
    return count
