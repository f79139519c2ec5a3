"""The families of a monitor at work: hooks on the steps of their clocks, one transfer a reading,
numbers one step later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist

from headscan.model import Lens
from headscan.model.recording import BeforeCall, Kwargs, Recorder, after_call, before_call
from headscan.training.monitor.attention import AttentionCall, attention_calls
from headscan.training.monitor.families import Family, Raw, families_of
from headscan.training.monitor.repeated import Repeated, settle
from headscan.training.monitor.scene import ReadWindows, Scene, Store
from headscan.training.records import GeometrySnapshot

PENDING = 16
"""Forward passes whose windows are hashed together at most."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The numbers of one family after a step, named SITE/NUMBER."""

    step: int
    family: str
    values: dict[str, float]


def numbers_of(
    record: GeometrySnapshot | Reading, measures: Iterable[str] = ()
) -> dict[str, float]:
    """Return the numbers of a measurement or a reading by the names that logs give them."""
    if isinstance(record, Reading):
        return {f"headscan/{record.family}/{name}": value for name, value in record.values.items()}
    names = list(measures)
    numbers: dict[str, float] = {}
    for row in record.sites:
        for name in names:
            value = row.number(name)
            if value is not None:
                numbers[f"headscan/geometry/{row['site']}/{name}"] = value
    if record.gradient is not None and record.gradient.kept_norm is not None:
        numbers["headscan/gradient_share/head/kept_norm"] = record.gradient.kept_norm
    return numbers


Working = list[tuple[Family, Store]]
"""Families on their clocks, each with the store of the step under way."""


@dataclass(frozen=True)
class Transfer:
    """The tensors of a family on their way to the CPU, in one flat tensor.

    Attributes:
        shapes: names and shapes of the tensors, in their order.
        event: recorded behind the transfer on a CUDA device; None elsewhere.
    """

    step: int
    family: Family
    shapes: list[tuple[str, torch.Size]]
    flat: Tensor
    event: Any

    def arrays(self) -> Raw:
        """Wait for the transfer and return the arrays by name."""
        if self.event is not None:
            self.event.synchronize()
        numbers = self.flat.cpu().double().numpy()
        arrays: Raw = {}
        start = 0
        for name, shape in self.shapes:
            stop = start + shape.numel()
            arrays[name] = numbers[start:stop].reshape(shape)
            start = stop
        return arrays


