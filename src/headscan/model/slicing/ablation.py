"""What a slice changes in a model: hooks that take parts out while it runs, and other embedding tables."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscan.model.lens import Lens
from headscan.model.recording import Stack
from headscan.model.sites import Tap, first_tensor, input_tensor
from headscan.model.slicing.specification import SliceSpecification
from headscan.run import BadInput

MIXING = ("attention", "cross_attention", "mixer")


class Ablation:
    """What a slice takes out of one model, as hooks that are on while the slice runs and are removed afterwards.

    How a residual is taken out: the branch's output A is replaced by A - x before the model adds it to x, so that the
    sum is A whatever the family's code looks like. This costs one rounding at the scale of x, and holds only where a
    block's output is its input plus its branches (`Stack.plain`).
    """

    def __init__(self, slice_: SliceSpecification, lens: Lens, stack: Stack) -> None:
        self.slice, self.lens, self.stack = slice_, lens, stack
        self.live: list[list[Tap]] = []
        self.silent: list[list[Tap]] = []
        for index in range(stack.depth):
            live, silent = self._branches(index)
            self.live.append(live)
            self.silent.append(silent)
            name = f"block {index} of '{lens.name}'"
            if slice_.only and not live:
                raise BadInput(f"No {slice_.only} was found in {name}, so it cannot be run alone.")
            if not slice_.residual and not stack.plain[index]:
                raise BadInput(
                    f"The output of {name} is not its input plus its branches (a norm acts on the sum), so its residual "
                    "cannot be taken out."
                )
        # For each block, whether its branches follow one another (else they are parallel).
        self._following = [len(live) > 1 and self._depends(live[1], live[0]) for live in self.live if not slice_.residual]

    def _branches(self, index: int) -> tuple[list[Tap], list[Tap]]:
        """The branches of a block that stay, and those that `only` silences."""
        start, live, silent = f"{self.stack.prefix}block.{index}.", list[Tap](), list[Tap]()
        for site, tap in self.stack.taps.items():
            if site.startswith(start):
                mixes = site[len(start) :].startswith(MIXING)
                stays = self.slice.only is None or mixes == (self.slice.only == "attention")
                (live if stays else silent).append(tap)
        return live, silent

    def _depends(self, later: Tap, earlier: Tap) -> bool:
        """Whether a branch changes when another is silenced: asked by one experiment."""
        outputs: list[Tensor] = []
        ids = torch.zeros(1, 2, dtype=torch.int64, device=self.lens.device)

        def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            outputs.append(_tensor(output).detach().clone())

        with ExitStack() as hooks:
            hooks.callback(later.module.register_forward_hook(note).remove)
            self.lens.run(ids, sites=later.site)
            hooks.callback(earlier.module.register_forward_hook(_silence).remove)
            self.lens.run(ids, sites=later.site)
        return not torch.equal(outputs[0], outputs[1])

    @contextmanager
    def active(self) -> Iterator[None]:
        with ExitStack() as hooks:
            for index, block in enumerate(self.stack.blocks):
                for tap in self.silent[index]:
                    hooks.callback(tap.module.register_forward_hook(_silence).remove)
                if not self.slice.residual:
                    self._remove_residual(index, block, hooks)
            if not self.slice.normalisation:
                for module in self.stack.module.modules():
                    if "norm" in type(module).__name__.lower() and not any(module.children()):
                        hooks.callback(module.register_forward_hook(_identity).remove)
            yield

    def _remove_residual(self, index: int, block: nn.Module, hooks: ExitStack) -> None:
        stream: dict[str, Tensor] = {}

        def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            states = input_tensor(args, kwargs)
            assert states is not None
            stream["x"] = states

        def subtract(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            branch = _tensor(output)
            before = stream["x"].reshape(branch.shape)
            stream["x"] = branch
            return _with_tensor(output, branch - before)

        hooks.callback(block.register_forward_pre_hook(begin, with_kwargs=True).remove)
        for tap in self.live[index] if self._following[index] else self.live[index][:1]:
            hooks.callback(tap.module.register_forward_hook(subtract).remove)


def _tensor(output: Any) -> Tensor:
    tensor = first_tensor(output)
    assert tensor is not None
    return tensor


def _with_tensor(output: Any, tensor: Tensor) -> Any:
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


def other_table(name: str, lens: Lens) -> Float[Tensor, "V e"]:
    """The table "random:SEED", with the standard deviation of the model's own."""
    own = lens.input_embeddings
    kind, _, seed = name.partition(":")
    if kind != "random" or not seed.isdigit():
        raise BadInput(f"Another embedding table is given as random:SEED, not as '{name}'.")
    return (torch.randn(own.shape, generator=torch.Generator().manual_seed(int(seed))) * own.detach().float().std().cpu()).to(own)


def equal_rows(table: Float[Tensor, "V e"]) -> dict[int, list[int]]:
    """The rows that are equal to others, by row; rows without an equal are not in it.

    >>> equal_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    {0: [0, 2], 2: [0, 2]}
    """
    # Equal rows have equal sums along any direction; the few that agree there are compared entry by entry.
    direction = torch.randn(table.shape[1], generator=torch.Generator().manual_seed(0))
    sums = torch.cat([(rows.double().cpu() * direction.double()).sum(1) for rows in table.split(4096)])
    _, group, counts = sums.unique(return_inverse=True, return_counts=True)
    equals: dict[int, list[int]] = {}
    for row in (counts[group] > 1).nonzero()[:, 0].tolist():
        if row not in equals:
            alike = (group == group[row]).nonzero()[:, 0]
            same = alike[(table[alike.to(table.device)] == table[row]).all(1).cpu()].tolist()
            if len(same) > 1:
                equals |= dict.fromkeys(same, same)
    return equals
