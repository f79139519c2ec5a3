"""A model under watch, in any training loop: what its states look like now, and whether that is
alarming.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback
from transformers import TrainerControl as Control
from transformers import TrainerState as State
from transformers import TrainingArguments as Args
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from headscan.model import Lens
from headscan.run import BadInput, plain, write_atomic
from headscan.statistics import NonFinite
from headscan.statistics.accumulator import agreed
from headscan.training.learner import Learner
from headscan.training.monitor.alarms import Alarm, AlarmRule, NotFinite, rules_of
from headscan.training.monitor.families import Family
from headscan.training.monitor.readings import Reading, Readings, Tracker, numbers_of, trackers_of
from headscan.training.monitor.windows import PaddedWindows
from headscan.training.objective import GeometrySnapshot
from headscan.training.trajectory import DEFAULT, gradient_through_head, measure_sites, snapshot_of

log = logging.getLogger(__name__)


class Watch:
    """Measure a model as it trains, and be told when something breaks. For a loop of one's own:

        watch = Watch(model, windows)
        for step, batch in enumerate(batches, 1):
            with watch.step(step, optimizer):
                loss = ...
                loss.backward()
                optimizer.step()
            watch.loss(step, float(loss))
            if step % 100 == 0:
                watch.measure(step)
        for alarm in watch.raised: print(alarm.step, alarm.sentence)

    model: a transformers model; under DDP or fully_shard every process calls. windows: int [n,
    context], token ids to measure the geometry on: held out, if they are to mean anything; None
    measures none. attention_mask: [n, context], 1 for tokens and 0 for padding, whose states are in
    no number; default no padding. sites: globs of sites; default the residual stream and its ends.
    measures: of the registry of measures, beside those the alarms need. alarms: rules, by names or
    made with limits of one's own. families: what is read of the steps themselves (`FAMILIES`), by
    globs or NAME:every=N, "" for none. counts: the training text's token counts [V], by which a
    headless model is read out for its gradient. to: trackers (`TRACKERS`) that get numbers and
    alarms. `history` has a `GeometrySnapshot` a measurement, `readings` a `Reading` a family and
    step, `losses` what was told of the loss, `raised` the alarms.

    Training is not touched: modes and random states are as before. Cost of a measurement: one
    forward pass over the windows and a Gram matrix [d, d] a site; of the families:
    benchmarks/the_monitor_takes_at_most_two_percent_of_a_step.py.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=8))
    >>> watch = Watch(model, np.arange(32).reshape(4, 8))
    >>> watch.measure(0), len(watch.history[0].sites)
    ([], 4)
    """

    def __init__(
        self,
        model: nn.Module,
        windows: npt.NDArray[np.integer] | None,
        *,
        sites: str | Iterable[str] | None = None,
        measures: Iterable[str] = DEFAULT,
        alarms: str | Iterable[str | AlarmRule] = "*",
        counts: Int[Tensor, " vocabulary"] | None = None,
        families: str | list[Family] = "*",
        to: str | list[Tracker] = "",
        attention_mask: npt.ArrayLike | None = None,
    ) -> None:
        model = unwrapped(model)
        self.learner = model if isinstance(model, Learner) else None
        self.lens = Lens(model if self.learner is None else self.learner.model, name="training")
        self.reader = Readings(self.lens, families)
        self.trackers = trackers_of(to)
        self.counts = counts
        self.windows = None if windows is None else PaddedWindows.of(windows, attention_mask)
        self.sites = sites
        self.rules = rules_of(alarms)
        of_sites = [
            rule.quantity
            for rule in self.rules
            if rule.quantity != "dead_share" and "/" not in rule.quantity
        ]
        self.measures = tuple(
            dict.fromkeys([*measures, *(name for name in of_sites if name != "loss")])
        )
        self.history: list[GeometrySnapshot] = []
        self.readings: list[Reading] = []
        self.losses: list[float] = []
        self.raised: list[Alarm] = []
        self._series: dict[tuple[str, str], list[float]] = {}
        self._silent: dict[str, int] = {}

    def measure(self, step: int) -> list[Alarm]:
        """Measure after `step`; the alarms that this raises. States that are not finite are HS517
        and leave no measurement.
        """
        if self.windows is None:
            raise BadInput("There is nothing to measure on: give windows.")
        ids = self.windows.ids
        mask = self.windows.mask
        try:
            with torch.random.fork_rng():
                rows = measure_sites(
                    self.lens, ids, sites=self.sites, measures=self.measures, attention_mask=mask
                )
                gradient = gradient_through_head(
                    self.lens.model, self.learner, ids, self.counts, mask
                )
        except NonFinite as error:
            log.warning("The geometry after step %d is left out: the states are not finite.", step)
            return self._told(None, self.broken(step, error.site or "states"))
        return self._told(
            snapshot := GeometrySnapshot(step=step, sites=rows, gradient=gradient),
            self.take(snapshot),
        )

    @contextmanager
    def step(self, step: int, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Read step number `step` (forward, backward and the optimizer's) by the families whose
        clock it is.
        """
        self.reader.begin(step)
        handle = optimizer.register_step_pre_hook(lambda *_: self.reader.before(step))
        try:
            yield
        except BaseException:
            self.reader.close()
            raise
        finally:
            handle.remove()
        self.reader.after(step)
        self.harvest(step)

    def harvest(self, before: int | None = None) -> list[Alarm]:
        """Take up what was read in earlier steps (with none named: in all); the alarms that it
        raises.
        """
        return [
            alarm
            for reading in self.reader.harvest(before)
            for alarm in self._told(reading, self.take(reading))
        ]

    def loss(self, step: int, loss: float) -> list[Alarm]:
        """Take up a loss in nats; the alarms that it raises."""
        self.losses.append(loss)
        broken = float(not math.isfinite(loss))
        return self._told(
            None, self._judge(step, {"loss": {"": loss}, NotFinite.quantity: {"": broken}})
        )

    def broken(self, step: int, where: str) -> list[Alarm]:
        """Take up that numbers there are NaN or infinite; the alarms that it raises."""
        return self._judge(step, {NotFinite.quantity: {where: 1.0}})

    def take(self, what: GeometrySnapshot | Reading) -> list[Alarm]:
        """Take up a measurement or a reading, made now or kept from before; the alarms that it
        raises.
        """
        numbers: dict[str, dict[str, float]] = {}
        if isinstance(what, Reading):
            self.readings.append(what)
            for name, value in what.values.items():
                where, _, quantity = name.rpartition("/")
                numbers.setdefault(f"{what.family}/{quantity}", {})[where] = value
                if not math.isfinite(value):
                    numbers.setdefault(NotFinite.quantity, {})[where] = 1.0
        else:
            self.history.append(what)
            for quantity in {rule.quantity for rule in self.rules} - {NotFinite.quantity}:
                known = {
                    row.text("site"): row.number(quantity) for row in what.sites if quantity in row
                }
                numbers[quantity] = {
                    site: math.nan if value is None else value for site, value in known.items()
                }
        return self._judge(what.step, numbers)

    def _told(self, what: GeometrySnapshot | Reading | None, alarms: list[Alarm]) -> list[Alarm]:
        for tracker in self.trackers:
            if what is not None:
                tracker.log(what.step, numbers_of(what, self.measures))
            for alarm in alarms:
                tracker.alert(alarm)
        return alarms

    def _judge(self, step: int, numbers: Mapping[str, Mapping[str, float]]) -> list[Alarm]:
        found = []
        for rule in self.rules:
            if rule.last_step is not None and step > rule.last_step:
                continue
            changes: dict[str, float] = {}
            for where, value in numbers.get(rule.quantity, {}).items():
                series = self._series.setdefault((rule.name, where), [])
                series.append(value)
                change = rule.change(series)
                if change is not None and change > rule.limit:
                    changes[where] = change
                del series[: -rule.memory - 1]
            # for how many more it is silent: it compares with what was before
            readings = self._silent.get(rule.name, 0)
            if numbers.get(rule.quantity):
                self._silent[rule.name] = max(0, readings - 1)
            if changes and not readings:
                self._silent[rule.name] = max(rule.memory, 4)
                found.append(self._alarm(rule, step, changes))
        self.raised += found
        return found

    def _alarm(self, rule: AlarmRule, step: int, changes: dict[str, float]) -> Alarm:
        where = max(changes, key=changes.__getitem__)
        values = self._series[rule.name, where]
        before = rule.before(values)
        now = values[-1]
        more = (
            f" and {len(changes) - 1} other site{'s' * (len(changes) > 2)}"
            if len(changes) > 1
            else ""
        )
        return Alarm(
            name=rule.name,
            code=rule.code,
            step=step,
            site=where or None,
            sites=[one for one in changes if one],
            before=before if math.isfinite(before) else None,
            value=now if math.isfinite(now) else None,
            sentence=rule.say(where + more, before, now),
        )


