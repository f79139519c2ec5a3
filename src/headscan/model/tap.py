"""Where a site is read: one module, at its input or its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

__all__ = ["Tap", "first_tensor", "input_tensor"]


@dataclass(frozen=True, eq=False, repr=False)
class Tap:
    """One site of a model and the place where its values pass.

    Attributes:
        site: its name, such as `block.3.mlp`.
        module: the module that is hooked.
        path: that module's name inside the model, such as `transformer.h.3.mlp`.
        where: "input" reads what the module is given, "output" what it returns.
        width: the size of the last dimension.
        call, calls: the module runs `calls` times in one forward pass and the site is the call number `call`
            (0, 1 except where layers share their weights, as in ALBERT).
        clock: the module whose start begins a new count of calls: the stack's own module.
        shape_from: set where the module sees [B*T, width] (OPT's MLP): the block whose input tells B and T, since
            the site is given as [B, T, width] all the same.
        overwritten: the model goes on to change this tensor in place (Falcon adds into its MLP's output), so that it
            must be copied to be kept.
    """

    site: str
    module: nn.Module
    path: str
    where: Literal["input", "output"]
    width: int
    clock: nn.Module
    call: int = 0
    calls: int = 1
    shape_from: nn.Module | None = None
    overwritten: bool = False

    @property
    def place(self) -> str:
        """The place in words, for tables: `output of transformer.h.3.mlp`."""
        again = f", call {self.call + 1} of {self.calls}" if self.calls > 1 else ""
        return f"{self.where} of {self.path or 'the model'}{again}"

    def __repr__(self) -> str:
        return f"Tap({self.site}: {self.place}, width {self.width})"


def first_tensor(value: Any) -> Tensor | None:
    """The tensor that matters in what a module returns: itself, the logits, or the first of a tuple."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        named = (value.get(key) for key in ("logits", "prediction_logits", "last_hidden_state"))
        return next((one for one in named if isinstance(one, Tensor)), None)
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], Tensor):
        return value[0]
    return None


def input_tensor(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """The hidden states among a module's arguments: the first floating tensor, positional arguments first."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and torch.is_floating_point(value):
            return value
    return None
