"""What stands where a token is taken away."""

from __future__ import annotations

import torch
from torch import Tensor

from headscan.attribution.engine import Engine
from headscan.attribution.target import one_token
from headscan.run import BadInput

__all__ = ["substitute_vector"]


def substitute_vector(engine: Engine, choice: str | int) -> tuple[Tensor | None, str]:
    """The embedding [e] that stands for an absent token, and its name; None for removal.

    Args:
        engine: the model.
        choice: "auto" (the tokenizer's mask, padding, end-of-text or unknown token, the first there is; else "mean"),
            "mask", "pad", "eos", "bos", "unk", "mean" (of the embedding table), "zero", "remove", or a token, as its
            text, its id or "#ID".

    Raises:
        BadInput: the tokenizer has no such token, or the text is not one token.
    """
    lens = engine.lens
    if choice == "remove":
        return None, "remove"
    if choice == "zero":
        return torch.zeros_like(engine.embed(torch.tensor([0]))[0]), "zero"
    if choice == "mean":
        ids = torch.arange(lens.vocabulary_size).split(8192)
        total = torch.stack([engine.embed(part).double().sum(0) for part in ids]).sum(0)
        return (total / lens.vocabulary_size).to(lens.input_embeddings.dtype), "mean"
    if choice == "auto":
        names = ("mask", "pad", "eos", "unk")
        choice = next((name for name in names if _special(engine, name) is not None), "mean")
        return substitute_vector(engine, choice)
    if choice in ("mask", "pad", "eos", "bos", "unk"):
        token = _special(engine, str(choice))
        if token is None:
            raise BadInput(f"The tokenizer of '{lens.name}' has no {choice} token; use mean, zero, remove or a token.")
    else:
        token = one_token(lens, choice)
    return engine.embed(torch.tensor([token]))[0], str(choice)


def _special(engine: Engine, name: str) -> int | None:
    token = getattr(engine.lens.tokenizer, f"{name}_token_id", None)
    if token is None and engine.lens.tokenizer is None:
        token = getattr(engine.model.config, f"{name}_token_id", None)
    return token if isinstance(token, int) and 0 <= token < engine.lens.vocabulary_size else None
