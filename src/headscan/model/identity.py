"""What a resumed run must find again: the weights of a model and the rules of a tokenizer, by their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

__all__ = ["tokenizer_identity", "weights_identity"]


def weights_identity(model: nn.Module | None, files: Mapping[str, str]) -> str:
    """The hash of the hashes of the weight `files`; where there are none, of the sum and the sum of squares of each tensor."""
    if files:
        return _hash(sorted(files.items()))
    return _hash(
        [
            (name, list(one.shape), float(one.double().sum()), float(one.double().square().sum()))
            for name, one in (model.state_dict().items() if model is not None else ())
            if isinstance(one, torch.Tensor)
        ]
    )


def tokenizer_identity(tokenizer: Any) -> str:
    """The hash of a tokenizer's rules where it shows them, else of its class and vocabulary.

    >>> from headscan.model import ByteTokenizer
    >>> tokenizer_identity(ByteTokenizer()) == tokenizer_identity(ByteTokenizer())
    True
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and hasattr(backend, "to_str"):
        return _hash(backend.to_str())
    known = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    return _hash([type(tokenizer).__name__, sorted(known.items())])


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
