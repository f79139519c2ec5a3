"""A trained model with its tokenizer, from wherever `headscan.Lens.load` finds models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscan.errors import BadInput
from headscan.model import Lens
from headscan.model.source import find_source
from headscan.training.data import check_fit

__all__ = ["load_trained"]


def load_trained(model: str, *, bare: bool = False) -> tuple[Any, Any, Path | None]:
    """(model, tokenizer, its local folder or None) in float32; `bare` leaves the head out.

    Raises BadInput where there is no such model, no tokenizer with it, or the two do not fit.

    >>> body, tokenizer, folder = load_trained("gpt-headless", bare=True)
    >>> type(body).__name__, len(tokenizer) <= body.config.vocab_size, folder.name
    ('GPT2Model', True, 'gpt-headless')
    """
    lens = Lens.load(model, dtype="float32")
    if lens.tokenizer is None:
        raise BadInput(f"The model '{model}' comes without its tokenizer.")
    found = lens.model.base_model if bare else lens.model
    check_fit(lens.tokenizer, found.config.vocab_size)
    return found, lens.tokenizer, find_source(model, None).folder