class Readings:
    """Read a model in training by its families: `begin` a step, `before` and `after` the weights
    move, and `harvest` the readings.

    What was read in a step is harvested after the next one, so that nothing waits for the device;
    processes of a group agree on each number (the largest, or the mean). Training computes what it
    would compute: attention runs the same kernel, no random number is drawn from a shared state.
    """

    def __init__(self, lens: Lens, families: str | list[Family] = "*") -> None:
        self.scene = Scene(lens)
        self.families = families_of(families, self.scene)
        self._hooks: ExitStack | None = None
        self._due: dict[Family, Store] = {}
        self._transfers: list[Transfer] = []
        self._taps = [
            lens.tap(site)
            for site in lens.sites
            if site != "head" and not site.endswith("final_norm")
        ]

    def begin(self, step: int) -> None:
        """Set the hooks before the forward pass of step number `step`, from 1."""
        self.close()
        self._due = {
            family: Store() for family in self.families if step == 1 or step % family.every == 0
        }
        self._hooks = ExitStack()
        counting = any(isinstance(family, Repeated) for family in self.families)
        if self._due or counting:
            body = getattr(self.scene.lens.model, "base_model", self.scene.lens.model)
            self._hooks.enter_context(before_call(body, self._enter(step, counting=counting)))

        seeing = self._overriding("see")
        if seeing:
            self.scene.held = {}
            self._hooks.enter_context(Recorder(self._taps, self._see(seeing)))
        attending = self._overriding("attend")
        if attending:
            self._hooks.enter_context(attention_calls(self.scene, self._attend(attending)))
        routing = self._overriding("route")
        if routing:
            for block, router in self.scene.routers.items():
                self._hooks.enter_context(after_call(router, self._route(block, routing)))
        if self._due and "torch._dynamo" in sys.modules:
            # Compiled code passes no hook: this step runs without it.
            self._hooks.enter_context(torch.compiler.set_stance("force_eager"))

    @torch.no_grad()
    def before(self, step: int) -> None:
        """Read the gradients, before the weights move."""
        for family, store in self._due.items():
            family.before(self.scene, store, step)

    @torch.no_grad()
    def after(self, step: int) -> None:
        """Read the weights after they have moved, and send off what was read."""
        self.close()
        for family, store in self._due.items():
            family.after(self.scene, store, step)
            self._transfers.append(_transfer(step, family, store))
        self._due = {}

    def harvest(self, before: int | None = None) -> list[Reading]:
        """Return what was read in steps before this one (None: in all), in their order."""
        readings = []
        while self._transfers and (before is None or self._transfers[0].step < before):
            transfer = self._transfers.pop(0)
            arrays = transfer.arrays()
            with np.errstate(all="ignore"):
                values = transfer.family.finish(arrays, self.scene)
            readings.append(Reading(step=transfer.step, family=transfer.family.name, values=values))
        return readings

    def close(self) -> None:
        """Remove the hooks."""
        if self._hooks is not None:
            self._hooks.close()
        self._hooks = None
        self.scene.held = {}
        self.scene.masks = {}

    def _overriding(self, method: str) -> Working:
        """Return the families on their clocks that have a method of their own."""
        return [
            (family, store)
            for family, store in self._due.items()
            if getattr(type(family), method) is not getattr(Family, method)
        ]

    def _see(self, working: Working) -> Callable[[str, Tensor], None]:
        def see(site: str, states: Tensor) -> None:
            with torch.no_grad(), torch.autocast(states.device.type, enabled=False):
                for family, store in working:
                    family.see(self.scene, store, site, states)

        return see

    def _attend(self, working: Working) -> Callable[[str, AttentionCall], None]:
        def attend(block: str, call: AttentionCall) -> None:
            for family, store in working:
                family.attend(store, block, call)

        return attend

    def _route(self, block: str, working: Working) -> Callable[..., None]:
        def route(_module: nn.Module, _args: tuple[Any, ...], _kwargs: Kwargs, output: Any) -> None:
            tensors = tuple(part for part in output if isinstance(part, Tensor))
            with torch.no_grad():
                for family, store in working:
                    family.route(store, block, tensors, self.scene.mask_of(block))

        return route

    def _enter(self, step: int, *, counting: bool) -> BeforeCall:
        """Return a hook before the forward pass that stores its masks and, where windows are
        counted, its windows.
        """

        def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: Kwargs) -> None:
            self.scene.enter(kwargs)
            if not counting:
                return
            tensors = [part for part in (*args, *kwargs.values()) if isinstance(part, Tensor)]
            ids = tensors[0] if tensors else None
            if ids is not None and ids.ndim == 2 and not ids.is_floating_point():
                # A copy: the loader may use their memory again.
                real = self.scene.real("", ids.shape)
                self.scene.pending.append(ReadWindows(step, ids.clone(), real))
                if len(self.scene.pending) >= PENDING:
                    settle(self.scene)

        return enter


def _transfer(step: int, family: Family, store: Store) -> Transfer:
    """Send all numbers of a family to the CPU in one tensor, on which processes have agreed.

    Those of a model on several devices are gathered on the device of the first number.
    """
    means = dict[str, Tensor]()
    for name, value in store.sums.items():
        count = store.counts[name]
        means[name] = value if count == 1 else value / count
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    tensors = store.largest | means | store.local
    device = next((value.device for value in tensors.values()), torch.device("cpu"))
    parts: list[Tensor] = []
    if store.largest:
        largest = _flat(store.largest, device)
        if world > 1:
            dist.all_reduce(largest, dist.ReduceOp.MAX)
        parts.append(largest)
    if means:
        mean = _flat(means, device)
        if world > 1:
            dist.all_reduce(mean, dist.ReduceOp.SUM)
            mean = mean / world
        parts.append(mean)
    if store.local:
        parts.append(_flat(store.local, device))

    shapes = [(name, value.shape) for name, value in tensors.items()]
    flat = torch.cat(parts) if parts else torch.zeros(0)
    event = None
    if flat.device.type == "cuda":
        flat = torch.empty(flat.shape, pin_memory=True).copy_(flat, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
    return Transfer(step, family, shapes, flat, event)


def _flat(tensors: dict[str, Tensor], device: torch.device) -> Tensor:
    return torch.cat([tensor.float().flatten().to(device) for tensor in tensors.values()])
