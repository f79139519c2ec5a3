"""Weights of 8 and 4 bits, by bitsandbytes."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any, Literal

import torch

from headscan.run import BadInput

__all__ = ["check_quantization", "quantization", "require_accelerate"]


def check_quantization() -> None:
    """Raise BadInput where bitsandbytes, or accelerate beside it, is not installed."""
    if find_spec("bitsandbytes") is None:
        raise BadInput('Quantisation needs the package bitsandbytes: pip install "headscan[quantize]".')
    require_accelerate("Quantisation")


def quantization(name: Literal["8bit", "4bit"], precision: torch.dtype | str) -> Any:
    """The BitsAndBytesConfig for "8bit" or "4bit", computing in `precision` (bfloat16 for "auto")."""
    # It logs a line for every product of every pass: that inputs are cast, which is what 8 bits are.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    import transformers

    config: Any = transformers.BitsAndBytesConfig
    if name == "8bit":
        return config(load_in_8bit=True)
    compute = precision if isinstance(precision, torch.dtype) else torch.bfloat16
    return config(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute)


def require_accelerate(what: str) -> None:
    """Raise BadInput where accelerate, which places weights on devices, is not installed."""
    if find_spec("accelerate") is None:
        raise BadInput(f'{what} needs the package accelerate: pip install "headscan[quantize]".')
