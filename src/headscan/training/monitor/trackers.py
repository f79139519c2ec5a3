"""Trackers: packages that get numbers and alarms beside the Trainer's log and the run's own files.

A tracker is one class, here or in a plug-in.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

from headscan.run import BadInput, Option, Registry, Settings
from headscan.training.monitor.alarms import Alarm


@dataclass(frozen=True, kw_only=True)
class Tracker(Settings):
    """A package with `init`, `log` and `alert`; a run that is open there already is used.

    In a Trainer `report_to` brings the numbers there, and a tracker the alarms; in another training
    loop a tracker gets both.

    Attributes:
        name: the package.
        where: module and attribute that hold the open run.
    """

    name: ClassVar[str]
    where: ClassVar[str]
    project: Annotated[str, Option("Project under which a run is opened, where none is.")] = (
        "headscan"
    )

    def ready(self) -> Any:
        """Return the package, with an open run; BadInput where it is not installed."""
        module_name, _, attribute = self.where.rpartition(":")
        try:
            package = importlib.import_module(self.name)
            module = importlib.import_module(module_name)
        except ImportError:
            raise BadInput(
                f'The tracker {self.name} needs its package: pip install "headscan[{self.name}]".'
            ) from None
        run = getattr(module, attribute)
        is_variable = hasattr(run, "get") and not hasattr(run, "log")
        if run is None or (is_variable and run.get() is None):
            package.init(project=self.project)
        return package

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log the numbers of a step."""
        self.ready().log(dict(numbers), step=step)

    def alert(self, alarm: Alarm) -> None:
        """Report an alarm."""
        self.ready().alert(
            title=f"{alarm.code} {alarm.name}", text=f"After step {alarm.step}: {alarm.sentence}"
        )


TRACKERS: Registry[type[Tracker]] = Registry("tracker", "headscan.training.monitor.trackers")
"""All trackers by name; `Monitor(to="wandb:project=mine")`."""


def trackers_of(trackers: str | list[Tracker]) -> list[Tracker]:
    """Return trackers by name with their parameters, or the trackers themselves."""
    if not trackers:
        return []
    return cast("list[Tracker]", TRACKERS.build_each(trackers))


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
