"""The hooks that ablate a model for a slice: branches, residuals, norms and positions taken out while it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headscan.model.lens import Lens
from headscan.model.sites import Tap, first_tensor, input_tensor
from headscan.model.slicing.specification import SliceSpecification
from headscan.model.structure import Stack
from headscan.run import BadInput

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


# ---- Weights rounded to few bits, as 8-bit loading does, on any machine.


@torch.no_grad()
def round_weights(model: nn.Module, bits: int, skip: Callable[[str], bool] = lambda name: False) -> int:
    """Round the weight of every linear map to `bits` bits in place: per output row, symmetric, by its largest entry.

    Embeddings and norms stay. Returns the number of weights rounded. It is what 8-bit loading does to the weights
    (LLM.int8 keeps outlier features of the *activations* in half precision, which this does not model).
    """
    levels, count = 2 ** (bits - 1) - 1, 0
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2 or isinstance(module, nn.Embedding) or skip(name):
            continue
        # transformers' Conv1D keeps [in, out]; nn.Linear keeps [out, in].
        dim = 0 if type(module).__name__ == "Conv1D" else 1
        scale = weight.abs().amax(dim=dim, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny) / levels
        weight.copy_((weight / scale).round().clamp(-levels, levels) * scale)
        count += weight.numel()
    return count


# ---- The embedding table that a slice reads its tokens from: other tables, and rows that are equal.


def other_table(name: str, lens: Lens) -> Float[Tensor, "V e"]:
    """The table "random:SEED", with the standard deviation of the model's own, or that of the model `name`.

    Raises:
        BadInput: that model's table has another shape.
    """
    own = lens.input_embeddings
    kind, _, seed = name.partition(":")
    if kind == "random" and seed.isdigit():
        generator = torch.Generator().manual_seed(int(seed))
        return (torch.randn(own.shape, generator=generator) * own.detach().float().std().cpu()).to(own)
    table = Lens.load(name).input_embeddings
    if table.shape != own.shape:
        raise BadInput(
            f"The embedding table of '{name}' has the shape {list(table.shape)}, not {list(own.shape)} as in '{lens.name}'."
        )
    return table.to(own)


def equal_rows(table: Float[Tensor, "V e"]) -> dict[int, list[int]]:
    """The rows that are equal to others, by row; those of their own are not in it.

    >>> equal_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    {0: [0, 2], 2: [0, 2]}
    """
    # Equal rows have equal sums along any direction; the few that agree there are compared whole.
    direction = torch.randn(table.shape[1], generator=torch.Generator().manual_seed(0))
    sums = torch.cat([(rows.double().cpu() * direction.double()).sum(1) for rows in table.split(4096)])
    _, group, counts = sums.unique(return_inverse=True, return_counts=True)
    found: dict[int, list[int]] = {}
    for row in (counts[group] > 1).nonzero()[:, 0].tolist():
        if row not in found:
            alike = (group == group[row]).nonzero()[:, 0]
            same = alike[(table[alike.to(table.device)] == table[row]).all(1).cpu()].tolist()
            if len(same) > 1:
                found |= dict.fromkeys(same, same)
    return found
