"""Live objects as stored states: arrays of numpy and torch, whatever speaks DLPack, and dicts of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscan.run import BadInput
from headscan.states.rows import DTYPES, TensorRows
from headscan.states.vectors import DOCUMENTS, TOKENS, Vectors, of_shape

__all__ = ["of_object", "tensor_of"]


def tensor_of(given: Any, what: str) -> Tensor:
    """The same numbers as a tensor of the CPU, without a copy where that can be.

    Raises:
        BadInput: it is no array, or one of no numbers.

    >>> tensor_of([[1.0, 2.0]], "it").shape
    torch.Size([1, 2])
    """
    if isinstance(given, Tensor):
        return _numbers(given.detach().cpu(), what)
    try:
        if isinstance(given, np.ndarray):
            found = torch.from_numpy(np.require(given, requirements=["C", "W"]))
        elif hasattr(given, "__dlpack__"):
            found = torch.utils.dlpack.from_dlpack(given).cpu()
        else:
            found = torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise BadInput(
            f"{what[0].upper()}{what[1:]} is no array of numbers: {' '.join(str(error).split())[:120]}."
        ) from error
    return _numbers(found, what)


def _numbers(found: Tensor, what: str) -> Tensor:
    if found.dtype not in DTYPES.values():
        raise BadInput(
            f"{what[0].upper()}{what[1:]} holds {str(found.dtype).removeprefix('torch.')}, which no states are."
        )
    return found


def of_object(given: Any, name: str = "array") -> Vectors:
    """The vectors of an array [n, d] or [windows, T, d], or of a dict of such by site.

    In a dict `token_ids` and `documents` [n] or [windows, T] say what the vectors are of.

    >>> of_object(np.ones((6, 3), dtype=np.float32)).count
    6
    """
    if not isinstance(given, Mapping):
        given = {"vectors": given}
    sites, windows, extra = dict[str, TensorRows](), set[int | None](), dict[str, TensorRows]()
    for site, value in given.items():
        rows = tensor_of(value, f"{name}'s {site}" if len(given) > 1 else f"the {name}")
        if site in TOKENS + DOCUMENTS:
            extra[TOKENS[0] if site in TOKENS else DOCUMENTS[0]] = TensorRows(rows.reshape(-1, 1))
            continue
        count, width, window = of_shape(f"The {name}", f"'{site}'", rows.shape)
        sites[str(site)] = TensorRows(rows.reshape(count, width))
        windows.add(window)
    if len(windows) > 1:
        raise BadInput(f"The {name} has windows at some sites and none, or others, at other sites.")
    return Vectors(
        name, sites, ids=extra.get(TOKENS[0]), documents=extra.get(DOCUMENTS[0]), window=next(iter(windows), None)
    )
