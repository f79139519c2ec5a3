"""A card that is none: tensors that say they are elsewhere, are computed here, refused what CUDA
refuses, and counted.

`Card.of(x)` is a copy on the card, of device `meta`. In `with Card() as card` the card's
operations, not views or bare memory, are counted (`card.all`), and those at which the processor
waits for it (`card.waits`): a number or the size of a mask is read, or memory is copied without
`non_blocking`. With it, what comes from the card is NaN until an `Event` that was recorded later is
awaited, which is a wait where the card has nothing else to do. Tensors of both memories in one
operation are refused, as by CUDA. `card.fetched` lists the shape of each copy to the processor.
"""

import threading
from collections import Counter
from types import SimpleNamespace

import numpy as np
import torch
import torch._dynamo  # which torch imports late, and which needs torch's own `Event`
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

CARD = torch.device("meta")
SEEN_AS = CARD
"""The device that its tensors name; tests/emulated_gpu.py lets them name CUDA."""
READS = (
    "_local_scalar_dense",
    "nonzero",
    "equal",
    "is_nonzero",
    "masked_select",
    "unique_dim",
    "_unique2",
    "bincount",
)


class OnCard(Tensor):
    """A tensor of the card; `held` is what it holds."""

    held: Tensor
    is_meta = False  # it has numbers

    @property
    def device(self) -> torch.device:
        return SEEN_AS

    @property
    def is_cuda(self) -> bool:
        return SEEN_AS.type == "cuda"

    def tolist(self):
        return self.cpu().tolist()

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            copied = OnCard(self.held.detach().clone())
            if isinstance(self, torch.nn.Parameter):
                copied = torch.nn.Parameter(copied, self.requires_grad)
            memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return self.cpu().__reduce_ex__(protocol)

    def data_ptr(self):
        return self.held.data_ptr()

    @staticmethod
    def __new__(cls, tensor: Tensor) -> "OnCard":
        wrapper = Tensor._make_wrapper_subclass(
            cls,
            tensor.shape,
            strides=tensor.stride(),
            storage_offset=tensor.storage_offset(),
            dtype=tensor.dtype,
            device=CARD,
        )
        wrapper.held = tensor
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {}, None)


class Card(TorchDispatchMode):
    """Counts what runs on the card."""

    def __init__(self):
        super().__init__()
        self.all = 0
        self.waits = 0
        self.names = Counter()
        self.fetched = []
        self.coming = []

    def counts(self) -> np.ndarray:
        return np.array([self.all, self.waits])

    @staticmethod
    def of(x: Tensor) -> Tensor:
        return OnCard(x.detach().clone())

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {}, self)


def on_card(model):
    """The model with its weights on the card."""
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            module._parameters[name] = torch.nn.Parameter(Card.of(weight.data))
        for name, buffer in module.named_buffers(recurse=False):
            module._buffers[name] = Card.of(buffer)
    model.tie_weights()
    return model


class Event(SimpleNamespace):
    def record(self) -> None:
        self.at = self.card.all
        self.coming = self.card.coming
        self.card.coming = []

    def synchronize(self) -> None:
        self.card.waits += self.card.all == self.at
        for target, copied in self.coming:
            target.copy_(copied)


DECOMPOSING = threading.Lock()
DECOMPOSITIONS = ("linalg_", "_linalg_", "cholesky", "geqrf", "triangular_solve", "ormqr")
ONLY_FLOATS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot")


def _refuse(name, args, kwargs, tensors) -> None:
    """Raise what CUDA raises for operands that it does not take together."""
    others = [x for x in tensors if not isinstance(x, OnCard)]
    if name in ("_to_copy", "copy_"):
        return
    if name in ("index", "index_put_", "_index_put_impl_"):
        # A tensor of the card takes places of the processor, and a number to write.
        values = [x for x in args[2:3] if isinstance(x, Tensor) and x.dim()]
        mixed = any(isinstance(x, OnCard) != isinstance(args[0], OnCard) for x in values)
        mixed = mixed or not isinstance(args[0], OnCard)
    else:
        is_elementwise = not name.startswith(WHOLE)
        mixed = any(x.dim() or not is_elementwise for x in others)
        is_in_place = name.endswith("_") and not name.endswith("__")
        mixed = mixed or (is_in_place and any(args[0] is x for x in others))
    if mixed:
        raise RuntimeError(f"{name}: tensors of the card and of the processor")
    if name == "linalg_lstsq":
        raise RuntimeError("linalg_lstsq: the card's driver takes matrices of full rank alone")
    if name in ONLY_FLOATS and not tensors[-1].dtype.is_floating_point:
        raise RuntimeError(f'"{name}_cuda" not implemented for {tensors[-1].dtype}')


WHOLE = ("mm", "addmm", "bmm", "baddbmm", "mv", "dot", "cat", "gather", "scatter", "embedding")
WHOLE += ("index_select", "index_add", "index_copy", "searchsorted", "linalg_", "_linalg_")
"""Beginnings of the names of operations that take no number of the processor beside the card's."""


def _run(function, args, kwargs, count):
    name = function.overloadpacket.__name__
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    device = kwargs.get("device")
    on_device = any(isinstance(x, OnCard) for x in tensors)
    to_device = on_device if device is None else torch.device(device).type == CARD.type
    copies = name in ("_to_copy", "copy_")
    index = name in ("index", "index_put_", "_index_put_impl_")
    if on_device:
        _refuse(name, args, kwargs, tensors)
    if name == "copy_":
        to_device = isinstance(args[0], OnCard)
        source = isinstance(args[1], OnCard)
        crossing = to_device != source
        kwargs = {"non_blocking": any(args[2:])} | kwargs
        if source and not to_device and kwargs["non_blocking"]:
            count.coming.append((args[0], args[1].held.clone()))
            args = (args[0], torch.full_like(args[1].held, torch.nan))
    else:
        crossing = copies and on_device != to_device
    # A mask's size is read; places that are not on the card are copied to it.
    masked = index and any(
        at is not None and (at.dtype == torch.bool or not isinstance(at, OnCard)) for at in args[1]
    )
    if count is not None and (on_device or to_device):
        waits = on_device and (name in READS or masked)
        if crossing:
            waits = not ((to_device or name == "copy_") and kwargs.get("non_blocking"))
            if not to_device:
                count.fetched.append(tuple(tensors[-1].shape))
        counted = not function.is_view and name not in ("empty", "new_empty")
        count.all += counted
        count.waits += waits
        count.names[f"{name} (waits)" if waits else name] += counted
    if "device" in kwargs and kwargs["device"] is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    kwargs = {**kwargs, "pin_memory": False} if kwargs.get("pin_memory") else kwargs
    args, kwargs = tree_map(lambda x: x.held if isinstance(x, OnCard) else x, (args, kwargs))
    if (on_device or to_device) and name.startswith(DECOMPOSITIONS):
        if not DECOMPOSING.acquire(blocking=False):
            raise RuntimeError("lazy wrapper should be called at most once")
        try:
            output = function(*args, **kwargs)
        finally:
            DECOMPOSING.release()
    else:
        output = function(*args, **kwargs)
    return tree_map(
        lambda x: (
            OnCard(x) if to_device and isinstance(x, Tensor) and not isinstance(x, OnCard) else x
        ),
        output,
    )
