"""How a model's token vectors become one sentence vector: as its folder says, in the file that sentence-transformers writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["Pooling", "declared_pooling", "declares_unit_length", "pooled"]

Pooling = Literal["mean", "first", "last"]

_FLAGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}


def declared_pooling(source: str | Path | None) -> Pooling | None:
    """The pooling that a model's folder declares (`1_Pooling/config.json`); None where it is no folder or declares none.

    >>> declared_pooling("no/such/folder") is None
    True
    """
    try:
        found = json.loads((Path(source or "") / "1_Pooling" / "config.json").read_text())
    except (OSError, ValueError):
        return None
    chosen = [name for flag, name in _FLAGS.items() if found.get(flag)] if isinstance(found, dict) else []
    return chosen[0] if len(chosen) == 1 else None


def declares_unit_length(source: str | Path | None) -> bool:
    """Whether a model's folder says that its sentence vectors are brought to length 1 (the last module of `modules.json`).

    >>> declares_unit_length("no/such/folder")
    False
    """
    try:
        found = json.loads((Path(source or "") / "modules.json").read_text())
        return str(found[-1]["type"]).endswith("Normalize")
    except (OSError, ValueError, LookupError, TypeError):
        return False


def pooled(
    states: Float[Tensor, "B T d"], pooling: Pooling, mask: Int[Tensor, "B T"] | None = None
) -> Float[Tensor, "B d"]:
    """One vector a row: the mean of its tokens' vectors, that of the first token, or of the last.

    Args:
        states: the vectors.
        pooling: which.
        mask: 1 where a token is, 0 behind the row's end; None: rows are full.

    >>> import torch
    >>> pooled(torch.tensor([[[1.0], [3.0], [9.0]]]), "mean", torch.tensor([[1, 1, 0]])).tolist()
    [[2.0]]
    """
    if pooling == "first":
        return states[:, 0]
    if mask is None:
        return states.mean(1) if pooling == "mean" else states[:, -1]
    if pooling == "mean":
        return (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    return states[range(len(states)), (mask.sum(1) - 1).tolist()]
