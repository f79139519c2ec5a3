"""The trace of one tiny forward pass: every module call, from which a model's structure is read.

In that pass the output of every layer that holds weights itself (a linear map, a norm, an
embedding) is replaced by noise of size one, so that only the wiring between the layers shows. With
the model's own weights it would not always show: terms of decayed weights (1e-7 in one real model)
are lost in rounding, in bfloat16 more of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headscan.model.recording import Args, Kwargs, after_call, before_call
from headscan.model.sites import first_tensor
from headscan.run.locks import in_this_thread


@dataclass(eq=False, repr=False)
class Call:
    """One call of one module, with copies of the states that it got and returned.

    Attributes:
        begin, end: when it began and ended, in steps of the trace.
        inputs, output: states flattened to [B*T, width]; tensors with another number of rows are
            left out.
        flat: whether the module itself returned [B*T, width].
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
        """The module's path and class, in lower case."""
        return f"{self.path} {type(self.module).__name__}".lower()

    def within(self, outer: "Call") -> bool:
        """Return whether this call ran inside another one."""
        return outer.begin < self.begin and self.end < outer.end


@dataclass(eq=False, repr=False)
class Trace:
    """All calls of one forward pass in the order in which they began, and the model's output."""

    calls: list[Call]
    result: Any
    shape: tuple[int, int]


class _Tracer:
    """The hooks of a trace, and the calls that they noted."""

    def __init__(self, paths: Mapping[nn.Module, str], shape: tuple[int, int]) -> None:
        self.calls: list[Call] = []
        self._paths = paths
        self._shape = shape
        self._open_calls: list[Call] = []
        self._steps = 0
        self._noise = torch.Generator().manual_seed(0)

    def begin(self, module: nn.Module, args: Args, kwargs: Kwargs) -> None:
        call = Call(self._paths[module], module, self._next_step())
        for value in (*args, *kwargs.values()):
            rows = self._rows(value)
            if rows is not None:
                call.inputs.append(rows)
        self.calls.append(call)
        self._open_calls.append(call)

    def end(self, module: nn.Module, _args: Args, _kwargs: Kwargs, output: Any) -> Any:
        call = self._open_calls.pop()
        call.end = self._next_step()
        if _holds_weights(module) and isinstance(output, Tensor) and output.is_floating_point():
            noise = torch.randn(output.shape, generator=self._noise)
            output = noise.to(output.device, output.dtype)
        states = first_tensor(output)
        call.output = self._rows(states)
        call.flat = states is not None and states.ndim == 2
        return output

    def _next_step(self) -> int:
        self._steps += 1
        return self._steps

    def _rows(self, value: Any) -> Tensor | None:
        """Return a copy of states as [B*T, width]; None of anything else."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return None
        rows = self._shape[0] * self._shape[1]
        if value.ndim == 3 and tuple(value.shape[:2]) == self._shape:
            return value.detach().reshape(rows, -1).clone()
        if value.ndim == 2 and value.shape[0] == rows:
            return value.detach().clone()
        return None


def _holds_weights(module: nn.Module) -> bool:
    """Return whether a module is a layer: it has weights of its own and no modules inside."""
    has_children = next(module.children(), None) is not None
    has_weights = next(module.parameters(), None) is not None
    return has_weights and not has_children


def trace_calls(model: nn.Module, inputs: Mapping[str, Any], shape: tuple[int, int]) -> Trace:
    """Run the model once on a batch of `shape` [B, T], with noise as every layer's output."""
    paths = {module: path for path, module in model.named_modules()}
    tracer = _Tracer(paths, shape)
    begin = before_call(paths, in_this_thread(tracer.begin))
    end = after_call(paths, in_this_thread(tracer.end))
    with torch.no_grad(), begin, end:
        result = model(**inputs)
    return Trace(tracer.calls, result, shape)
