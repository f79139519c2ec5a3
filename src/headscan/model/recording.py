"""The sites of a model, found by what one tiny forward pass does, and the hooks that read them and
leave nothing behind.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headscan.model.branches import Branch, find_branches
from headscan.model.inputs import probe_inputs
from headscan.model.sites import Call, Tap, Trace, first_tensor, input_tensor, trace_calls
from headscan.run import BadInput

DEPTHS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
DEPTHS_OF = {
    "encoder.": ("encoder_layers",),
    "decoder.": ("decoder_layers", "num_decoder_layers"),
    "": (),
}


@dataclass(eq=False, repr=False)
class Stack:
    """One tower of blocks: the whole of a GPT or a BERT, half of a T5."""

    prefix: str  # "" or, in encoder-decoders, "encoder." and "decoder."
    module: nn.Module  # the module whose forward pass runs the blocks
    # in the order in which they run (the same one several times where weights are shared)
    blocks: tuple[nn.Module, ...]
    taps: dict[str, Tap]  # by site, in the order of depth
    # for each block, whether its output is its input plus its branches, nothing else
    plain: tuple[bool, ...]
    notes: list[str]  # what a reader of its numbers must know
    # For each block, what becomes of its input, in order: the site of a branch that is added, or
    # the norm that acts on the sum. None where that is not known.
    steps: tuple[tuple[str | nn.Module, ...] | None, ...]

    @property
    def depth(self) -> int:
        return len(self.blocks)

    def __repr__(self) -> str:
        return (
            f"Stack({self.prefix!r}: {self.depth} blocks of {type(self.blocks[0]).__name__}, "
            f"{len(self.taps)} sites)"
        )


def stack_modules(model: Any) -> dict[str, nn.Module]:
    """The modules that hold the towers: {"": the tower}, or {"encoder.": ..., "decoder.": ...}."""
    encoder = model.get_encoder() if hasattr(model, "get_encoder") else model
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    if getattr(model.config, "is_encoder_decoder", False) and encoder is not decoder:
        return {"encoder.": encoder, "decoder.": decoder}
    # In masked LMs `decoder` may be the layer that makes logits (ModernBERT), which is no tower.
    for module in (decoder, getattr(model, "base_model", model)):
        if any(isinstance(part, nn.ModuleList) for part in module.modules()):
            return {"": module}
    return {"": model}


def find_stack(model: nn.Module, prefix: str, module: nn.Module, trace: Trace) -> Stack:
    """One tower with its sites, read from the trace; BadInput where no chain of blocks is to be
    seen.
    """
    if not (runs := _block_calls(module, prefix, trace)):
        raise BadInput(
            f"{type(model).__name__} has no list of blocks that run one after another, each on "
            "the output of the one before, so headscan cannot name its sites."
        )
    taps: dict[str, Tap] = {}
    plain: list[bool] = []
    steps: list[tuple[str | nn.Module, ...] | None] = []
    notes: list[str] = []
    norm = _final_norm(module, runs, trace)

    def put(
        name: str,
        call: Call,
        where: Literal["input", "output"],
        values: Tensor,
        block: nn.Module | None = None,
    ) -> None:
        same = [other for other in trace.calls if other.module is call.module]
        taps[prefix + name] = Tap(
            site=prefix + name,
            module=call.module,
            path=call.path,
            where=where,
            width=values.shape[-1],
            clock=module,
            call=same.index(call),
            calls=len(same),
            shape_from=block if call.flat and where == "output" else None,
        )

    put("embedding", runs[0], "input", runs[0].inputs[0])
    for index, run in enumerate(runs):
        branches, is_plain, made = find_branches(run, trace.calls)
        plain.append(is_plain)
        used: Counter[str] = Counter()
        names: dict[Call, str] = {}
        for branch in branches:
            used[branch.kind] += 1
            name = branch.kind if used[branch.kind] == 1 else f"{branch.kind}_{used[branch.kind]}"
            assert branch.call.output is not None
            put(f"block.{index}.{name}", branch.call, "output", branch.call.output, run.module)
            names[branch.call] = f"{prefix}block.{index}.{name}"
        steps.append(
            None
            if made is None
            else tuple(
                names[step.call] if isinstance(step, Branch) else step.module for step in made
            )
        )
        after = runs[index + 1] if index + 1 < len(runs) else norm
        assert run.output is not None
        if after is None or torch.equal(after.inputs[0].to(run.output.device), run.output):
            put(f"block.{index}", run, "output", run.output)
        else:
            # RWKV halves the stream between some blocks; its own hidden states are those that the
            # next block gets.
            put(f"block.{index}", after, "input", after.inputs[0])
            factor = _factor(run.output, after.inputs[0])
            notes.append(
                f"The stream is {f'multiplied by {factor:g}' if factor else 'changed'} after "
                f"{prefix}block.{index}; the site is what the next part of the model gets, which "
                "is also the model's own hidden state."
            )
    if norm is not None and norm.output is not None:
        put("final_norm", norm, "output", norm.output)
    if (own := len({id(run.module) for run in runs})) < len(runs):
        notes.append(
            f"{len(runs)} blocks share the weights of {own}: a site of one block is a pass "
            "through the same module."
        )
    return Stack(
        prefix, module, tuple(run.module for run in runs), taps, tuple(plain), notes, tuple(steps)
    )


def find_head(model: nn.Module, trace: Trace) -> Tap | None:
    keys = " ".join(trace.result.keys()) if hasattr(trace.result, "keys") else ""
    logits = first_tensor(trace.result) if "logits" in keys else None
    if logits is None or logits.ndim != 3 or tuple(logits.shape[:2]) != trace.shape:
        return None
    return Tap("head", model, "", "output", logits.shape[-1], clock=model)


def _block_calls(stack: nn.Module, prefix: str, trace: Trace) -> list[Call]:
    """The calls of the blocks, in order: of all module lists that form a chain, the one of the
    config's depth.
    """
    config = getattr(stack, "config", None)
    depths = {
        value
        for name in DEPTHS_OF[prefix] + DEPTHS
        if isinstance(value := getattr(config, name, None), int)
    }
    chains: list[list[Call]] = []
    for part in stack.modules():
        if isinstance(part, nn.ModuleList):
            members = {id(member) for member in part}
            runs = [call for call in trace.calls if id(call.module) in members]
            chains += [runs] if _is_chain(runs) else []
    # The depth that the config names first, then the longest, then the outermost.
    return max(chains, key=lambda runs: (len(runs) in depths, len(runs)), default=[])


def _is_chain(runs: list[Call]) -> bool:
    if not runs or any(not run.inputs or run.output is None for run in runs):
        return False
    if any(run.output.shape != run.inputs[0].shape for run in runs if run.output is not None):
        return False
    return all(
        first.end < second.begin and _factor(first.output, second.inputs[0])
        for first, second in itertools.pairwise(runs)
    )


def _final_norm(stack: nn.Module, runs: list[Call], trace: Trace) -> Call | None:
    """The first norm after the last block that is given that block's output, inside the stack."""
    inside = {id(module) for module in stack.modules()}
    for call in trace.calls:
        if (
            call.begin < runs[-1].end
            or id(call.module) not in inside
            or not call.inputs
            or call.output is None
        ):
            continue
        is_norm = "norm" in call.name or call.path.rpartition(".")[2].startswith("ln")
        if (
            is_norm
            and call.output.shape == call.inputs[0].shape
            and _factor(runs[-1].output, call.inputs[0])
        ):
            return call
    return None


