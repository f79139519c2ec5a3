"""A model under watch, in any training loop: what its states look like now, and whether that is alarming."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from headscan.model import Lens
from headscan.run import BadInput, plain, write_atomic
from headscan.statistics import NonFinite
from headscan.training.learner import Learner
from headscan.training.monitor.alarms import Alarm, AlarmRule, rules_of
from headscan.training.objective import GeometrySnapshot
from headscan.training.trajectory import DEFAULT, gradient_through_head, measure_sites, snapshot_of


class Watch:
    """Measure a model from time to time, and be told when something breaks. For a loop of one's own:

        watch = Watch(model, windows)
        for step, batch in enumerate(batches):
            loss = ...
            for alarm in watch.loss(step, float(loss)) + (watch.measure(step) if step % 100 == 0 else []):
                print(alarm.sentence)

    model: a transformers model; under DDP or fully_shard its forward pass runs in every process, so every process calls.
    windows: int [n, context], token ids to measure on: held out, if they are to mean anything. sites: globs of sites; default
    the residual stream and its ends. measures: of the registry of measures, beside those the alarms need. alarms: rules, by
    names or made with limits of one's own. counts: the training text's token counts [V], by which a headless model is read out
    for its gradient. `history` has a `GeometrySnapshot` a measurement, `losses` what was told of the loss, `raised` the alarms.

    Training is not touched: modes and random states are as before. Cost of a measurement: one forward pass over the windows
    and a Gram matrix [d, d] a site.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=8))
    >>> watch = Watch(model, np.arange(32).reshape(4, 8))
    >>> watch.measure(0), len(watch.history[0].sites)
    ([], 4)
    """

    def __init__(
        self, model: nn.Module, windows: npt.NDArray[np.integer], *, sites: str | Iterable[str] | None = None,
        measures: Iterable[str] = DEFAULT, alarms: str | Iterable[str | AlarmRule] = "*",
        counts: Int[Tensor, " vocabulary"] | None = None,
    ) -> None:  # fmt: skip
        self.learner = model if isinstance(model, Learner) else None
        self.lens = Lens(model if self.learner is None else self.learner.model, name="training")
        self.counts = counts
        self.windows, self.sites, self.rules = windows, sites, rules_of(alarms)
        needed = [rule.quantity for rule in self.rules if rule.quantity not in ("loss", "dead_share")]
        self.measures = tuple(dict.fromkeys([*measures, *needed]))
        self.history: list[GeometrySnapshot] = []
        self.losses: list[float] = []
        self.raised: list[Alarm] = []
        self._silent: dict[str, int] = {}

    def measure(self, step: int) -> list[Alarm]:
        """Measure after `step`; the alarms that this raises. States that are not finite raise `NonFinite`."""
        with torch.random.fork_rng():
            rows = measure_sites(self.lens, self.windows, sites=self.sites, measures=self.measures)
            gradient = gradient_through_head(self.lens.model, self.learner, self.windows, self.counts)
        self.history.append(GeometrySnapshot(step=step, sites=rows, gradient=gradient))
        return [alarm for rule in self.rules if rule.quantity != "loss" for alarm in self._geometry(rule, step)]

    def loss(self, step: int, loss: float) -> list[Alarm]:
        """Take up a loss in nats; the alarms that it raises."""
        self.losses.append(loss)
        found: list[Alarm] = []
        for rule in self.rules:
            if rule.quantity == "loss" and rule.speaks(self.losses):
                found += self._said(rule, step, self.losses, "", [], len(self.losses))
        return found

    def _geometry(self, rule: AlarmRule, step: int) -> list[Alarm]:
        lately = self.history[-rule.memory - 1 :]  # all that the rule looks at, however long the run
        sites = [str(row["site"]) for row in self.history[-1].sites]
        readings = {site: _trajectory(lately, site, rule.quantity) for site in sites}
        measured = {site: rule.change(values) for site, values in readings.items()}
        changes = {site: change for site, change in measured.items() if change is not None and change > rule.limit}
        if not changes:
            return []
        site = max(changes, key=changes.__getitem__)
        return self._said(rule, step, readings[site], site, list(changes), len(self.history))

    def _said(self, rule: AlarmRule, step: int, values: list[float], site: str, sites: list[str], readings: int) -> list[Alarm]:
        """The alarm, unless its rule spoke so lately that it still compares with what was before that."""
        if readings <= self._silent.get(rule.name, -1):
            return []
        self._silent[rule.name] = readings + rule.memory
        before, now = rule.before(values), values[-1]
        more = f" and {len(sites) - 1} other site{'s' * (len(sites) > 2)}" if len(sites) > 1 else ""
        alarm = Alarm(
            name=rule.name, step=step, site=site or None, sites=sites, before=before, value=now,
            sentence=rule.say(site + more, before, now),
        )  # fmt: skip
        self.raised.append(alarm)
        return [alarm]


def _trajectory(history: list[GeometrySnapshot], site: str, quantity: str) -> list[float]:
    values = [row.number(quantity) for snapshot in history for row in snapshot.sites if row["site"] == site]
    return [float("nan") if value is None else value for value in values]


log = logging.getLogger(__name__)
Action = Literal["warn", "checkpoint", "stop"]
SETTLED = 10  # steps after which the time of one is known
WINDOWS = 24  # that are taken of the Trainer's own held-out data


class Monitor(TrainerCallback):
    """The shape of every site as a model trains, in the Trainer's own log, with alarms:

        trainer.add_callback(headscan.training.Monitor(trainer))

    trainer: whose log (TensorBoard, W&B, MLflow, ... follow it) gets the numbers, as geometry/SITE/MEASURE, and whose
    eval_dataset is measured on where no `windows` are given. Without it the numbers go to `history` and geometry.jsonl.
    windows: int [n, context], token ids to measure on. every: steps between measurements. Default: so many that measuring takes
    at most `share` of the time of training. sites, measures, counts: as `Watch` takes them. alarms: names of rules or rules; ""
    for none. on_alarm: "warn" (a warning in the log), "checkpoint" (and the Trainer saves), "stop" (and it stops), for all or
    by the rule's name: {"loss": "stop"}.

    It measures before the first step and after the last; `history` is a list of `GeometrySnapshot`, which also goes line by line
    to geometry.jsonl in the run's folder. Every process measures (the forward pass of a sharded model needs all of them) and
    the first one writes. A run that was interrupted and resumed measures with `every` at the steps of one that was not.
    """

    def __init__(
        self, trainer: Trainer | None = None, windows: npt.NDArray[np.integer] | None = None, *, every: int | None = None,
        share: float = 0.02, sites: str | None = None, measures: Iterable[str] = DEFAULT,
        alarms: str | Iterable[str | AlarmRule] = "*", on_alarm: Action | Mapping[str, Action] = "warn",
        counts: Int[Tensor, " vocabulary"] | None = None,
    ) -> None:  # fmt: skip
        if every is not None and every < 1:
            raise BadInput(f"The geometry is measured every 1 step or more, not every {every}.")
        if not 0 < share <= 1:
            raise BadInput(f"The share of the time that measuring may take is above 0 and at most 1, not {share}.")
        for action in [on_alarm] if isinstance(on_alarm, str) else on_alarm.values():
            if action not in get_args(Action):
                raise BadInput(f"An alarm may warn, checkpoint or stop, not {action!r}.")
        if windows is None:
            if trainer is None or trainer.eval_dataset is None:
                raise BadInput("What shall be measured? Give windows, or a trainer that has an eval_dataset.")
            windows = _windows(trainer)
        self.trainer, self.windows, self.every, self.share = trainer, windows, every, share
        self.sites, self.measures, self.on_alarm, self.counts = sites, tuple(measures), on_alarm, counts
        self.rules = rules_of(alarms)
        self.history: list[GeometrySnapshot] = []
        self.losses: list[float] = []
        self.raised: list[Alarm] = []
        self.cost = 0.0
        self._watch: Watch | None = None
        self._next = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        self.losses[:] = [float(entry["loss"]) for entry in state.log_history if "loss" in entry]
        path = self._file(args)
        if state.global_step and path.exists():
            lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
            snapshots = [snapshot for line in lines if (snapshot := snapshot_of(line)).step <= state.global_step]
            # What was measured where a run was stopped early belongs to that end, and this run goes past it.
            self.history[:] = [one for one in snapshots if self._regular(one.step) or one.step == state.max_steps]
        self._start, self._first = time.perf_counter(), state.global_step
        self._next = state.global_step + SETTLED
        self._write(args, state)
        if not state.global_step or self._regular(state.global_step):
            self._measure(args, state, control, model)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl,
        logs: dict[str, float] | None = None, model: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        if logs and "loss" in logs:
            self._raise(self._watching(model).loss(state.global_step, float(logs["loss"])), control)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        step = state.global_step
        if self._regular(step) or (self.every is None and step >= self._next and self._affordable(step)):
            self._measure(args, state, control, model)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        self._measure(args, state, control, model)

    def _regular(self, step: int) -> bool:
        return self.every is not None and step % self.every == 0

    def _affordable(self, step: int) -> bool:
        """Whether another measurement keeps within the share; if not, the step at which it will is set, for all processes."""
        passed = time.perf_counter() - self._start - self.cost
        one = self.cost / max(len(self.history), 1)
        missing = (self.cost + one) / self.share - passed
        wait = max(0, math.ceil(missing / max(passed, 1e-9) * (step - self._first)))
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            told = torch.tensor([wait], device=_device_of_messages())
            torch.distributed.broadcast(told, 0)
            wait = int(told)
        self._next = step + wait
        return wait == 0

    def _file(self, args: TrainingArguments) -> Path:
        return Path(args.output_dir or ".") / "geometry.jsonl"

    def _watching(self, model: Any) -> Watch:
        inner: Any = getattr(model, "module", model)  # DDP
        if self._watch is None or inner is not (self._watch.learner or self._watch.lens.model):
            self._watch = Watch(
                inner, self.windows, sites=self.sites, measures=self.measures, alarms=self.rules, counts=self.counts
            )
            self._watch.history, self._watch.losses, self._watch.raised = self.history, self.losses, self.raised
        return self._watch

    def _measure(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any) -> None:
        if any(snapshot.step == state.global_step for snapshot in self.history):
            return
        start = time.perf_counter()
        try:
            alarms = self._watching(model).measure(state.global_step)
        except NonFinite:
            # The loss will tell, where somebody looks at it; a measurement alone does not end anyone's run.
            log.warning("The geometry after step %d is left out: the states are not finite.", state.global_step)
            return
        finally:
            self.cost += time.perf_counter() - start
        self._write(args, state)
        if self.trainer is not None:
            due = control.should_log  # which a call of the log clears, and with it the step's loss
            self.trainer.log(_flat(self.history[-1], self.measures))
            control.should_log = due
        self._raise(alarms, control)

    def _raise(self, alarms: list[Alarm], control: TrainerControl) -> None:
        for alarm in alarms:
            action = self.on_alarm if isinstance(self.on_alarm, str) else self.on_alarm.get(alarm.name, "warn")
            log.warning("After step %d (alarm %s): %s", alarm.step, alarm.name, alarm.sentence)
            control.should_save |= action != "warn"
            control.should_training_stop |= action == "stop"

    def _write(self, args: TrainingArguments, state: TrainerState) -> None:
        if state.is_world_process_zero:
            path = self._file(args)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, "".join(json.dumps(plain(snapshot)) + "\n" for snapshot in self.history))


def _flat(snapshot: GeometrySnapshot, measures: Iterable[str]) -> dict[str, float]:
    """The numbers of a measurement by the names that the log gives them."""
    return {
        f"geometry/{row['site']}/{name}": value
        for row in snapshot.sites
        for name in measures
        if (value := row.number(name)) is not None
    }


def _windows(trainer: Trainer) -> npt.NDArray[np.integer]:
    """The first windows of the held-out data, cut to the shortest of them."""
    data: Any = trainer.eval_dataset
    rows = [np.asarray(data[place]["input_ids"]).ravel() for place in range(min(WINDOWS, len(data)))]
    length = min(map(len, rows), default=0)
    if length < 2:
        raise BadInput("The Trainer's eval_dataset has no windows of two tokens or more in 'input_ids': give windows.")
    return np.stack([row[:length] for row in rows])


def _device_of_messages() -> torch.device:
    return torch.device("cpu" if torch.distributed.get_backend() == "gloo" else torch.accelerator.current_accelerator() or "cpu")
