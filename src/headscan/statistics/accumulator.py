"""Accumulators: sums that merge, are stored as a flat dictionary of tensors, and are read back bit
for bit.
"""

from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor


class Accumulator:
    """A commutative monoid over data: ``merge`` is its addition, a fresh instance its zero.

    ``type(a).restore(a.state())`` equals ``a`` bit for bit. The state consists of tensors only, so
    safetensors can store it and processes can send it. A subclass declares what it consists of:
    `arguments`, the numbers (or None) that its constructor takes and that it keeps under the same
    names; and `fields`, its other attributes: tensors, numbers, accumulators, None, or lists and
    dictionaries of these.
    """

    arguments: ClassVar[tuple[str, ...]] = ()
    fields: ClassVar[tuple[str, ...]] = ()

    def merge(self, other: Self) -> None:
        """Add all that `other` has seen to this accumulator, field by field; `other` is left as it
        was.
        """
        for name in self.fields:
            setattr(self, name, _added(getattr(self, name), getattr(other, name)))

    def state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for name in (*self.arguments, *self.fields):
            state |= _packed(name, getattr(self, name))
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        arguments: dict[str, Any] = {
            name: state[name].item() if name in state else None for name in cls.arguments
        }
        if "device" in signature(cls).parameters:
            devices = (tensor.device for tensor in state.values() if tensor.device.type != "cpu")
            arguments["device"] = next(devices, torch.device("cpu"))
        return cls(**arguments).filled(state)

    def filled(self, state: dict[str, Tensor]) -> Self:
        """This fresh accumulator with the fields of a state."""
        for name in self.fields:
            setattr(self, name, _unpacked(name, getattr(self, name), state))
        return self

    def restored(self, state: dict[str, Tensor]) -> Self:
        """An accumulator made as this one was, with that state."""
        return type(self).restore(state)


def _added(mine: Any, other: Any) -> Any:
    if isinstance(mine, Tensor):
        mine += other.to(mine.device)
    elif isinstance(mine, int | float):
        mine += other
    elif isinstance(mine, Mapping):
        for name, part in mine.items():
            _added(part, other[name])
    else:
        mine.merge(other)
    return mine


def _packed(name: str, value: Any) -> dict[str, Tensor]:
    if value is None:
        return {}
    if isinstance(value, Tensor):
        return {name: value}
    if isinstance(value, int | float):
        return {
            name: torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
        }
    if isinstance(value, Mapping | list):
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        return {
            key: tensor
            for at, part in parts
            for key, tensor in _packed(f"{name}.{at}", part).items()
        }
    return prefixed(name, value.state())


def _unpacked(name: str, zero: Any, state: dict[str, Tensor]) -> Any:
    if zero is None or isinstance(zero, Tensor):
        return state[name].clone() if name in state else None
    if isinstance(zero, int | float):
        return type(zero)(state[name].item())
    if isinstance(zero, Mapping) and zero:
        return {key: _unpacked(f"{name}.{key}", part, state) for key, part in zero.items()}
    if isinstance(zero, Mapping | list):
        start = name + "."
        values = {
            key.removeprefix(start): each.clone()
            for key, each in state.items()
            if key.startswith(start)
        }
        return (
            values if isinstance(zero, Mapping) else [values[str(at)] for at in range(len(values))]
        )
    return zero.restored(unprefixed(name, state))


def prefixed(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names of `state` moved under a prefix: `unit` becomes `rest/unit`."""
    return {f"{prefix}/{name}": tensor for name, tensor in state.items()}


def unprefixed(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of `state` under a prefix, with the prefix taken off."""
    start = prefix + "/"
    return {
        name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)
    }


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device, for which nothing waits if it was the processor's."""
    pinned = (
        tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
    )
    return pinned.to(device, non_blocking=True)


def fetched(tensor: Tensor, dtype: torch.dtype | None = None) -> Callable[[], Tensor]:
    """A tensor for the processor, on its way from a card from now on; what is returned waits for
    it, and gives it in `dtype`.
    """
    if tensor.device.type == "cpu":
        return lambda: tensor.to(dtype or tensor.dtype)
    here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    event = torch.Event(tensor.device)
    here.copy_(tensor, non_blocking=True)
    event.record()

    def arrived() -> Tensor:
        event.synchronize()
        return here.to(dtype or here.dtype)

    return arrived


T = TypeVar("T")


class lazy(Generic[T]):
    """`functools.cached_property` as it is from Python 3.12 on: earlier, one lock of a class let no
    two objects work at once.
    """

    def __init__(self, make: Callable[[Any], T]):
        self.make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value = vars(instance)[self.name] = self.make(instance)
        return value


B = TypeVar("B", bound=Accumulator)


