"""The families of a monitor at work: hooks on the steps of their clocks, one transfer a reading,
numbers one step later.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headscan.model import Lens
from headscan.model.recording import Recorder
from headscan.run import BadInput, Option, Registry, Settings
from headscan.training.monitor.alarms import Alarm
from headscan.training.monitor.families import Family, Repeated, families_of
from headscan.training.monitor.scene import AttentionCall, Scene, Store, hashed, look_at
from headscan.training.objective import GeometrySnapshot


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The numbers of one family after a step, named WHERE/WHAT."""

    step: int
    family: str
    values: dict[str, float]


def numbers_of(what: GeometrySnapshot | Reading, measures: Iterable[str] = ()) -> dict[str, float]:
    """The numbers of a measurement or a reading by the names that logs give them."""
    if isinstance(what, Reading):
        return {f"headscan/{what.family}/{name}": value for name, value in what.values.items()}
    found = {
        f"headscan/geometry/{row['site']}/{name}": value
        for row in what.sites
        for name in measures
        if (value := row.number(name)) is not None
    }
    if what.gradient is not None and what.gradient.kept_norm is not None:
        found["headscan/gradient_share/head/kept_norm"] = what.gradient.kept_norm
    return found


Working = list[tuple[Family, Store]]


class Readings:
    """Read a model in training by its families: `begin` a step, `before` and `after` the weights
    move, and `harvest` what came.

    What was read in a step is harvested after the next one, so that nobody waits for the device;
    processes of a group agree on each number (the largest, or the mean). Training computes what it
    would compute: attention runs the same kernel, no random number is drawn from a shared state.
    """

    def __init__(self, lens: Lens, families: str | list[Family] = "*") -> None:
        self.scene = Scene(lens)
        self.families = families_of(families, self.scene)
        self._open: ExitStack | None = None
        self._due: dict[Family, Store] = {}
        self._arriving: list[tuple[int, Family, list[tuple[str, torch.Size]], Tensor, Any]] = []
        branches = [
            site for site in lens.sites if site != "head" and not site.endswith("final_norm")
        ]
        self._taps = [lens.tap(site) for site in branches]

    def begin(self, step: int) -> None:
        """Before the forward pass of step number `step`, from 1."""
        self.close()
        self._due = {
            family: Store() for family in self.families if step == 1 or step % family.every == 0
        }
        hooks = self._open = ExitStack()
        counting = any(isinstance(family, Repeated) for family in self.families)
        if self._due or counting:
            body = getattr(self.scene.lens.model, "base_model", self.scene.lens.model)
            hooks.callback(
                body.register_forward_pre_hook(
                    self._enter(step, counting=counting), with_kwargs=True
                ).remove
            )
        seeing, attending, routing = (self._which(name) for name in ("see", "attend", "route"))
        if seeing:
            self.scene.held = {}
            hooks.enter_context(Recorder(self._taps, self._each(seeing)))
        if attending:

            def attend(block: str, call: AttentionCall) -> None:
                for family, store in attending:
                    family.attend(store, block, call)

            hooks.enter_context(attention_calls(self.scene, attend))
        if routing:
            for block, router in self.scene.routers.items():
                hooks.callback(router.register_forward_hook(self._router(block, routing)).remove)
        if (
            self._due and "torch._dynamo" in sys.modules
        ):  # compiled code passes no hook: this step runs without it
            hooks.enter_context(torch.compiler.set_stance("force_eager"))

    @torch.no_grad()
    def before(self, step: int) -> None:
        """When the gradients are there, before the weights move."""
        for family, store in self._due.items():
            family.before(self.scene, store, step)

    @torch.no_grad()
    def after(self, step: int) -> None:
        """When the weights have moved."""
        self.close()
        for family, store in self._due.items():
            family.after(self.scene, store, step)
            self._send(step, family, store)
        self._due = {}

    def harvest(self, before: int | None = None) -> list[Reading]:
        """What was read in steps before this one (all of it without), in their order."""
        found = []
        while self._arriving and (before is None or self._arriving[0][0] < before):
            step, family, names, flat, event = self._arriving.pop(0)
            if event is not None:
                event.synchronize()
            numbers = flat.cpu().double().numpy()
            raw = {}
            for name, shape in names:
                raw[name], numbers = (
                    numbers[: shape.numel()].reshape(shape),
                    numbers[shape.numel() :],
                )
            with np.errstate(all="ignore"):
                found.append(
                    Reading(step=step, family=family.name, values=family.finish(raw, self.scene))
                )
        return found

    def close(self) -> None:
        """Take the hooks away."""
        if self._open is not None:
            self._open.close()
        self._open, self.scene.held, self.scene.masks = None, {}, {}

    def _which(self, method: str) -> Working:
        return [
            (one, store)
            for one, store in self._due.items()
            if getattr(type(one), method) is not getattr(Family, method)
        ]

    def _each(self, seeing: Working) -> Callable[[str, Tensor], None]:
        def each(site: str, states: Tensor) -> None:
            with torch.no_grad(), torch.autocast(states.device.type, enabled=False):
                for family, store in seeing:
                    family.see(self.scene, store, site, states)

        return each

    def _router(self, block: str, routing: Working) -> Callable[..., None]:
        def routed(module: Any, given: Any, answer: Any) -> None:
            real = self.scene.masks.get("decoder" if block.startswith("decoder.") else "encoder")
            with torch.no_grad():
                for family, store in routing:
                    family.route(
                        store, block, tuple(one for one in answer if isinstance(one, Tensor)), real
                    )

        return routed

    def _enter(self, step: int, *, counting: bool) -> Callable[..., None]:
        """A hook before the forward pass that takes up its masks and, where windows are counted,
        its windows.
        """

        def enter(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            self.scene.enter(kwargs)
            if not counting:
                return
            ids = next((one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)), None)
            if ids is not None and ids.ndim == 2 and not ids.is_floating_point():
                self.scene.read.append(hashed(ids, step, self.scene))

        return enter

    def _send(self, step: int, family: Family, store: Store) -> None:
        """One tensor for all numbers of a family, agreed on, on its way to the CPU."""
        means = {name: value / store.counts[name] for name, value in store.sums.items()}
        world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        parts: list[Tensor] = []
        for group, how in ((store.largest, dist.ReduceOp.MAX), (means, dist.ReduceOp.SUM)):
            parts += (
                [torch.cat([value.float().flatten() for value in group.values()])] if group else []
            )
            if group and world > 1:
                dist.all_reduce(parts[-1], how)
                parts[-1] = parts[-1] / world if group is means else parts[-1]
        parts += [value.float().flatten() for value in store.local.values()]
        names = [
            (name, value.shape) for name, value in (store.largest | means | store.local).items()
        ]
        flat = torch.cat(parts) if parts else torch.zeros(0)
        event = None
        if flat.device.type == "cuda":
            flat = torch.empty(flat.shape, pin_memory=True).copy_(flat, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._arriving.append((step, family, names, flat, event))


@contextmanager
def attention_calls(scene: Scene, take: Callable[[str, AttentionCall], Any]) -> Iterator[None]:
    """A context in which `take(block, call)` is told of every attention call of the scene's model,
    whose kernel stays the same.

    Of models whose attention goes through transformers' interface; nothing is told of others.
    """
    name = getattr(scene.lens.model.config, "_attn_implementation", None) or "eager"
    inner = ALL_ATTENTION_FUNCTIONS.get(name)
    inner = getattr(inner, "inner", inner)  # a step that broke off has left its own

    def attend(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        *args: Any,
        **options: Any,
    ) -> Any:
        if block := scene.owner.get(id(module)):
            causal = getattr(module, "is_causal", True) and (mask is None or mask.ndim == 2)
            with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
                real = (
                    scene.real(block, (len(query), query.shape[2]))
                    if query.shape[2] == key.shape[2]
                    else None
                )
                first = None if real is None else real[0]
                take(block, look_at(query, key, value, mask, options.get("scaling"), causal, first))
        run = inner or sys.modules[type(module).__module__].eager_attention_forward
        return run(module, query, key, value, mask, *args, **options)

    attend.inner = inner  # type: ignore[attr-defined]
    ALL_ATTENTION_FUNCTIONS[name] = attend
    try:
        yield
    finally:
        with suppress(KeyError):
            del ALL_ATTENTION_FUNCTIONS[name]


# ---- Trackers that get numbers and alarms beside the Trainer's log and the run's own files; one is a class.


@dataclass(frozen=True, kw_only=True)
class Tracker(Settings):
    """A package with `init`, `log` and `alert`; a run that is open there already is used. In a
    Trainer `report_to` brings the numbers there, and this the alarms; a loop of one's own gives
    both to it.
    """

    name: ClassVar[str]
    where: ClassVar[str]  # module and attribute that hold the open run
    project: Annotated[str, Option("Project under which a run is opened, where none is.")] = (
        "headscan"
    )

    def ready(self) -> Any:
        """The package, with a run; BadInput where it is not installed."""
        try:
            package = importlib.import_module(self.name)
            module = importlib.import_module(self.where.rpartition(":")[0])
        except ImportError:
            raise BadInput(
                f'The tracker {self.name} needs its package: pip install "headscan[{self.name}]".'
            ) from None
        run = getattr(module, self.where.rpartition(":")[2])
        if run is None or (hasattr(run, "get") and not hasattr(run, "log") and run.get() is None):
            package.init(project=self.project)
        return package

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Keep numbers of a step."""
        self.ready().log(dict(numbers), step=step)

    def alert(self, alarm: Alarm) -> None:
        """Tell of an alarm."""
        self.ready().alert(
            title=f"{alarm.code} {alarm.name}", text=f"After step {alarm.step}: {alarm.sentence}"
        )


TRACKERS: Registry[type[Tracker]] = Registry("tracker", "headscan.training.monitor.readings")
"""All trackers by name; `Monitor(to="wandb:project=mine")`."""


def trackers_of(given: str | list[Tracker]) -> list[Tracker]:
    """Trackers by name with their parameters, or made."""
    return cast("list[Tracker]", TRACKERS.build_each(given)) if given else []


@TRACKERS.register("wandb")
class WandB(Tracker):
    """Weights & Biases (`headscan[wandb]`); WANDB_MODE=offline keeps all of it on this machine."""

    name = "wandb"
    where = "wandb:run"


@TRACKERS.register("trackio")
class Trackio(Tracker):
    """trackio (`headscan[trackio]`), whose runs are kept on this machine."""

    name = "trackio"
    where = "trackio.context_vars:current_run"
