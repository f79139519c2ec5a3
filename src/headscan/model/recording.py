"""Hooks: reading and writing the states of a model while it runs, and leaving nothing behind.

Everything here is a context manager. This is the only file that registers hooks or replaces a
module's `forward`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from headscan.model.sites import Tap, first_tensor, input_tensor
from headscan.run import BadInput
from headscan.run.exhaustion import FittingSize, exhausted, give_back
from headscan.run.locks import in_this_thread, model_lock

Args = tuple[Any, ...]
"""The positional arguments of a module's call."""
Kwargs = dict[str, Any]
"""The keyword arguments of a module's call."""
BeforeCall = Callable[[nn.Module, Args, Kwargs], Any]
"""Called with (module, args, kwargs) before a module runs; returns None, or new (args, kwargs)."""
AfterCall = Callable[[nn.Module, Args, Kwargs, Any], Any]
"""Called with (module, args, kwargs, output) after a module ran; returns None, or a new output."""


@contextmanager
def before_call(
    modules: nn.Module | Iterable[nn.Module], function: BeforeCall, *, first: bool = False
) -> Iterator[None]:
    """Call `function(module, args, kwargs)` before each of the modules runs, in this context only.

    A module that is given several times is hooked once.

    Args:
        function: returns None, or a tuple of new arguments and keyword arguments.
        first: whether `function` is called before the hooks that are on the module already.
    """
    handles = []
    try:
        for module in _distinct(modules):
            handle = module.register_forward_pre_hook(function, with_kwargs=True, prepend=first)
            handles.append(handle)
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def after_call(
    modules: nn.Module | Iterable[nn.Module], function: AfterCall, *, first: bool = False
) -> Iterator[None]:
    """Call `function(module, args, kwargs, output)` after each of the modules ran, in this context.

    A module that is given several times is hooked once.

    Args:
        function: returns None, or a new output.
        first: whether `function` is called before the hooks that are on the module already, so that
            those see the new output.
    """
    handles = []
    try:
        for module in _distinct(modules):
            handle = module.register_forward_hook(function, with_kwargs=True, prepend=first)
            handles.append(handle)
        yield
    finally:
        for handle in handles:
            handle.remove()


def _distinct(modules: nn.Module | Iterable[nn.Module]) -> list[nn.Module]:
    if isinstance(modules, nn.Module):
        return [modules]
    return list(dict.fromkeys(modules))


@contextmanager
def replaced_forward(module: nn.Module, function: Callable[..., Any]) -> Iterator[None]:
    """Compute `function(*args, **kwargs)` instead of a module's own forward pass, in this context.

    Hooks on the module run as always. Prefer `patched` where the module's own computation may run.

    >>> layer = nn.Linear(2, 2)
    >>> with replaced_forward(layer, lambda states: 2 * states):
    ...     layer(torch.ones(2)).tolist()
    [2.0, 2.0]
    """
    attributes = vars(module)
    missing = object()
    previous = attributes.get("forward", missing)  # accelerate sets a forward of its own
    attributes["forward"] = function
    try:
        yield
    finally:
        if previous is missing:
            del attributes["forward"]
        else:
            attributes["forward"] = previous


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run the model in evaluation mode (no dropout); restore the mode of each module afterwards."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def restored(model: nn.Module) -> Iterator[list[str]]:
    """Give all modules and the configuration their attributes and parts back after this context.

    Some models switch themselves while they run: BigBird turns to full attention for good when an
    input is short. The list names, after the context, the modules that did so: those that replaced
    a part of themselves or changed a setting that is a word.

    RWKV halves weights in place in its first pass in evaluation mode, and has an attribute that
    says so. Where weights were changed in place, which is not undone, nothing is put back: an
    attribute that says what was done to the weights must stay with them.
    """
    weights = list(model.parameters())
    versions = [_version(weight) for weight in weights]
    modules = list(model.modules())
    before = [_State(owner) for owner in (*modules, getattr(model, "config", model))]
    switched: list[str] = []
    try:
        yield switched
    finally:
        if versions == [_version(weight) for weight in weights]:
            for state in before:
                if state.is_switched():
                    switched.append(type(state.owner).__name__)
                state.restore()


def _version(weight: Tensor) -> int:
    """Return how often a tensor was changed in place; 0 in inference mode, which does not count."""
    return 0 if weight.is_inference() else weight._version


