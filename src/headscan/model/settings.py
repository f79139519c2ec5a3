"""The settings of loading - device, precision, quantisation - checked and made into what transformers takes."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

import torch

from headscan.errors import BadInput

__all__ = ["check_device", "check_dtype", "choose_device", "quantization", "require_accelerate"]

DTYPES: dict[str, torch.dtype | str] = {
    "auto": "auto",
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def check_dtype(name: str) -> torch.dtype | str:
    """The torch dtype of that name, or "auto".

    >>> check_dtype("bfloat16")
    torch.bfloat16
    """
    if name not in DTYPES:
        raise BadInput(f"There is no dtype '{name}'; choose one of {', '.join(DTYPES)}.")
    return DTYPES[name]


def check_device(name: str) -> None:
    """Raise BadInput for a device that is unknown or absent from this machine."""
    kind, _, number = name.partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (number and (kind != "cuda" or not number.isdigit())):
        raise BadInput(f"There is no device '{name}'; choose auto, cpu, cuda, cuda:N or mps.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"The device '{name}' was asked for, but PyTorch finds no CUDA device on this machine.")
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise BadInput(
            f"The device '{name}' was asked for, but there are only {torch.cuda.device_count()} CUDA devices."
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise BadInput("The device 'mps' was asked for, but PyTorch finds no Apple GPU on this machine.")


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" is CUDA where there is any, else Apple's GPU, else the CPU."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def quantization(name: str | None, precision: torch.dtype | str) -> Any:
    """The BitsAndBytesConfig for "8bit" or "4bit", None for None.

    Raises:
        BadInput: another name, or bitsandbytes is not installed.
    """
    if name is None:
        return None
    if name not in ("8bit", "4bit"):
        raise BadInput(f"There is no quantisation '{name}'; choose 8bit or 4bit.")
    if find_spec("bitsandbytes") is None:
        raise BadInput('Quantisation needs the package bitsandbytes: pip install "headscan[quantize]".')
    # It logs a line for every product of every pass: that inputs are cast, which is what 8 bits are.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    require_accelerate("Quantisation")
    from transformers import BitsAndBytesConfig

    if name == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    compute = precision if isinstance(precision, torch.dtype) else torch.bfloat16
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute)


def require_accelerate(what: str) -> None:
    """Raise BadInput where accelerate, which places weights on devices, is not installed."""
    if find_spec("accelerate") is None:
        raise BadInput(f'{what} needs the package accelerate: pip install "headscan[quantize]".')
