"""Hooks that read sites while the model runs, and that leave nothing behind."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from headscan.model.inputs import probe_inputs
from headscan.model.sites import Tap, first_tensor, input_tensor, trace_calls
from headscan.model.structure import Stack, find_head, find_stack, stack_modules
from headscan.run import BadInput


class Stop(BaseException):
    """Raised in a hook when the deepest site has been read; no `except Exception` inside a model may swallow it."""


class Recorder:
    """A context in which `each(site, tensor)` is called whenever the model passes one of the taps.

    The tensor is the live one, with its gradient where gradients are on: copy it before keeping or changing it.
    With `stop`, a forward pass is cut off by raising `Stop` once every tap has been passed.
    """

    def __init__(self, taps: Sequence[Tap], each: Callable[[str, Tensor], Any], *, stop: bool = False) -> None:
        self.taps = tuple(taps)
        self.each = each
        self.stop = stop
        self._hooks = ExitStack()
        self._counts: dict[nn.Module, int] = defaultdict(int)
        self._shape: dict[nn.Module, tuple[int, int]] = {}
        self._left: set[str] = set()

    def __repr__(self) -> str:
        return f"Recorder({', '.join(tap.site for tap in self.taps)})"

    def __enter__(self) -> "Recorder":
        self._left = {tap.site for tap in self.taps}
        by_module: dict[nn.Module, list[Tap]] = defaultdict(list)
        for tap in self.taps:
            by_module[tap.module].append(tap)
        with self._hooks:  # are removed where one of them cannot be set
            # Clocks come first: on a module that is both a clock and a tap, the count must be reset before it is read.
            self._wind_clocks()
            for module, taps in by_module.items():
                self._hook(module, taps)
            self._hooks = self._hooks.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._hooks.close()
        self._counts.clear()
        self._shape.clear()

    def _wind_clocks(self) -> None:
        """Count the calls of shared modules and note the batch's shape afresh in every pass of the stack."""
        counted: dict[nn.Module, list[nn.Module]] = defaultdict(list)
        for tap in self.taps:
            if tap.calls > 1:
                counted[tap.clock].append(tap.module)
        for clock, modules in counted.items():

            def reset(_: nn.Module, __: tuple[Any, ...], modules: list[nn.Module] = modules) -> None:
                for module in modules:
                    self._counts[module] = 0

            self._hooks.callback(clock.register_forward_pre_hook(reset).remove)
        for block in {tap.shape_from for tap in self.taps if tap.shape_from is not None}:

            def measure(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                tensor = input_tensor(args, kwargs)
                if tensor is not None and tensor.ndim == 3:
                    self._shape[module] = (tensor.shape[0], tensor.shape[1])

            self._hooks.callback(block.register_forward_pre_hook(measure, with_kwargs=True).remove)

    def _hook(self, module: nn.Module, taps: list[Tap]) -> None:
        inputs = {tap.call: tap for tap in taps if tap.where == "input"}
        outputs = {tap.call: tap for tap in taps if tap.where == "output"}
        counted = taps[0].calls > 1
        # The count of a shared module goes up when a call ends, so that its input and output hooks agree on it.
        if inputs:

            def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                if tap := inputs.get(self._counts[module]):
                    self._read(tap, input_tensor(args, kwargs))

            self._hooks.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
        if outputs or counted:

            def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
                number = self._counts[module]
                if counted:
                    self._counts[module] += 1
                if tap := outputs.get(number):
                    self._read(tap, first_tensor(output))

            self._hooks.callback(module.register_forward_hook(after).remove)

    def _read(self, tap: Tap, tensor: Tensor | None) -> None:
        if tensor is None:
            return
        if tap.shape_from is not None and tensor.ndim == 2:
            tensor = tensor.reshape(*self._shape[tap.shape_from], tensor.shape[-1])
        self.each(tap.site, tensor)
        self._left.discard(tap.site)
        if self.stop and not self._left:
            raise Stop


def record(
    model: nn.Module, taps: Sequence[Tap], inputs: dict[str, Any], each: Callable[[str, Tensor], Any] | None = None, *,
    grad: bool = False,
) -> dict[str, Tensor]:  # fmt: skip
    """Run the model in evaluation mode as far as the deepest tap; the tensors by site, or none where `each` takes them."""
    tensors: dict[str, Tensor] = {}
    overwritten = {tap.site for tap in taps if tap.overwritten}

    def keep(site: str, tensor: Tensor) -> None:
        tensors[site] = tensor.clone() if site in overwritten else tensor

    with suppress(Stop), torch.set_grad_enabled(grad), evaluating(model), Recorder(taps, each or keep, stop=True):
        model(**inputs)
    return tensors


def _verified(model: nn.Module, inputs: dict[str, Any], shape: tuple[int, int], taps: list[Tap]) -> dict[str, Tap]:
    """The taps by name, in the order in which one pass reads them; RuntimeError where one is not read once, as promised. Taps
    whose tensor the model changes afterwards are marked `overwritten`."""
    live: dict[str, Tensor] = {}
    copies: dict[str, Tensor] = {}

    def keep(site: str, tensor: Tensor) -> None:
        if site in live:
            raise RuntimeError(f"The site {site} fired twice in one forward pass.")
        live[site] = tensor
        copies[site] = tensor.detach().clone()

    with torch.no_grad(), Recorder(taps, keep):
        model(**inputs)
    by_name = {tap.site: tap for tap in taps}
    for site, tap in by_name.items():
        if site not in live:
            raise RuntimeError(f"The site {site} ({tap.place}) did not fire in a forward pass.")
        if tuple(live[site].shape) != (*shape, tap.width):
            raise RuntimeError(f"The site {site} has shape {tuple(live[site].shape)}, not {(*shape, tap.width)}.")
    return {
        site: replace(by_name[site], overwritten=not torch.equal(live[site].nan_to_num(), copies[site].nan_to_num()))
        for site in live
    }


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode (no dropout); afterwards each module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def find_sites(model: Any, context: int | None) -> tuple[tuple[Stack, ...], dict[str, Tap]]:
    """The towers of a model and the taps of all its sites, in the order in which the model passes them.

    One traced pass finds the sites; another checks that each is read once, with the shape it promises.

    Raises BadInput: it cannot be run on token ids alone, or shows no chain of blocks.
    """
    inputs, shape = probe_inputs(model, context, seed=0)
    with evaluating(model):
        try:
            trace = trace_calls(model, inputs, shape)
        except (TypeError, ValueError, RuntimeError, LookupError, AttributeError, AssertionError) as error:
            text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise BadInput(
                f"A trial run of {type(model).__name__} on nothing but token ids failed ({text}), so headscan cannot read it."
            ) from error
        stacks = tuple(find_stack(model, prefix, module, trace) for prefix, module in stack_modules(model).items())
        head = find_head(model, trace)
        taps = [tap for stack in stacks for tap in stack.taps.values()] + ([head] if head else [])
        inputs, shape = probe_inputs(model, context, seed=1)
        return stacks, _verified(model, inputs, shape, taps)
