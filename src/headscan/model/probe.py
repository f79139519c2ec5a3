"""One tiny forward pass that writes down every module call: what the structure is read from.

In that pass the output of every layer that holds weights itself (a linear map, a norm, an embedding) is replaced by
noise of size one. The wiring between the layers is the model's own and is all that shows. With the weights' own numbers
it would not always show: one of the real models in our tests has blocks whose weights have decayed to 1e-7, so that what
they add is lost in rounding, and in bfloat16 small terms drown beside the large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headscan.model.tap import first_tensor

__all__ = ["Call", "Trace", "trace_calls"]


@dataclass(eq=False, repr=False)
class Call:
    """One call of one module: when it began and ended (in steps of the trace), copies of what it saw and returned.

    `inputs` and `output` are flattened to [B*T, width]; tensors of any other number of rows are left out.
    """

    path: str
    module: nn.Module
    begin: int
    end: int = -1
    inputs: list[Tensor] = field(default_factory=list)
    output: Tensor | None = None
    flat: bool = False

    @property
    def name(self) -> str:
        """The path and the class in one lower-case string."""
        return f"{self.path} {type(self.module).__name__}".lower()

    def within(self, other: Call) -> bool:
        """Whether this call happened inside the other one."""
        return other.begin < self.begin and self.end < other.end

    def __repr__(self) -> str:
        return f"Call({self.path or 'the model'}: steps {self.begin} to {self.end})"


@dataclass(eq=False, repr=False)
class Trace:
    """All calls of one forward pass in the order in which they began, and the model's own output."""

    calls: list[Call]
    result: Any
    shape: tuple[int, int]

    def of(self, module: nn.Module) -> list[Call]:
        """The calls of one module, in order."""
        return [call for call in self.calls if call.module is module]

    def __repr__(self) -> str:
        return f"Trace({len(self.calls)} calls on a batch of {self.shape[0]} x {self.shape[1]} tokens)"


def trace_calls(model: nn.Module, inputs: dict[str, Any], shape: tuple[int, int]) -> Trace:
    """Run the model once on `inputs`, a batch of `shape` [B, T], noise in place of every layer's output, and write down
    its calls. Leaves no hook behind."""
    noise = torch.Generator().manual_seed(0)
    calls: list[Call] = []
    open_calls: list[Call] = []
    clock = 0
    rows = shape[0] * shape[1]

    def tick() -> int:
        nonlocal clock
        clock += 1
        return clock

    def rows_of(value: Any) -> Tensor | None:
        if not isinstance(value, Tensor) or not torch.is_floating_point(value) or value.ndim not in (2, 3):
            return None
        if value.ndim == 3 and tuple(value.shape[:2]) == shape:
            return value.detach().reshape(rows, -1).clone()
        if value.ndim == 2 and value.shape[0] == rows:
            return value.detach().clone()
        return None

    def before(path: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            call = Call(path, module, tick())
            call.inputs = [x for value in (*args, *kwargs.values()) if (x := rows_of(value)) is not None]
            calls.append(call)
            open_calls.append(call)

        return hook

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        call = open_calls.pop()
        call.end = tick()
        if _is_layer(module) and isinstance(output, Tensor) and torch.is_floating_point(output):
            output = torch.randn(output.shape, generator=noise).to(output.device, output.dtype)
        tensor = first_tensor(output)
        call.output = rows_of(tensor)
        call.flat = tensor is not None and tensor.ndim == 2
        return output

    with torch.no_grad(), _hooks() as handles:
        for path, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(before(path), with_kwargs=True))
            handles.append(module.register_forward_hook(after))
        result = model(**inputs)
    return Trace(calls, result, shape)


def _is_layer(module: nn.Module) -> bool:
    return next(module.children(), None) is None and next(module.parameters(), None) is not None


@contextmanager
def _hooks() -> Iterator[list[RemovableHandle]]:
    handles: list[RemovableHandle] = []
    try:
        yield handles
    finally:
        for handle in handles:
            handle.remove()
