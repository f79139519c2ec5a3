"""Trackers that get numbers and alarms beside the Trainer's log and the run's own files; one is a class, here or in a plug-in."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

from headscan.run import BadInput, Option, Registry, Settings
from headscan.training.monitor.alarms import Alarm


@dataclass(frozen=True, kw_only=True)
class Tracker(Settings):
    """A package with `init`, `log` and `alert`; a run that is open there already is used. In a Trainer `report_to` brings the
    numbers there, and this the alarms; a loop of one's own gives both to it."""

    name: ClassVar[str]
    where: ClassVar[str]  # module and attribute that hold the open run
    project: Annotated[str, Option("Project under which a run is opened, where none is.")] = "headscan"

    def ready(self) -> Any:
        """The package, with a run; BadInput where it is not installed."""
        try:
            package, module = importlib.import_module(self.name), importlib.import_module(self.where.rpartition(":")[0])
        except ImportError:
            raise BadInput(f'The tracker {self.name} needs its package: pip install "headscan[{self.name}]".') from None
        run = getattr(module, self.where.rpartition(":")[2])
        if run is None or (hasattr(run, "get") and not hasattr(run, "log") and run.get() is None):
            package.init(project=self.project)
        return package

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Keep numbers of a step."""
        self.ready().log(dict(numbers), step=step)

    def alert(self, alarm: Alarm) -> None:
        """Tell of an alarm."""
        self.ready().alert(title=f"{alarm.code} {alarm.name}", text=f"After step {alarm.step}: {alarm.sentence}")


TRACKERS: Registry[type[Tracker]] = Registry("tracker", "headscan.training.monitor.trackers")
"""All trackers by name; `Monitor(to="wandb:project=mine")`."""


def trackers_of(given: str | list[Tracker]) -> list[Tracker]:
    """Trackers by name with their parameters, or made."""
    return cast("list[Tracker]", TRACKERS.build_each(given)) if given else []


@TRACKERS.register("wandb")
class WandB(Tracker):
    """Weights & Biases (`headscan[wandb]`); WANDB_MODE=offline keeps all of it on this machine."""

    name, where = "wandb", "wandb:run"


@TRACKERS.register("trackio")
class Trackio(Tracker):
    """trackio (`headscan[trackio]`), whose runs are kept on this machine."""

    name, where = "trackio", "trackio.context_vars:current_run"