def _factor(before: Tensor | None, after: Tensor) -> float | None:
    """c if after = c * before, else None."""
    if before is None or before.shape != after.shape:
        return None
    a = before.to("cpu", torch.float64)
    b = after.to("cpu", torch.float64)
    energy = float((a * a).sum())
    if energy == 0 or not bool(torch.isfinite(a).all()):
        return None
    factor = float((a * b).sum()) / energy
    loose = 4 * max(torch.finfo(before.dtype).eps, torch.finfo(after.dtype).eps)
    return (
        factor
        if factor and bool((b - factor * a).abs().max() <= loose * abs(factor) * a.abs().max())
        else None
    )


# ---- Hooks that read sites while the model runs, and that leave nothing behind.


BeforeCall = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]
"""Called with (module, args, kwargs) before a module runs; returns None, or other (args, kwargs)."""
AfterCall = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], Any]
"""Called with (module, args, kwargs, output) after a module ran; returns None, or other output."""


@contextmanager
def before_call(
    modules: nn.Module | Iterable[nn.Module], function: BeforeCall, *, first: bool = False
) -> Iterator[None]:
    """Call `function(module, args, kwargs)` before each of the modules runs, in this context only.

    `first`: before every hook that is there already.
    """
    with ExitStack() as hooks:
        for module in [modules] if isinstance(modules, nn.Module) else modules:
            handle = module.register_forward_pre_hook(function, with_kwargs=True, prepend=first)
            hooks.callback(handle.remove)
        yield


@contextmanager
def after_call(
    modules: nn.Module | Iterable[nn.Module], function: AfterCall, *, first: bool = False
) -> Iterator[None]:
    """Call `function(module, args, kwargs, output)` after each of the modules ran, in this context
    only.

    `first`: before every hook that is there already, so that those see what `function` returns.
    """
    with ExitStack() as hooks:
        for module in [modules] if isinstance(modules, nn.Module) else modules:
            handle = module.register_forward_hook(function, with_kwargs=True, prepend=first)
            hooks.callback(handle.remove)
        yield


def with_first_tensor(output: Any, tensor: Tensor) -> Any:
    """Return a module's output with its first tensor replaced.

    >>> with_first_tensor((torch.zeros(1), "cache"), torch.ones(1))
    (tensor([1.]), 'cache')
    """
    if isinstance(output, Tensor):
        return tensor
    if isinstance(output, tuple):
        return (tensor, *output[1:])
    if isinstance(output, list):
        return [tensor, *output[1:]]
    raise TypeError(
        f"A module returned {type(output).__name__}, in which no tensor can be replaced."
    )


