"""Names for the numbers of a case, and the file that keeps them: nothing here knows headscan."""

import gzip
import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401  its BLAS is one of those that `environment` names
import torch
from safetensors.numpy import load_file, save
from threadpoolctl import threadpool_info

__all__ = ["ARRAYS", "NUMBERS", "environment", "flat", "prefixed", "read", "sha256", "write"]

HERE = Path(__file__).parent
NUMBERS = HERE / "numbers.json.gz"
ARRAYS = HERE / "numbers.safetensors"
LONG = 16  # longer lists of numbers are kept as arrays
# What differs from run to run or from place to place, or is wording, and so is no number to be
# kept.
LEFT_OUT = {
    "seconds",
    "started",
    "versions",
    "command",
    "notes",
    "memory",
    "threads",
    "device",
    "source",
    "headscan",
}
# The texts that are findings of their own; all others are words, which may be improved.
KEPT_TEXTS = {"verdict", "verdicts"}

Value = Any  # None, bool, int, float, str, a short list of these, or an array


def sha256(array: np.ndarray) -> str:
    """Return the hash of an array's values, as little-endian int64 or float64, and its shape."""
    kind = "<f8" if np.asarray(array).dtype.kind == "f" else "<i8"
    plain = np.ascontiguousarray(array, dtype=kind)
    return hashlib.sha256(str(plain.shape).encode() + plain.tobytes()).hexdigest()


def prefixed(prefix: str, numbers: Mapping[str, Value]) -> dict[str, Value]:
    """Return the same numbers under longer names."""
    return {f"{prefix}/{name}": value for name, value in numbers.items()}


def flat(prefix: str, value: Any) -> dict[str, Value]:
    """Every number of nested mappings, lists and arrays, by its path; texts only where they are
    findings.

    >>> flat("a", {"b": [1.5, 2.0], "verdict": "unique", "title": "words", "c": [{"d": None}]})
    {'a/b': [1.5, 2.0], 'a/verdict': 'unique', 'a/c/0/d': None}
    """
    name = prefix.rsplit("/", 1)[-1]
    if name in LEFT_OUT:
        return {}
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {
            key: leaf
            for part in value
            for key, leaf in flat(f"{prefix}/{part}", value[part]).items()
        }
    if isinstance(value, np.ndarray):
        return {prefix: value}
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, bool | int | float) for item in value):
            numbers = list(value)
            return {prefix: np.array(numbers) if len(numbers) > LONG else numbers}
        if value and all(isinstance(item, str) for item in value):
            return {prefix: list(value)} if name in KEPT_TEXTS else {}
        return {
            key: item
            for k, part in enumerate(value)
            for key, item in flat(f"{prefix}/{k}", part).items()
        }
    if isinstance(value, str):
        return {prefix: value} if name in KEPT_TEXTS else {}
    if isinstance(value, float) and not math.isfinite(value):
        return {prefix: None}
    if value is None or isinstance(value, bool | int | float):
        return {prefix: value}
    return {}


def environment() -> dict[str, str]:
    """Return what the last bits of a number depend on beside the program."""
    # Those of numpy and scipy: other packages bring libraries of their own, which none of the
    # numbers comes from.
    own_libraries = (f"{os.sep}numpy.libs{os.sep}", f"{os.sep}scipy.libs{os.sep}")
    pools = [
        pool
        for pool in threadpool_info()
        if pool["user_api"] == "blas" and any(at in pool["filepath"] for at in own_libraries)
    ]
    blas = {
        f"{pool['internal_api']} {pool['version']} {pool.get('architecture')}" for pool in pools
    }
    return {
        name: version(name) for name in ("torch", "numpy", "scipy", "transformers", "tokenizers")
    } | {
        "machine": platform.machine(),
        "processor": processor_vendor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "kernels": ", ".join(sorted(blas)),
    }


def processor_vendor() -> str:
    """Return who made the processor: torch's products take another way for each."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.processor()
    match = re.search(r"^vendor_id\s*:\s*(\S+)", information.read_text(), flags=re.M)
    return match[1] if match else platform.processor()


def write(numbers: Mapping[str, Value]) -> None:
    """Keep the numbers: arrays in one file, everything else in the other. The same numbers give the
    same bytes.
    """
    arrays = {
        name: np.ascontiguousarray(value)
        for name, value in numbers.items()
        if isinstance(value, np.ndarray)
    }
    scalars = {name: value for name, value in numbers.items() if not isinstance(value, np.ndarray)}
    text = json.dumps(
        {"environment": environment(), "numbers": scalars},
        sort_keys=True,
        allow_nan=False,
        separators=(",\n", ":"),
    )
    NUMBERS.write_bytes(gzip.compress(text.encode(), mtime=0))
    ARRAYS.write_bytes(save(dict(sorted(arrays.items()))))


def read() -> tuple[dict[str, str], dict[str, Value]]:
    """The environment in which the numbers were made, and the numbers."""
    document = json.loads(gzip.decompress(NUMBERS.read_bytes()))
    return document["environment"], document["numbers"] | load_file(ARRAYS)