class Blocks(Generic[B]):
    """At most `limit` consecutive blocks of equal length, in units (windows of text); each is an
    accumulator such as `Sums`.

    Unit u belongs to block u // size. A unit beyond the last block merges neighbouring blocks and
    doubles `size`: memory stays bounded, and blocks depend neither on the order of the units nor on
    how the stream was split.
    """

    def __init__(self, limit: int, zero: Callable[[], B]):
        self.limit = limit
        self.zero = zero
        self.size = 1
        self._parts: dict[int, B] = {}

    def index(self, unit: int) -> int:
        """The block of a unit, after the blocks have been coarsened as far as this unit needs."""
        while unit // self.size >= self.limit:
            self._coarsen()
        return unit // self.size

    def __getitem__(self, unit: int) -> B:
        return self.at(self.index(unit))

    def at(self, index: int) -> B:
        if index not in self._parts:
            self._parts[index] = self.zero()
        return self._parts[index]

    def items(self) -> list[tuple[int, B]]:
        return sorted(self._parts.items())

    def runs(self, windows: list[int]) -> Iterator[tuple[B, list[int]]]:
        """The blocks of a batch's windows, each with the rows that belong to it."""
        self.index(max(windows))  # coarsening happens once, before any block is chosen
        rows: dict[int, list[int]] = {}
        for row, window in enumerate(windows):
            rows.setdefault(self.index(window), []).append(row)
        for members in rows.values():
            yield self[windows[members[0]]], members

    def parts(self) -> list[B]:
        return [part for _, part in self.items()]

    def total(self) -> B:
        whole = self.zero()
        for part in self.parts():
            whole.merge(part)
        return whole

    def merge(self, other: "Blocks[B]") -> None:
        while self.size < other.size:
            self._coarsen()
        for index, part in other.items():
            self[index * other.size].merge(part)

    def _coarsen(self) -> None:
        self.size *= 2
        old = self.items()
        self._parts = {}
        for index, part in old:
            if index // 2 in self._parts:
                self._parts[index // 2].merge(part)
            else:
                self._parts[index // 2] = part

    def state(self) -> dict[str, Tensor]:
        state = {"size": torch.tensor([self.size, self.limit])}
        for index, part in self.items():
            state |= prefixed(str(index), part.state())
        return state

    def restored(self, state: dict[str, Tensor]) -> Self:
        """Blocks of the same kind with that state."""
        size, limit = state["size"].tolist()
        new = type(self)(limit, self.zero)
        zero = self.zero()
        new.size = size
        for index in sorted({int(name.split("/")[0]) for name in state if "/" in name}):
            new._parts[index] = zero.restored(unprefixed(str(index), state))
        return new


class Octaves(Blocks[B]):
    """The last `limit` blocks that double: units up to 2^(k−1) lie below block k, 2^(k−1) to 2^k −
    1 in it, and the rest in the first, of index `size`. What was there had the stream ended at 2^k
    units is the sum of the blocks up to k.
    """

    def index(self, unit: int) -> int:
        while unit.bit_length() >= self.size + self.limit:
            self._coarsen()
        return max(unit.bit_length(), self.size)

    def merge(self, other: Blocks[B]) -> None:
        while self.size < other.size:
            self._coarsen()
        for index, part in other.items():
            self.at(max(index, self.size)).merge(part)

    def _coarsen(self) -> None:
        first = self._parts.pop(self.size, None)
        self.size += 1
        if first is not None and self.size in self._parts:
            first.merge(self._parts[self.size])
        if first is not None:
            self._parts[self.size] = first


def process_count() -> int:
    """Number of processes of the running `torch.distributed` group; 1 outside of one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_rank() -> int:
    """Number of this process in the running `torch.distributed` group; 0 outside of one."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def same_everywhere(word: str) -> str:
    """Process 0's word, on all; each waits for the others. Outside of a process group the word
    itself.
    """
    words: list[object] = [word]
    if process_count() > 1:
        dist.broadcast_object_list(words, 0, device=_device())
        dist.barrier()
    return str(words[0])


def agreed(number: int) -> int:
    """Process 0's number, on all; outside of a process group the number itself."""
    if process_count() > 1:
        dist.broadcast(told := torch.tensor([number], device=_device()), 0)
        return int(told)
    return number


def merged(mine: B) -> B:
    """The merge of every process's accumulator, complete on process 0 (others hold a part of it).
    At step s, process r + s sends to process r: log2(n) steps, and no process holds more than two
    states at a time.
    """
    rank = process_rank()
    count = process_count()
    step = 1
    while step < count:
        if rank % (2 * step) == step:
            _send(mine, rank - step)
            break
        if rank % (2 * step) == 0 and rank + step < count:
            mine.merge(mine.restored(_receive(rank + step)))
        step *= 2
    return mine


def _device() -> torch.device:
    return torch.device(
        "cpu"
        if dist.get_backend() in ("gloo", "mpi")
        else torch.accelerator.current_accelerator() or "cpu"
    )


def _send(accumulator: Accumulator, to: int) -> None:
    data = save({name: tensor.contiguous().cpu() for name, tensor in accumulator.state().items()})
    payload = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(_device())
    dist.send(torch.tensor([len(payload)], device=_device()), to)
    dist.send(payload, to)


def _receive(source: int) -> dict[str, Tensor]:
    length = torch.zeros(1, dtype=torch.int64, device=_device())
    dist.recv(length, source)
    payload = torch.zeros(int(length), dtype=torch.uint8, device=_device())
    dist.recv(payload, source)
    return load(payload.cpu().numpy().tobytes())