@contextmanager
def patched(tap: Tap, function: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the states at a tap by `function(states)` in every forward pass of this context.

    The function gets and returns a tensor of the shape that the module computes, mostly
    [windows, T, d]. Recorders that are entered before or after see the replaced states.

    Raises:
        BadInput: for a site of a module that runs several times in a pass, or in another shape.
    """
    if tap.calls > 1 or tap.shape_from is not None or tap.site == "head":
        raise BadInput(f"The states at {tap.site} cannot be replaced while the model runs.")

    def change_output(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        states = first_tensor(output)
        assert states is not None
        return with_first_tensor(output, function(states))

    def change_input(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        states = input_tensor(args, kwargs)
        assert states is not None
        changed = function(states)
        new_args = tuple(changed if value is states else value for value in args)
        new_kwargs = {name: changed if value is states else value for name, value in kwargs.items()}
        return new_args, new_kwargs

    if tap.where == "output":
        with after_call(tap.module, change_output, first=True):
            yield
    else:
        with before_call(tap.module, change_input, first=True):
            yield


class Stop(BaseException):
    """Raised in a hook when the deepest site has been read; no `except Exception` inside a model
    may swallow it.
    """


class Recorder:
    """A context in which `each(site, tensor)` is called whenever the model passes one of the taps.

    The tensor is the live one, with its gradient where gradients are on: copy it before keeping or
    changing it. With `stop`, a forward pass is cut off by raising `Stop` once every tap has been
    passed.
    """

    def __init__(
        self, taps: Sequence[Tap], each: Callable[[str, Tensor], Any], *, stop: bool = False
    ) -> None:
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
            # Clocks come first: on a module that is both a clock and a tap, the count must be reset
            # before it is read.
            self._wind_clocks()
            for module, taps in by_module.items():
                self._hook(module, taps)
            self._hooks = self._hooks.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.close()
        self._counts.clear()
        self._shape.clear()

    def _wind_clocks(self) -> None:
        """Count the calls of shared modules and note the batch's shape afresh in every pass of the
        stack.
        """
        counted: dict[nn.Module, list[nn.Module]] = defaultdict(list)
        for tap in self.taps:
            if tap.calls > 1:
                counted[tap.clock].append(tap.module)
        for clock, modules in counted.items():

            def reset(
                _: nn.Module, __: tuple[Any, ...], modules: list[nn.Module] = modules
            ) -> None:
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
        # The count of a shared module goes up when a call ends, so that its input and output hooks
        # agree on it.
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
    model: nn.Module,
    taps: Sequence[Tap],
    inputs: dict[str, Any],
    each: Callable[[str, Tensor], Any] | None = None,
    *,
    grad: bool = False,
) -> dict[str, Tensor]:
    """Run the model in evaluation mode as far as the deepest tap; the tensors by site, or none
    where `each` takes them.
    """
    tensors: dict[str, Tensor] = {}
    overwritten = {tap.site for tap in taps if tap.overwritten}

    def keep(site: str, tensor: Tensor) -> None:
        tensors[site] = tensor.clone() if site in overwritten else tensor

    with (
        suppress(Stop),
        torch.set_grad_enabled(grad),
        evaluating(model),
        Recorder(taps, each or keep, stop=True),
    ):
        model(**inputs)
    return tensors


def _verified(
    model: nn.Module, inputs: dict[str, Any], shape: tuple[int, int], taps: list[Tap]
) -> dict[str, Tap]:
    """The taps by name, in the order in which one pass reads them; RuntimeError where one is not
    read once, as promised. Taps whose tensor the model changes afterwards are marked `overwritten`.
    """
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
            raise RuntimeError(
                f"The site {site} has shape {tuple(live[site].shape)}, not {(*shape, tap.width)}."
            )
    return {
        site: replace(
            by_name[site],
            overwritten=not torch.equal(live[site].nan_to_num(), copies[site].nan_to_num()),
        )
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
    """The towers of a model and the taps of all its sites, in the order in which the model passes
    them.

    One traced pass finds the sites; another checks that each is read once, with the shape it
    promises.

    Raises BadInput: it cannot be run on token ids alone, or shows no chain of blocks.
    """
    inputs, shape = probe_inputs(model, context, seed=0)
    with evaluating(model):
        try:
            trace = trace_calls(model, inputs, shape)
        except (
            TypeError,
            ValueError,
            RuntimeError,
            LookupError,
            AttributeError,
            AssertionError,
        ) as error:
            text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise BadInput(
                f"A trial run of {type(model).__name__} on nothing but token ids failed ({text}), "
                "so headscan cannot read it."
            ) from error
        stacks = tuple(
            find_stack(model, prefix, module, trace)
            for prefix, module in stack_modules(model).items()
        )
        head = find_head(model, trace)
        taps = [tap for stack in stacks for tap in stack.taps.values()] + ([head] if head else [])
        inputs, shape = probe_inputs(model, context, seed=1)
        return stacks, _verified(model, inputs, shape, taps)