Action = Literal["warn", "checkpoint", "stop"]
SETTLED = 10  # steps after which the time of one is known
READINGS = "monitor.jsonl"


class Monitor(TrainerCallback):
    """The shape of every site as a model trains, in the Trainer's own log, with alarms:

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
        for action in (
            [on_alarm]
            if isinstance(on_alarm, str)
            else on_alarm.values()
            if isinstance(on_alarm, Mapping)
            else ()
        ):
            checked(action)
        if windows is not None:
            taken = PaddedWindows.of(windows, attention_mask)
        elif trainer is not None:
            taken = PaddedWindows.of_trainer(trainer)
        else:
            raise BadInput(
                "What shall be measured? Give windows, or a trainer that has an eval_dataset."
            )
        self.windows = taken.ids
        self.attention_mask = taken.mask
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
        kept: list[GeometrySnapshot | Reading] = []
        if state.global_step:
            # What was measured where a run was stopped early belongs to that end, and this run goes
            # past it.
            kept += [
                one
                for line in _lines(self._file(args))
                if (one := snapshot_of(line)).step <= state.global_step
                and (self._regular(one.step) or one.step == state.max_steps)
            ]
            for line in _lines(self._file(args, READINGS)):
                line["values"] = {
                    name: math.nan if value is None else value
                    for name, value in line["values"].items()
                }
                kept += [Reading(**line)] if line["step"] <= state.global_step else []
        told = [
            (int(entry["step"]), float(entry["loss"]))
            for entry in state.log_history
            if "loss" in entry
        ]
        for told_before in (self.history, self.readings, self.losses, self.raised):
            told_before.clear()
        watch = self._watching(model)
        for each in kept:
            watch.take(each)
        for step, loss in told:
            watch.loss(step, loss)
        watch.raised.sort(key=lambda alarm: alarm.step)
        if (memory := self._memory(args, state)).exists():
            seen, read, counts = json.loads(memory.read_text(encoding="utf-8"))
            watch.reader.scene.counts = torch.tensor(counts)
            watch.reader.scene.seen = {int(key): step for key, step in seen.items()}
            watch.reader.scene.read = [torch.tensor(read, device=watch.lens.device)] if read else []
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
        epoch = state.global_step / state.epoch if state.epoch else math.inf
        reader.scene.horizon = min(100.0, epoch / 4)
        reader.scene.scaled = args.fp16
        reader.begin(state.global_step + 1)

    def on_pre_optimizer_step(
        self, args: Args, state: State, control: Control, model: Any = None, **_: Any
    ) -> None:
        self._watching(model).reader.before(state.global_step + 1)

    def on_save(
        self, args: Args, state: State, control: Control, model: Any = None, **_: Any
    ) -> None:
        self._harvest(args, state, control, model)
        scene = self._watching(model).reader.scene
        path = self._memory(args, state)
        if state.is_world_process_zero and (scene.seen or scene.read) and path.parent.is_dir():
            write_atomic(
                path,
                json.dumps(
                    [
                        scene.seen,
                        torch.cat(scene.read).tolist() if scene.read else [],
                        scene.counts.tolist(),
                    ]
                ),
            )

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
        self._harvest(
            args,
            state,
            control,
            model,
            None if control.should_save or control.should_training_stop else step,
        )
        if self._regular(step) or (
            self.every is None and step >= self._next and self._affordable(step)
        ):
            self._measure(args, state, control, model)

    def on_train_end(
        self, args: Args, state: State, control: Control, model: Any = None, **_: Any
    ) -> None:
        self._harvest(args, state, control, model)
        self._measure(args, state, control, model)

    def _harvest(
        self, args: Args, state: State, control: Control, model: Any, before: int | None = None
    ) -> None:
        """Take up what the families read in earlier steps, write and log it, and raise alarms."""
        watch = self._watching(model)
        start = len(self.readings)
        alarms = watch.harvest(before)
        if len(self.readings) == start:
            return
        fresh = self.readings[start:]
        self._append(args, state, fresh)
        self._log(
            control,
            fresh[-1].step,
            {name: value for one in fresh for name, value in numbers_of(one).items()},
        )
        self._raise(alarms, control, agree=True)

    def _regular(self, step: int) -> bool:
        return self.every is not None and step % self.every == 0

    def _affordable(self, step: int) -> bool:
        """Whether another measurement keeps within the share; if not, the step at which it will is
        set, for all processes.
        """
        passed = time.perf_counter() - self._start - self.cost
        one = self.cost / max(len(self.history), 1)
        missing = (self.cost + one) / self.share - passed
        wait = max(0, math.ceil(missing / max(passed, 1e-9) * (step - self._first)))
        wait = agreed(wait)
        self._next = step + wait
        return wait == 0

    def _file(self, args: Args, name: str = "geometry.jsonl") -> Path:
        return Path(args.output_dir or ".") / name

    def _memory(self, args: Args, state: State) -> Path:
        """Where a checkpoint keeps which windows were read lately."""
        return (
            self._file(args, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
            / "headscan_windows.json"
        )

    def _watching(self, model: Any) -> Watch:
        if self._watch is None or unwrapped(model) is not (
            self._watch.learner or self._watch.lens.model
        ):
            self._watch = Watch(
                model,
                self.windows,
                sites=self.sites,
                measures=self.measures,
                alarms=self.rules,
                counts=self.counts,
                families=self.families,
                attention_mask=self.attention_mask,
            )
            watch = self._watch
            watch.history = self.history
            watch.losses = self.losses
            watch.raised = self.raised
            watch.readings = self.readings
        return self._watch

    def _measure(self, args: Args, state: State, control: Control, model: Any) -> None:
        if any(snapshot.step == state.global_step for snapshot in self.history):
            return
        start = time.perf_counter()
        known = len(self.history)
        alarms = self._watching(model).measure(state.global_step)
        self.cost += time.perf_counter() - start
        if len(self.history) > known:
            self._write(args, state)
            self._log(control, state.global_step, numbers_of(self.history[-1], self.measures))
        self._raise(alarms, control)

    def _log(self, control: Control, step: int, numbers: dict[str, float]) -> None:
        if self.trainer is None:
            for tracker in self.trackers:
                tracker.log(step, numbers)
            return
        due = control.should_log  # which a call of the log clears, and with it the step's loss
        handler = self.trainer.callback_handler
        every = handler.callbacks
        # not on the screen
        handler.callbacks = [
            one for one in every if not isinstance(one, PrinterCallback | ProgressCallback)
        ]
        try:
            self.trainer.log(numbers)
        finally:
            handler.callbacks = every
            control.should_log = due

    def _raise(self, alarms: list[Alarm], control: Control, *, agree: bool = False) -> None:
        """Say what was found, and do what is asked; where processes may differ (`agree`), what the
        first one is asked.
        """
        actions: list[Action] = []
        for alarm in alarms:
            asked = self.on_alarm
            action = (
                asked.get(alarm.name)
                if isinstance(asked, Mapping)
                else asked(alarm)
                if callable(asked)
                else asked
            )
            actions.append(checked(action or "warn"))
            log.warning(
                "After step %d (%s, alarm %s): %s",
                alarm.step,
                alarm.code,
                alarm.name,
                alarm.sentence,
            )
            for tracker in self.trackers:
                tracker.alert(alarm)
        worst = max(map(get_args(Action).index, actions), default=0)
        worst = agreed(worst) if agree else worst
        control.should_save |= worst > 0
        control.should_training_stop |= worst > 1

    def _write(self, args: Args, state: State) -> None:
        if state.is_world_process_zero:
            path = self._file(args)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(
                path, "".join(json.dumps(plain(snapshot)) + "\n" for snapshot in self.history)
            )

    def _append(
        self, args: Args, state: State, readings: list[Reading], *, afresh: bool = False
    ) -> None:
        if state.is_world_process_zero and (readings or self._file(args, READINGS).exists()):
            with self._file(args, READINGS).open("w" if afresh else "a", encoding="utf-8") as file:
                file.writelines(json.dumps(plain(reading)) + "\n" for reading in readings)


def checked(action: str) -> Action:
    """What an alarm may do; BadInput for anything else."""
    if action not in get_args(Action):
        raise BadInput(f"An alarm may warn, checkpoint or stop, not {action!r}.")
    return cast(Action, action)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; the last one of a run that was killed may be torn."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def unwrapped(model: Any) -> nn.Module:
    """The model inside of DDP and torch.compile."""
    for wrapper in ("_orig_mod", "module", "_orig_mod"):
        model = getattr(model, wrapper, model)
    inner: nn.Module = model
    return inner
