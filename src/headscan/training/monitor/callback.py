"""The monitor as a callback of transformers' Trainer: a `Watch` within a share of the time."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback
from transformers import TrainerControl as Control
from transformers import TrainerState as State
from transformers import TrainingArguments as Args
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from headscan.run import BadInput, plain, write_atomic
from headscan.statistics.distributed import agreed
from headscan.training.monitor.alarms import Alarm, AlarmRule, rules_of
from headscan.training.monitor.families import Family
from headscan.training.monitor.readings import Reading, numbers_of
from headscan.training.monitor.repeated import settle
from headscan.training.monitor.trackers import Tracker, trackers_of
from headscan.training.monitor.watch import Watch, unwrapped
from headscan.training.monitor.windows import PaddedWindows
from headscan.training.records import GeometrySnapshot
from headscan.training.trajectory import DEFAULT, snapshot_of

log = logging.getLogger(__name__)

Action = Literal["warn", "checkpoint", "stop"]
"""What an alarm may do, the mildest first."""

ACTIONS: tuple[Action, ...] = get_args(Action)

SETTLED = 10
"""Steps after which the time of one is known."""

LONGEST_HORIZON = 100.0
"""Steps within which a window that comes back is repeated; a quarter of an epoch, if shorter."""

GEOMETRY = "geometry.jsonl"
READINGS = "monitor.jsonl"
MEMORY = "headscan_windows.json"


class Monitor(TrainerCallback):
    """The geometry of every site as a model trains, in the Trainer's own log, with alarms:

        trainer.add_callback(headscan.training.Monitor(trainer))

    trainer: whose log (TensorBoard, W&B, MLflow, ... follow it) gets the numbers, under headscan/,
    and whose eval_dataset (of several the first windows of each; without one the train_dataset, and
    a warning says so) is measured on where no `windows` are given. Without a trainer the numbers go
    to geometry.jsonl and monitor.jsonl alone. windows: int [n, context], token ids to measure on;
    attention_mask: as `Watch` takes it. every: steps between measurements. Default: so many that
    measuring takes at most `share` of the time of training. sites, measures, counts, families: as
    `Watch` takes them; families keep their own clocks. alarms: names of rules or rules; "" for
    none. on_alarm: "warn" (a warning in the log), "checkpoint" (and the Trainer saves), "stop" (and
    it stops), for all or by the rule's name: {"loss": "stop"}; or a function of an `Alarm` that
    returns one of these (None: "warn"). to: trackers (`TRACKERS`) that get alarms, and without a
    trainer the numbers.

    It measures before the first step and after the last; `history` is a list of `GeometrySnapshot`,
    which also goes line by line to geometry.jsonl in the run's folder; `readings` are those of the
    families, in monitor.jsonl. Every process measures (the forward pass of a sharded model needs
    all of them) and the first one writes, and decides. A run that was interrupted and resumed
    measures with `every` at the steps of one that was not.
    """

    def __init__(
        self,
        trainer: Trainer | None = None,
        windows: npt.NDArray[np.integer] | None = None,
        *,
        every: int | None = None,
        share: float = 0.02,
        sites: str | None = None,
        measures: Iterable[str] = DEFAULT,
        alarms: str | Iterable[str | AlarmRule] = "*",
        on_alarm: Action | Mapping[str, Action] | Callable[[Alarm], Action | None] = "warn",
        counts: Int[Tensor, " vocabulary"] | None = None,
        families: str | list[Family] = "*",
        to: str | list[Tracker] = "",
        attention_mask: npt.ArrayLike | None = None,
    ) -> None:
        if every is not None and every < 1:
            raise BadInput(f"The geometry is measured every 1 step or more, not every {every}.")
        if not 0 < share <= 1:
            raise BadInput(
                "The share of the time that measuring may take is above 0 and at most 1, not "
                f"{share}."
            )
        if isinstance(on_alarm, str):
            checked(on_alarm)
        elif isinstance(on_alarm, Mapping):
            for action in on_alarm.values():
                checked(action)
        padded = _windows_of(trainer, windows, attention_mask)
        self.windows = padded.ids
        self.attention_mask = padded.mask
        self.trainer = trainer
        self.every = every
        self.share = share
        self.sites = sites
        self.measures = tuple(measures)
        self.on_alarm = on_alarm
        self.counts = counts
        self.rules = rules_of(alarms)
        self.families = families
        self.trackers = trackers_of(to)
        self.history: list[GeometrySnapshot] = []
        self.readings: list[Reading] = []
        self.losses: list[float] = []
        self.raised: list[Alarm] = []
        self.cost = 0.0
        self._watch: Watch | None = None
        self._next = 0

    def on_train_begin(
        self, args: Args, state: State, control: Control, model: Any = None, **_: Any
    ) -> None:
        records: list[GeometrySnapshot | Reading] = []
        if state.global_step:
            records += self._stored_geometry(args, state)
            records += self._stored_readings(args, state)
        losses = [entry for entry in state.log_history if "loss" in entry]
        for known in (self.history, self.readings, self.losses, self.raised):
            known.clear()
        watch = self._watching(model)
        for record in records:
            watch.take(record)
        for entry in losses:
            watch.loss(int(entry["step"]), float(entry["loss"]))
        watch.raised.sort(key=_step_of)
        self._load_memory(args, state, watch)

        self._start = time.perf_counter()
        self._first = state.global_step
        self._next = state.global_step + SETTLED
        self._write(args, state)
        self._append(args, state, self.readings, afresh=True)
        if not state.global_step or self._regular(state.global_step):
            self._measure(args, state, control, model)

    def on_step_begin(
        self, args: Args, state: State, control: Control, model: Any = None, **_: Any
    ) -> None:
        reader = self._watching(model).reader
        epoch_steps = state.global_step / state.epoch if state.epoch else math.inf
        reader.scene.horizon = min(LONGEST_HORIZON, epoch_steps / 4)
        reader.scene.scaled = args.fp16
        reader.begin(state.global_step + 1)

    def on_pre_optimizer_step(
        self,
        args: Args,
        state: State,
        control: Control,
        model: Any = None,
        optimizer: Any = None,
        **_: Any,
    ) -> None:
        reader = self._watching(model).reader
        if optimizer is not None:
            reader.scene.know(optimizer)
        reader.before(state.global_step + 1)

    def on_save(
        self, args: Args, state: State, control: Control, model: Any = None, **_: Any
    ) -> None:
        self._harvest(args, state, control, model)
        scene = self._watching(model).reader.scene
        settle(scene)
        path = self._memory(args, state)
        if state.is_world_process_zero and (scene.seen or scene.read) and path.parent.is_dir():
            read = torch.cat(scene.read).tolist() if scene.read else []
            write_atomic(path, json.dumps([scene.seen, read, scene.counts.tolist()]))

    def on_log(
        self,
        args: Args,
        state: State,
        control: Control,
        logs: Any = None,
        model: Any = None,
        **_: Any,
    ) -> None:
        if not logs or "loss" not in logs:
            return
        watch = self._watching(model)
        step = state.global_step
        alarms = watch.loss(step, float(logs["loss"]))
        # The Trainer may log 0 for a loss of NaN; its gradient then has a norm of NaN. A scaler
        # drops infinite gradients itself.
        if not args.fp16 and not math.isfinite(float(logs.get("grad_norm") or 0.0)):
            alarms += watch.broken(step, "gradient")
        self._raise(alarms, control)

    def on_step_end(
        self, args: Args, state: State, control: Control, model: Any = None, **_: Any
    ) -> None:
        step = state.global_step
        self._watching(model).reader.after(step)
        everything = control.should_save or control.should_training_stop
        self._harvest(args, state, control, model, None if everything else step)
        settled = self.every is None and step >= self._next
        if self._regular(step) or (settled and self._affordable(step)):
            self._measure(args, state, control, model)

    def on_train_end(
        self, args: Args, state: State, control: Control, model: Any = None, **_: Any
    ) -> None:
        self._harvest(args, state, control, model)
        self._measure(args, state, control, model)

    def _harvest(
        self, args: Args, state: State, control: Control, model: Any, before: int | None = None
    ) -> None:
        """Judge what the families read in earlier steps, write and log it, and raise alarms."""
        watch = self._watching(model)
        start = len(self.readings)
        alarms = watch.harvest(before)
        fresh = self.readings[start:]
        if not fresh:
            return
        self._append(args, state, fresh)
        numbers: dict[str, float] = {}
        for reading in fresh:
            numbers |= numbers_of(reading)
        self._log(control, fresh[-1].step, numbers)
        self._raise(alarms, control, agree=True)

    def _regular(self, step: int) -> bool:
        return self.every is not None and step % self.every == 0

    def _affordable(self, step: int) -> bool:
        """Return whether another measurement keeps within the share of the time; if not, set the
        step at which it will, for all processes.
        """
        training = time.perf_counter() - self._start - self.cost
        one_measurement = self.cost / max(len(self.history), 1)
        missing = (self.cost + one_measurement) / self.share - training
        missing_steps = missing / max(training, 1e-9) * (step - self._first)
        wait = agreed(max(0, math.ceil(missing_steps)))
        self._next = step + wait
        return wait == 0

    def _watching(self, model: Any) -> Watch:
        """Return the watch of the model, which shares its lists with this monitor."""
        watch = self._watch
        if watch is None or unwrapped(model) is not (watch.learner or watch.lens.model):
            watch = Watch(
                model,
                self.windows,
                sites=self.sites,
                measures=self.measures,
                alarms=self.rules,
                counts=self.counts,
                families=self.families,
                attention_mask=self.attention_mask,
            )
            watch.history = self.history
            watch.losses = self.losses
            watch.raised = self.raised
            watch.readings = self.readings
            self._watch = watch
        return watch

    def _measure(self, args: Args, state: State, control: Control, model: Any) -> None:
        if any(snapshot.step == state.global_step for snapshot in self.history):
            return
        start = time.perf_counter()
        measured_before = len(self.history)
        alarms = self._watching(model).measure(state.global_step)
        self.cost += time.perf_counter() - start
        if len(self.history) > measured_before:
            self._write(args, state)
            self._log(control, state.global_step, numbers_of(self.history[-1], self.measures))
        self._raise(alarms, control)

    def _log(self, control: Control, step: int, numbers: dict[str, float]) -> None:
        if self.trainer is None:
            for tracker in self.trackers:
                tracker.log(step, numbers)
            return
        # A call of the log clears this flag, and with it the loss of the step.
        due = control.should_log
        handler = self.trainer.callback_handler
        callbacks = handler.callbacks
        handler.callbacks = [
            callback
            for callback in callbacks
            if not isinstance(callback, PrinterCallback | ProgressCallback)  # not on the screen
        ]
        try:
            self.trainer.log(numbers)
        finally:
            handler.callbacks = callbacks
            control.should_log = due

    def _raise(self, alarms: list[Alarm], control: Control, *, agree: bool = False) -> None:
        """Log the alarms and do what `on_alarm` says; where processes may differ (`agree`), what
        the first process does.
        """
        severity = 0
        for alarm in alarms:
            severity = max(severity, ACTIONS.index(self._action(alarm)))
            log.warning(
                "After step %d (%s, alarm %s): %s",
                alarm.step,
                alarm.code,
                alarm.name,
                alarm.sentence,
            )
            for tracker in self.trackers:
                tracker.alert(alarm)
        if agree:
            severity = agreed(severity)
        control.should_save |= severity >= ACTIONS.index("checkpoint")
        control.should_training_stop |= severity >= ACTIONS.index("stop")

    def _action(self, alarm: Alarm) -> Action:
        action: str | None
        if isinstance(self.on_alarm, Mapping):
            action = self.on_alarm.get(alarm.name)
        elif callable(self.on_alarm):
            action = self.on_alarm(alarm)
        else:
            action = self.on_alarm
        return checked(action or "warn")

    def _file(self, args: Args, name: str) -> Path:
        return Path(args.output_dir or ".") / name

    def _memory(self, args: Args, state: State) -> Path:
        """Return the file in which a checkpoint stores the windows that were read lately."""
        return self._file(args, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}") / MEMORY

    def _load_memory(self, args: Args, state: State, watch: Watch) -> None:
        path = self._memory(args, state)
        if not path.exists():
            return
        seen, read, counts = json.loads(path.read_text(encoding="utf-8"))
        scene = watch.reader.scene
        scene.counts = torch.tensor(counts)
        scene.seen = {int(window): step for window, step in seen.items()}
        scene.read = [torch.tensor(read, device=watch.lens.device)] if read else []

    def _stored_geometry(self, args: Args, state: State) -> list[GeometrySnapshot]:
        """Return the measurements of the run that is resumed.

        What was measured where a run was stopped early belongs to that end, and this run goes past
        it.
        """
        snapshots = [snapshot_of(line) for line in _lines(self._file(args, GEOMETRY))]
        return [
            snapshot
            for snapshot in snapshots
            if snapshot.step <= state.global_step
            and (self._regular(snapshot.step) or snapshot.step == state.max_steps)
        ]

    def _stored_readings(self, args: Args, state: State) -> list[Reading]:
        readings = []
        for line in _lines(self._file(args, READINGS)):
            if line["step"] <= state.global_step:
                values = {
                    name: math.nan if value is None else value
                    for name, value in line["values"].items()
                }
                readings.append(Reading(step=line["step"], family=line["family"], values=values))
        return readings

    def _write(self, args: Args, state: State) -> None:
        if state.is_world_process_zero:
            path = self._file(args, GEOMETRY)
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(plain(snapshot)) + "\n" for snapshot in self.history]
            write_atomic(path, "".join(lines))

    def _append(
        self, args: Args, state: State, readings: list[Reading], *, afresh: bool = False
    ) -> None:
        path = self._file(args, READINGS)
        if state.is_world_process_zero and (readings or path.exists()):
            with path.open("w" if afresh else "a", encoding="utf-8") as file:
                file.writelines(json.dumps(plain(reading)) + "\n" for reading in readings)


def _windows_of(
    trainer: Trainer | None,
    windows: npt.NDArray[np.integer] | None,
    attention_mask: npt.ArrayLike | None,
) -> PaddedWindows:
    """Return the windows to measure on: those given, or the first ones of the Trainer's data."""
    if windows is not None:
        return PaddedWindows.of(windows, attention_mask)
    if trainer is not None:
        return PaddedWindows.of_trainer(trainer)
    raise BadInput("What shall be measured? Give windows, or a trainer that has an eval_dataset.")


def _step_of(alarm: Alarm) -> int:
    return alarm.step


def checked(action: str) -> Action:
    """Return an action that an alarm may do; BadInput for anything else."""
    if action not in ACTIONS:
        raise BadInput(f"An alarm may warn, checkpoint or stop, not {action!r}.")
    return action


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file; the last one of a run that was killed may be torn."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            records.append(json.loads(line))
    return records
