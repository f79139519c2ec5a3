"""A model under watch, in any training loop: measurements of its states, and alarms."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt
import torch
from jaxtyping import Int
from numpy import integer
from torch import Tensor, nn

from headscan.model import Lens
from headscan.run import BadInput
from headscan.statistics import NonFinite
from headscan.training.learner import Learner
from headscan.training.monitor.alarms import Alarm, AlarmRule, NotFinite, rules_of
from headscan.training.monitor.families import Family
from headscan.training.monitor.readings import Reading, Readings, numbers_of
from headscan.training.monitor.trackers import Tracker, trackers_of
from headscan.training.monitor.windows import PaddedWindows
from headscan.training.records import GeometrySnapshot
from headscan.training.trajectory import DEFAULT, gradient_through_head, measure_sites

log = logging.getLogger(__name__)

LEAST_SILENCE = 4
"""Readings for which a rule is silent after an alarm, at least."""

Numbers = Mapping[str, Mapping[str, float]]
"""Numbers by quantity, and by the site or block where they were read."""


class Watch:
    """Measure a model as it trains, and raise alarms when something breaks. In a training loop:

        watch = Watch(model, windows)
        for step, batch in enumerate(batches, 1):
            with watch.step(step, optimizer):
                loss = ...
                loss.backward()
                optimizer.step()
            watch.loss(step, loss.item())
            if step % 100 == 0:
                watch.measure(step)
        for alarm in watch.raised: print(alarm.step, alarm.sentence)

    model: a transformers model; under DDP or fully_shard every process calls. windows: int [n,
    context], token ids to measure the geometry on: held out, if they are to mean anything; None
    measures none. attention_mask: [n, context], 1 for tokens and 0 for padding, whose states are in
    no number; default no padding. sites: globs of sites; default the residual stream and its ends.
    measures: of the registry of measures, beside those the alarms need. alarms: rules, by names or
    made with other limits. families: what is read of the steps themselves (`FAMILIES`), by globs or
    NAME:every=N, "" for none. counts: the training text's token counts [V], by which a headless
    model is read out for its gradient. to: trackers (`TRACKERS`) that get numbers and alarms.
    `history` has a `GeometrySnapshot` a measurement, `readings` a `Reading` a family and step,
    `losses` the losses, `raised` the alarms.

    Training is not touched: modes and random states are as before. Cost of a measurement: one
    forward pass over the windows and a Gram matrix [d, d] a site; of the families:
    benchmarks/the_monitor_takes_at_most_two_percent_of_a_step.py.

    >>> import numpy as np
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=8)
    >>> watch = Watch(GPT2LMHeadModel(config), np.arange(32).reshape(4, 8))
    >>> watch.measure(0), len(watch.history[0].sites)
    ([], 4)
    """

    def __init__(
        self,
        model: nn.Module,
        windows: npt.NDArray[integer] | None,
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
        self.measures = tuple(dict.fromkeys([*measures, *_measures_of(self.rules)]))
        self.history: list[GeometrySnapshot] = []
        self.readings: list[Reading] = []
        self.losses: list[float] = []
        self.raised: list[Alarm] = []
        self._series: dict[tuple[str, str], list[float]] = {}
        self._silent: dict[str, int] = {}

    def measure(self, step: int) -> list[Alarm]:
        """Measure after `step`, and return the alarms that this raises.

        States that are not finite are HS517 and leave no measurement.
        """
        if self.windows is None:
            raise BadInput("There is nothing to measure on: give windows.")
        ids = self.windows.ids
        mask = self.windows.mask
        device = self.lens.device
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                rows = measure_sites(
                    self.lens, ids, sites=self.sites, measures=self.measures, attention_mask=mask
                )
                gradient = gradient_through_head(
                    self.lens.model, self.learner, ids, self.counts, mask
                )
        except NonFinite as error:
            log.warning("The geometry after step %d is left out: the states are not finite.", step)
            return self._alert(self.broken(step, error.site or "states"))
        snapshot = GeometrySnapshot(step=step, sites=rows, gradient=gradient)
        return self._track(snapshot, self.take(snapshot))

    @contextmanager
    def step(self, step: int, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Read step number `step` (forward, backward and the optimizer's) by the families on their
        clocks.
        """

        def read_gradients(*_: Any) -> None:
            self.reader.scene.know(optimizer)
            self.reader.before(step)

        self.reader.begin(step)
        handle = optimizer.register_step_pre_hook(read_gradients)
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
        """Judge what was read in steps before this one (None: in all), and return the alarms that
        this raises.
        """
        alarms = []
        for reading in self.reader.harvest(before):
            alarms += self._track(reading, self.take(reading))
        return alarms

    def loss(self, step: int, loss: float) -> list[Alarm]:
        """Judge a loss in nats, and return the alarms that it raises."""
        self.losses.append(loss)
        broken = float(not math.isfinite(loss))
        alarms = self._judge(step, {"loss": {"": loss}, NotFinite.quantity: {"": broken}})
        return self._alert(alarms)

    def broken(self, step: int, where: str) -> list[Alarm]:
        """Judge that numbers at a site are NaN or infinite, and return the alarms of this."""
        return self._judge(step, {NotFinite.quantity: {where: 1.0}})

    def take(self, record: GeometrySnapshot | Reading) -> list[Alarm]:
        """Store and judge a measurement or a reading, made now or earlier, and return the alarms
        that it raises.
        """
        if isinstance(record, Reading):
            self.readings.append(record)
            return self._judge(record.step, _reading_numbers(record))
        numbers = self._snapshot_numbers(record)
        self.history.append(record)
        return self._judge(record.step, numbers)

    def _snapshot_numbers(self, snapshot: GeometrySnapshot) -> dict[str, dict[str, float]]:
        """Return the numbers of a measurement that the rules read."""
        numbers: dict[str, dict[str, float]] = {}
        for quantity in {rule.quantity for rule in self.rules} - {NotFinite.quantity}:
            numbers[quantity] = {}
            for row in snapshot.sites:
                if quantity in row:
                    value = row.number(quantity)
                    numbers[quantity][row.text("site")] = math.nan if value is None else value
        return numbers

    def _track(self, record: GeometrySnapshot | Reading, alarms: list[Alarm]) -> list[Alarm]:
        """Report a record and the alarms that it raised to the trackers."""
        for tracker in self.trackers:
            tracker.log(record.step, numbers_of(record, self.measures))
            for alarm in alarms:
                tracker.alert(alarm)
        return alarms

    def _alert(self, alarms: list[Alarm]) -> list[Alarm]:
        """Report alarms to the trackers."""
        for tracker in self.trackers:
            for alarm in alarms:
                tracker.alert(alarm)
        return alarms

    def _judge(self, step: int, numbers: Numbers) -> list[Alarm]:
        """Return the alarms that the rules raise for the numbers of a step."""
        alarms = []
        for rule in self.rules:
            if rule.last_step is not None and step > rule.last_step:
                continue
            values = numbers.get(rule.quantity, {})
            changes = self._changes(rule, values)
            # A rule that has raised an alarm is silent for as many readings: it compares with what
            # was before.
            silent = self._silent.get(rule.name, 0)
            if values:
                self._silent[rule.name] = max(0, silent - 1)
            if changes and not silent:
                self._silent[rule.name] = max(rule.memory, LEAST_SILENCE)
                alarms.append(self._alarm(rule, step, changes))
        self.raised += alarms
        return alarms

    def _changes(self, rule: AlarmRule, values: Mapping[str, float]) -> dict[str, float]:
        """Add the values of a step to a rule's series, and return the changes above its limit."""
        changes = {}
        for where, value in values.items():
            series = self._series.setdefault((rule.name, where), [])
            series.append(value)
            change = rule.change(series)
            if change is not None and change > rule.limit:
                changes[where] = change
            del series[: -rule.memory - 1]
        return changes

    def _alarm(self, rule: AlarmRule, step: int, changes: dict[str, float]) -> Alarm:
        where = max(changes, key=changes.__getitem__)
        values = self._series[rule.name, where]
        before = rule.before(values)
        now = values[-1]
        label = where
        if len(changes) == 2:
            label += " and 1 other site"
        elif len(changes) > 2:
            label += f" and {len(changes) - 1} other sites"
        return Alarm(
            name=rule.name,
            code=rule.code,
            step=step,
            site=where or None,
            sites=[site for site in changes if site],
            before=before if math.isfinite(before) else None,
            value=now if math.isfinite(now) else None,
            sentence=rule.say(label, before, now),
        )


def _measures_of(rules: Iterable[AlarmRule]) -> list[str]:
    """Return the measures of sites that the rules read."""
    quantities = [rule.quantity for rule in rules]
    return [
        quantity
        for quantity in quantities
        if quantity not in ("loss", "dead_share") and "/" not in quantity
    ]


def _reading_numbers(reading: Reading) -> dict[str, dict[str, float]]:
    """Return the numbers of a reading, and a mark for each that is not finite."""
    numbers: dict[str, dict[str, float]] = {}
    for name, value in reading.values.items():
        where, _, number = name.rpartition("/")
        numbers.setdefault(f"{reading.family}/{number}", {})[where] = value
        if not math.isfinite(value):
            numbers.setdefault(NotFinite.quantity, {})[where] = 1.0
    return numbers


def unwrapped(model: Any) -> nn.Module:
    """Return the model inside of DDP and torch.compile."""
    for wrapper in ("_orig_mod", "module", "_orig_mod"):
        model = getattr(model, wrapper, model)
    inner: nn.Module = model
    return inner