class _State:
    """The attributes of a module or a configuration, with its parts and buffers."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._attributes = dict(vars(owner))
        self._parts = dict(getattr(owner, "_modules", {}))
        self._buffers = dict(getattr(owner, "_buffers", {}))

    def is_switched(self) -> bool:
        """Return whether the owner has other parts than before, or a setting is another word."""
        if getattr(self.owner, "_modules", {}) != self._parts:
            return True
        return any(
            isinstance(value, str) and vars(self.owner).get(name) != value
            for name, value in self._attributes.items()
        )

    def restore(self) -> None:
        """Give the owner back what it had."""
        vars(self.owner).clear()
        vars(self.owner).update(self._attributes)
        if isinstance(self.owner, nn.Module):
            for current, previous in (
                (self.owner._modules, self._parts),
                (self.owner._buffers, self._buffers),
            ):
                current.clear()
                current.update(previous)


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


class PassProgress:
    """Follows forward passes: which call of a shared module runs, and the shape of the batch.

    Taps need it whose module runs several times in a pass, computes on [B*T, d], or gets inputs
    that the model has padded.
    """

    def __init__(self, taps: Iterable[Tap], *, own_thread: bool = False) -> None:
        self._taps = tuple(taps)
        self._own_thread = own_thread
        self._finished_calls: dict[nn.Module, int] = defaultdict(int)
        self._batch_shape: dict[nn.Module, tuple[int, int]] = {}
        self._length: dict[nn.Module, int] = {}

    def is_at(self, tap: Tap) -> bool:
        """Return whether the call of the tap's module that runs now is the tap's."""
        return tap.calls == 1 or self._finished_calls[tap.module] == tap.call

    def as_batch(self, tap: Tap, states: Tensor) -> Tensor:
        """Return the states at a tap as [B, T, d] of the model's own input.

        The module may compute on [B*T, d], or on an input that the model has padded.
        """
        if tap.shape_from is not None and states.ndim == 2:
            states = states.reshape(*self._batch_shape[tap.shape_from], states.shape[-1])
        return states[:, : self._length[tap.clock]] if tap.padded else states

    def with_batch(self, tap: Tap, states: Tensor, batch: Tensor) -> Tensor:
        """Return the states at a tap with those of the model's own input replaced."""
        if tap.padded:
            width = states.shape[-1]
            shape = (len(batch), states.numel() // (len(batch) * width), width)
            batch = torch.cat([batch, states.reshape(shape)[:, batch.shape[1] :]], dim=1)
        return batch.reshape(states.shape)

    @contextmanager
    def counting_from_start(self) -> Iterator[None]:
        """Count calls from the start of each pass of a stack, and note the shape of its batch.

        It must be entered before the hooks that ask `is_at`: where the stack's module is read
        itself, the count must be reset first.
        """
        shared_modules: dict[nn.Module, list[nn.Module]] = defaultdict(list)
        for tap in self._taps:
            if tap.calls > 1:
                shared_modules[tap.clock].append(tap.module)
        blocks = [tap.shape_from for tap in self._taps if tap.shape_from is not None]
        padding_stacks = [tap.clock for tap in self._taps if tap.padded]

        def reset(module: nn.Module, _args: Args, _kwargs: Kwargs) -> None:
            for shared_module in shared_modules[module]:
                self._finished_calls[shared_module] = 0

        def measure(module: nn.Module, args: Args, kwargs: Kwargs) -> None:
            states = input_tensor(args, kwargs)
            if states is not None and states.ndim == 3:
                self._batch_shape[module] = (states.shape[0], states.shape[1])

        def note_length(module: nn.Module, args: Args, kwargs: Kwargs) -> None:
            inputs = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            self._length[module] = inputs[0].shape[1]

        with (
            before_call(shared_modules, self._limited(reset)),
            before_call(blocks, self._limited(measure)),
            before_call(padding_stacks, self._limited(note_length)),
        ):
            yield

    @contextmanager
    def counting_calls(self) -> Iterator[None]:
        """Count each call of a shared module when it ends.

        It must be entered after the hooks that ask `is_at`, so that those on a call's input and
        those on its output see the same count.
        """
        shared_modules = [tap.module for tap in self._taps if tap.calls > 1]

        def count(module: nn.Module, _args: Args, _kwargs: Kwargs, _output: Any) -> None:
            self._finished_calls[module] += 1

        with after_call(shared_modules, self._limited(count)):
            yield

    def _limited(self, function: Callable[..., None]) -> Callable[..., None]:
        return in_this_thread(function) if self._own_thread else function


@contextmanager
def patched(tap: Tap, function: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the states at a tap by `function(states)` in every forward pass of this context.

    The function gets a tensor [B, T, d] and returns one of the same shape and dtype, which the
    model goes on with. Recorders that are entered before or after see the replaced states. Of two
    patches at one site, the one that was entered last gets the model's own states.

    Raises:
        BadInput: for the head, whose logits are the model's result and go on nowhere.
    """
    if tap.site == "head":
        raise BadInput(f"The states at {tap.site} cannot be replaced while the model runs.")
    progress = PassProgress([tap])

    def changed(states: Tensor | None) -> Tensor:
        if states is None:
            raise TypeError(f"The module at {tap.site} has no states to replace.")
        batch = progress.as_batch(tap, states)
        new_batch = function(batch)
        if new_batch.shape != batch.shape:
            shapes = f"{list(new_batch.shape)}, not {list(batch.shape)}"
            raise ValueError(
                f"The states that replace those at {tap.site} have the shape {shapes}."
            )
        return new_batch if batch is states else progress.with_batch(tap, states, new_batch)

    def change_output(_module: nn.Module, _args: Args, _kwargs: Kwargs, output: Any) -> Any:
        if not progress.is_at(tap):
            return None
        return with_first_tensor(output, changed(first_tensor(output)))

    def change_input(_module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs] | None:
        if not progress.is_at(tap):
            return None
        states = input_tensor(args, kwargs)
        return _replaced(args, kwargs, states, changed(states))

    if tap.where == "output":
        changing = after_call(tap.module, change_output, first=True)
    else:
        changing = before_call(tap.module, change_input, first=True)
    with progress.counting_from_start(), changing, progress.counting_calls():
        yield


def _replaced(args: Args, kwargs: Kwargs, old: Tensor | None, new: Tensor) -> tuple[Args, Kwargs]:
    """Return a module's arguments with one tensor replaced wherever it is among them."""
    new_args = tuple(new if value is old else value for value in args)
    new_kwargs = {name: new if value is old else value for name, value in kwargs.items()}
    return new_args, new_kwargs


class Stop(BaseException):
    """Raised in a hook when the deepest site has been read, to leave the forward pass.

    It is no `Exception`, so that no `except Exception` inside a model swallows it.
    """


class Recorder:
    """A context in which `each(site, tensor)` is called whenever the model passes one of the taps.

    The tensor is the live one, with its gradient where gradients are on: copy it before storing or
    changing it.

    Args:
        stop: whether a forward pass is cut off by raising `Stop` once every tap has been passed.
        own_thread: whether forward passes in other threads than this one are left alone.
    """

    def __init__(
        self,
        taps: Sequence[Tap],
        each: Callable[[str, Tensor], Any],
        *,
        stop: bool = False,
        own_thread: bool = False,
    ) -> None:
        self.taps = tuple(taps)
        self.each = each
        self.stop = stop
        self.own_thread = own_thread
        self._hooks = ExitStack()
        self._progress = PassProgress(self.taps)
        self._unread: set[str] = set()

    def __repr__(self) -> str:
        return f"Recorder({', '.join(tap.site for tap in self.taps)})"

    def __enter__(self) -> "Recorder":
        self._unread = {tap.site for tap in self.taps}
        self._progress = PassProgress(self.taps, own_thread=self.own_thread)
        with ExitStack() as hooks:  # removes those that are set if one cannot be set
            hooks.enter_context(self._progress.counting_from_start())
            for tap in self.taps:
                hooks.enter_context(self._reading(tap))
            hooks.enter_context(self._progress.counting_calls())
            self._hooks = hooks.pop_all()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._hooks.close()

    def _reading(self, tap: Tap) -> AbstractContextManager[None]:
        """Return a context in which the states at a tap are read.

        The hooks are plain functions: a copy of a module (`deepcopy`) then holds no copy of the
        recorder and of its taps' modules.
        """

        def read_input(_module: nn.Module, args: Args, kwargs: Kwargs) -> None:
            if self._progress.is_at(tap):
                self._read(tap, input_tensor(args, kwargs))

        def read_output(_module: nn.Module, _args: Args, _kwargs: Kwargs, output: Any) -> None:
            if self._progress.is_at(tap):
                self._read(tap, first_tensor(output))

        if tap.where == "input":
            return before_call(tap.module, self._limited(read_input))
        return after_call(tap.module, self._limited(read_output))

    def _limited(self, function: Callable[..., None]) -> Callable[..., None]:
        return in_this_thread(function) if self.own_thread else function

    def _read(self, tap: Tap, states: Tensor | None) -> None:
        if states is None:
            return
        self.each(tap.site, self._progress.as_batch(tap, states))
        self._unread.discard(tap.site)
        if self.stop and not self._unread:
            raise Stop


def record(
    model: nn.Module,
    taps: Sequence[Tap],
    inputs: dict[str, Any],
    each: Callable[[str, Tensor], Any] | None = None,
    *,
    grad: bool = False,
    restore: bool = False,
) -> dict[str, Tensor]:
    """Run the model in evaluation mode as far as the deepest tap, and return the states by site.

    With `each`, `each(site, states)` is called instead, and the result is empty. States of a model
    on several devices are copied to the device of the inputs. One thread runs the model at a time.
    `restore`: give a model that switches itself its own settings back afterwards.
    """
    states_by_site: dict[str, Tensor] = {}
    overwritten = {tap.site for tap in taps if tap.overwritten}

    device = _device_of(inputs)

    def store(site: str, states: Tensor) -> None:
        states_by_site[site] = states.clone() if site in overwritten else states

    def deliver(site: str, states: Tensor) -> None:
        (each or store)(site, states.to(device))

    with (
        model_lock(model),
        suppress(Stop),
        torch.set_grad_enabled(grad),
        evaluating(model),
        restored(model) if restore else nullcontext(),
        Recorder(taps, deliver, stop=True, own_thread=True),
    ):
        model(**inputs)
    return states_by_site


def record_within_memory(
    model: nn.Module,
    taps: Sequence[Tap],
    inputs: dict[str, Any],
    each: Callable[[str, Tensor], Any] | None = None,
    *,
    limit: FittingSize,
    restore: bool = False,
) -> dict[str, Tensor]:
    """Return what `record` returns; where memory runs out, rows are run in smaller pieces.

    `each` gets the states of all rows together, and each site once: sites that were passed before
    memory ran out are not passed again. The states of pieces wait on the host for the last piece.
    """
    rows = _rows_of(inputs)
    passed: set[str] = set()
    within_each = False

    def deliver(site: str, states: Tensor) -> None:
        nonlocal within_each
        assert each is not None
        within_each = True
        each(site, states)
        within_each = False
        passed.add(site)

    tried = None
    if limit.fits(rows):
        try:
            return record(model, taps, inputs, None if each is None else deliver, restore=restore)
        except (MemoryError, RuntimeError) as error:
            if rows <= 1 or within_each or not exhausted(error):
                raise
        tried = rows
        give_back()

    unread = [tap for tap in taps if tap.site not in passed]
    pieces: dict[str, list[Tensor]] = defaultdict(list)

    def run_piece(begin: int, end: int) -> None:
        states = record(model, unread, _piece(inputs, rows, begin, end), restore=restore)
        if each is not None:
            states = {site: tensor.cpu() for site, tensor in states.items()}
        for site, tensor in states.items():
            pieces[site].append(tensor)

    limit.run(rows, run_piece, tried=tried)
    device = _device_of(inputs)
    whole: dict[str, Tensor] = {}
    for site in list(pieces):
        states = torch.cat(pieces.pop(site))
        if each is None:
            whole[site] = states
        else:
            each(site, states.to(device))
    return whole


def _rows_of(inputs: Mapping[str, Any]) -> int:
    """Return the number of rows of a forward pass."""
    for name in ("input_ids", "inputs_embeds"):
        tensor = inputs.get(name)
        if isinstance(tensor, Tensor):
            return len(tensor)
    return 1


def _device_of(inputs: Mapping[str, Any]) -> torch.device:
    """Return the device of a forward pass's inputs, on which a model of several has its own."""
    return next(value.device for value in inputs.values() if isinstance(value, Tensor))


def _piece(inputs: Mapping[str, Any], rows: int, begin: int, end: int) -> dict[str, Any]:
    """Return the inputs of some rows."""
    piece = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, Tensor) and value.ndim > 0 and len(value) == rows:
            piece[name] = value[begin:end]
    return piece
