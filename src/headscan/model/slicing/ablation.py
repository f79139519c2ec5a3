"""The hooks that ablate a model for a slice: branches, residuals, norms and positions taken out while it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headscan.model.lens import Lens
from headscan.model.slicing.specification import SliceSpecification
from headscan.model.structure import Stack
from headscan.model.tap import Tap, first_tensor, input_tensor
from headscan.run import BadInput

__all__ = ["Ablation"]

POSITION = re.compile(r"wpe|position|embed_pos|pos_emb|relative_attention_bias", re.IGNORECASE)
MIXING = ("attention", "cross_attention", "mixer")


class Ablation:
    """What a slice takes out of one model, as hooks that are on while the slice runs and are gone afterwards.

    How a residual is taken out: the branch's output A is replaced by A - x before the model adds it to x, so that the
    sum is A whatever the family's code looks like. This costs one rounding at the scale of x, and holds only where a
    block's output is its input plus its branches (`Stack.plain`).
    """

    def __init__(self, slice_: SliceSpecification, lens: Lens, stack: Stack) -> None:
        self.slice = slice_
        self.lens = lens
        self.stack = stack
        self.branches = [self._branches(index) for index in range(stack.depth)]
        if slice_.start >= stack.depth:
            raise BadInput(f"The slice starts at block {slice_.start}, but '{lens.name}' has {stack.depth} blocks.")
        for index in range(slice_.start, stack.depth):
            self._check(index)
        self.positional = [
            module
            for name, module in lens.model.named_modules()
            if isinstance(module, nn.Embedding) and POSITION.search(name.rpartition(".")[2])
        ]
        self._following = self._order() if not slice_.residual else []

    def __repr__(self) -> str:
        return f"Ablation({str(self.slice)!r} of {self.lens.name!r})"

    def _branches(self, index: int) -> list[tuple[str, Tap]]:
        start = f"{self.stack.prefix}block.{index}."
        return [(site[len(start) :], tap) for site, tap in self.stack.taps.items() if site.startswith(start)]

    def _live(self, index: int) -> list[tuple[str, Tap]]:
        return [branch for branch in self.branches[index] if not self._silent(branch[0])]

    def _silent(self, kind: str) -> bool:
        if self.slice.only is None:
            return False
        mixes = any(kind.startswith(name) for name in MIXING)
        return mixes if self.slice.only == "mlp" else not mixes

    def _check(self, index: int) -> None:
        name = f"block {index} of '{self.lens.name}'"
        if self.slice.only and not self._live(index):
            raise BadInput(f"No {self.slice.only} was found in {name}, so it cannot be run alone.")
        if not self.slice.residual and not self.stack.plain[index]:
            raise BadInput(
                f"The output of {name} is not its input plus its branches (a norm acts on the sum), so its residual "
                "cannot be taken out."
            )

    def _order(self) -> list[bool]:
        """For each block, whether its branches follow one another (else they are parallel): asked by one experiment."""
        answers = []
        for index in range(self.stack.depth):
            live = self._live(index)
            answers.append(len(live) > 1 and self._depends(live[1][1], live[0][1]))
        return answers

    def _depends(self, later: Tap, earlier: Tap) -> bool:
        seen: list[Tensor] = []
        ids = torch.zeros(1, 2, dtype=torch.int64, device=self.lens.device)

        def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            seen.append(_tensor(output).detach().clone())

        for silent in (False, True):
            handles = [later.module.register_forward_hook(note)]
            if silent:
                handles.append(earlier.module.register_forward_hook(_silence))
            try:
                self.lens.run(ids, sites=later.site)
            finally:
                for handle in handles:
                    handle.remove()
        return not torch.equal(seen[0], seen[1])

    # ---- the hooks

    @contextmanager
    def active(self) -> Iterator[None]:
        """The hooks in place; they are removed whatever happens."""
        handles: list[RemovableHandle] = []
        try:
            self._install(handles)
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _install(self, handles: list[RemovableHandle]) -> None:
        cut = self.slice
        for index, block in enumerate(self.stack.blocks):
            if index < cut.start:
                handles.append(block.register_forward_hook(_pass_on, with_kwargs=True))
                continue
            for kind, tap in self.branches[index]:
                if self._silent(kind):
                    handles.append(tap.module.register_forward_hook(_silence))
            if not cut.residual:
                self._remove_residual(index, block, handles)
        if not cut.normalisation:
            for module in self.stack.module.modules():
                if "norm" in type(module).__name__.lower() and not any(module.children()):
                    handles.append(module.register_forward_hook(_identity))
        if not cut.positions:
            for module in self.positional:
                handles.append(module.register_forward_hook(_silence))

    def _remove_residual(self, index: int, block: nn.Module, handles: list[RemovableHandle]) -> None:
        stream: dict[str, Tensor] = {}

        def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found = input_tensor(args, kwargs)
            assert found is not None
            stream["x"] = found

        handles.append(block.register_forward_pre_hook(begin, with_kwargs=True))
        for order, (_, tap) in enumerate(self._live(index)):
            if order and not self._following[index]:
                continue

            def subtract(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
                branch = _tensor(output)
                before = stream["x"].reshape(branch.shape)
                stream["x"] = branch
                return _with_tensor(output, branch - before)

            handles.append(tap.module.register_forward_hook(subtract))


def _tensor(output: Any) -> Tensor:
    found = first_tensor(output)
    assert found is not None
    return found


def _with_tensor(output: Any, tensor: Tensor) -> Any:
    """The same structure with its first tensor replaced."""
    if isinstance(output, Tensor):
        return tensor
    if isinstance(output, tuple):
        return (tensor, *output[1:])
    if isinstance(output, list):
        return [tensor, *output[1:]]
    raise TypeError(f"A module returned {type(output).__name__}, in which no tensor can be replaced.")


def _silence(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    return _with_tensor(output, torch.zeros_like(_tensor(output)))


def _identity(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    return _with_tensor(output, args[0])


def _pass_on(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    given = input_tensor(args, kwargs)
    assert given is not None
    return _with_tensor(output, given)
