"""A CUDA device for whole verbs, emulated: `with emulated_gpu():` a verb of `device="cuda"` runs.

Its tensors say that they are on `cuda:0` and are computed by the CPU (tests/card.py). Refused is
what CUDA refuses: tensors of both memories in one operation, numpy on the device's memory, a
generator of the CPU for draws on the device, products of integers, and decompositions that several
threads start at once.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from tests import card
from tests.card import CARD, Card, Event, OnCard

CUDA = torch.device("cuda", 0)
FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray)
"""Functions that read numbers, and would read none for a tensor of the device `meta`."""

SET_DATA = torch.Tensor.data.__set__
INDEXING = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)


def translated(value: Any) -> Any:
    """Return the device that stands for CUDA where `value` names it."""
    if isinstance(value, torch.device):
        return CARD if value.type == "cuda" else value
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return CARD
    return value


def with_tensors(index: Any) -> Any:
    """Return an index whose lists of places are tensors of the CPU."""
    if isinstance(index, tuple):
        return tuple(map(with_tensors, index))
    if isinstance(index, list | range):
        return torch.tensor(list(index), dtype=None if len(index) else torch.int64)
    return index


class Translation(TorchFunctionMode):
    """Replaces CUDA by the device that stands for it in the arguments of torch's functions."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        args = tree_map_only((torch.device, str), translated, tuple(args))
        kwargs = tree_map_only((torch.device, str), translated, dict(kwargs or {}))
        generator = kwargs.get("generator")
        if generator is not None and not getattr(generator, "on_card", False):
            on_card = kwargs.get("device") == CARD or any(isinstance(x, OnCard) for x in args)
            if on_card:
                raise RuntimeError(f"{function}: a generator of the CPU draws on the device")
        if function is torch.Tensor.pin_memory:
            return args[0].clone()
        if function in INDEXING:
            args = (args[0], with_tensors(args[1]), *args[2:])
        if function is torch.Tensor.new_tensor and isinstance(args[0], OnCard):
            function = torch.tensor
            kwargs = {"device": CARD, "dtype": args[0].dtype} | kwargs
            args = args[1:]
        if function in FROM_DATA and isinstance(kwargs.get("device"), torch.device):
            device = kwargs.pop("device")
            return function(*args, **kwargs).to(device)
        if function == SET_DATA and isinstance(args[0], OnCard):
            args[0].held = args[1].detach().held
        return function(*args, **kwargs)


class EmulatedGenerator(torch.Generator):
    """A generator of the CPU that says which device it is of."""

    def __new__(cls, device: torch.device | str = "cpu") -> "EmulatedGenerator":
        generator = super().__new__(cls)
        generator.on_card = translated(device) == CARD
        return generator

    def __init__(self, device: torch.device | str = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:
        return CUDA if self.on_card else torch.device("cpu")


def moved(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """Move a module as `Module.to` does; tables that were one stay one, as on a real device."""
    MOVE(module, *args, **kwargs)
    if hasattr(module, "tie_weights"):
        module.tie_weights()
    return module


MOVE = torch.nn.Module.to


@contextmanager
def emulated_gpu() -> Iterator[Card]:
    """Let every verb find a CUDA device, and yield what counts its operations."""
    counts = Card()
    memory = SimpleNamespace(total_memory=2**36, name="an emulated GPU")

    def event(*_: Any, **__: Any) -> Event:
        return Event(card=counts)

    with ExitStack() as stack:
        patches = {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "get_device_properties": lambda *_: memory,
            "mem_get_info": lambda *_: (2**35, 2**36),
            "Event": event,
            "synchronize": lambda *_: None,
            "set_device": lambda *_: None,
            "current_device": lambda: 0,
            "empty_cache": lambda: None,
            "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
            "set_rng_state": lambda *_: None,
            "is_bf16_supported": lambda *_: True,
            "get_device_capability": lambda *_: (9, 0),
        }
        for name, replacement in patches.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, replacement))
            if hasattr(torch.cuda.random, name):
                stack.enter_context(mock.patch.object(torch.cuda.random, name, replacement))
        stack.enter_context(mock.patch.object(torch, "Event", event))
        # Wrapped tensors cannot be made in it.
        stack.enter_context(mock.patch.object(torch, "inference_mode", torch.no_grad))
        stack.enter_context(mock.patch.object(torch, "Generator", EmulatedGenerator))
        stack.enter_context(mock.patch.object(card, "SEEN_AS", CUDA))
        stack.enter_context(mock.patch.object(torch.nn.Module, "to", moved))
        submit = ThreadPoolExecutor.submit

        def submit_emulated(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            def work() -> Any:  # modes are those of one thread
                with Translation(), counts:
                    return function(*args, **kwargs)

            return submit(pool, work)

        stack.enter_context(mock.patch.object(ThreadPoolExecutor, "submit", submit_emulated))
        stack.enter_context(Translation())
        stack.enter_context(counts)
        yield counts
