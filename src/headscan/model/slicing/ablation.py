"""Parts that a slice takes out of a model while it runs: branches, residuals, norms."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headscan.model.lens import Lens
from headscan.model.recording import (
    Args,
    Kwargs,
    after_call,
    before_call,
    patched,
    with_first_tensor,
)
from headscan.model.sites import Tap, input_tensor
from headscan.model.slicing.specification import SliceSpecification
from headscan.model.stacks import Stack
from headscan.run import BadInput

MIXING = ("attention", "cross_attention", "mixer")
"""The kinds of branches that mix tokens."""


class Ablation:
    """The parts that a slice takes out of one model; they are out only while `active` lasts.

    A residual is taken out in this way: the branch's output A is replaced by A - x before the model
    adds it to x, so that the sum is A whatever the family's code looks like. This costs one
    rounding at the scale of x, and holds only where a block's output is its input plus its branches
    (`Stack.plain`).

    Raises:
        BadInput: where a block has no branch of the kind that is to run alone, or its residual
            cannot be taken out.
    """

    def __init__(self, specification: SliceSpecification, lens: Lens, stack: Stack) -> None:
        self._specification = specification
        self._lens = lens
        self._stack = stack
        self._silenced: list[Tap] = []
        self._without_residual: list[list[Tap]] = []
        for index in range(stack.depth):
            running, silenced = self._branches(index)
            self._check_block(index, running)
            self._silenced += silenced
            if not specification.residual:
                self._without_residual.append(self._added_in_sequence(running))

    def _check_block(self, index: int, running: list[Tap]) -> None:
        only = self._specification.only
        block = f"block {index} of '{self._lens.name}'"
        if only and not running:
            raise BadInput(f"No {only} was found in {block}, so it cannot be run alone.")
        if not self._specification.residual and not self._stack.plain[index]:
            raise BadInput(
                f"The output of {block} is not its input plus its branches (a norm acts on the "
                "sum), so its residual cannot be taken out."
            )

    def _branches(self, index: int) -> tuple[list[Tap], list[Tap]]:
        """Return the branches of a block that run, and those that `only` silences."""
        only = self._specification.only
        prefix = f"{self._stack.prefix}block.{index}."
        running = []
        silenced = []
        for site, tap in self._stack.taps.items():
            if not site.startswith(prefix):
                continue
            mixes_tokens = site.removeprefix(prefix).startswith(MIXING)
            if only is None or mixes_tokens == (only == "attention"):
                running.append(tap)
            else:
                silenced.append(tap)
        return running, silenced

    def _added_in_sequence(self, branches: list[Tap]) -> list[Tap]:
        """Return the branches from which the stream is subtracted: all, or one of parallel ones."""
        if len(branches) > 1 and self._depends(branches[1], branches[0]):
            return branches
        return branches[:1]

    def _depends(self, later: Tap, earlier: Tap) -> bool:
        """Return whether a branch changes when another one is silenced, by an experiment."""
        ids = torch.zeros(1, 2, dtype=torch.int64, device=self._lens.device)
        states = self._lens.run(ids, sites=later.site)[later.site]
        with patched(earlier, torch.zeros_like):
            changed = self._lens.run(ids, sites=later.site)[later.site]
        return not torch.equal(states, changed)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run the model without what the slice takes out, in this context."""
        with ExitStack() as contexts:
            for tap in self._silenced:
                contexts.enter_context(patched(tap, torch.zeros_like))
            for index, taps in enumerate(self._without_residual):
                contexts.enter_context(_residual_removed(self._stack.blocks[index], taps))
            if not self._specification.normalisation:
                contexts.enter_context(after_call(self._norms(), _return_input))
            yield

    def _norms(self) -> list[nn.Module]:
        return [
            module
            for module in self._stack.module.modules()
            if "norm" in type(module).__name__.lower() and not any(module.children())
        ]


class _Stream:
    """The residual stream inside one block: the block's input, then each branch without it."""

    def __init__(self) -> None:
        self._states: Tensor | None = None

    def begin(self, _block: nn.Module, args: Args, kwargs: Kwargs) -> None:
        self._states = input_tensor(args, kwargs)

    def subtracted(self, branch: Tensor) -> Tensor:
        """Return a branch's output less the stream, which becomes the output."""
        assert self._states is not None
        difference = branch - self._states
        self._states = branch
        return difference


@contextmanager
def _residual_removed(block: nn.Module, taps: list[Tap]) -> Iterator[None]:
    stream = _Stream()
    with ExitStack() as contexts:
        contexts.enter_context(before_call(block, stream.begin))
        for tap in taps:
            contexts.enter_context(patched(tap, stream.subtracted))
        yield


def _return_input(_module: nn.Module, args: Args, kwargs: Kwargs, output: Any) -> Any:
    states = input_tensor(args, kwargs)
    assert states is not None
    return with_first_tensor(output, states)
