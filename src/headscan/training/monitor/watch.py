"""A model under watch, in any training loop: what its states look like now, and whether that is alarming."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor, nn

from headscan.model import Lens
from headscan.run import Row
from headscan.training.geometry import DEFAULT, gradient_through_head, measure_sites
from headscan.training.learner import Learner
from headscan.training.monitor.alarm import Alarm, AlarmRule, rules_of
from headscan.training.records import GeometryMoment

__all__ = ["Watch"]


class Watch:
    """Measure a model from time to time, and be told when something breaks. For a loop of one's own:

        watch = Watch(model, windows)
        for step, batch in enumerate(batches):
            loss = ...
            for alarm in watch.loss(step, float(loss)) + (watch.measure(step) if step % 100 == 0 else []):
                print(alarm.sentence)

    Args:
        model: a transformers model; under DDP or fully_shard its forward pass runs in every process, so every process calls.
        windows: int [n, context], token ids to measure on: held out, if they are to mean anything.
        sites: globs of sites; default the residual stream and its ends.
        measures: of the registry of measures, beside those the alarms need.
        alarms: rules, by names or made with limits of one's own.
        counts: the training text's token counts [V], by which a headless model is read out for its gradient.

    Attributes:
        history: what was measured, a `GeometryMoment` each time.
        losses: what was told of the loss.
        raised: the alarms.

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
        self.history: list[GeometryMoment] = []
        self.losses: list[float] = []
        self.raised: list[Alarm] = []
        self._silent: dict[str, int] = {}

    def measure(self, step: int) -> list[Alarm]:
        """Measure after `step`; the alarms that this raises. States that are not finite raise `NonFinite`."""
        with torch.random.fork_rng():
            rows = measure_sites(self.lens, self.windows, sites=self.sites, measures=self.measures)
            gradient = gradient_through_head(self.lens.model, self.learner, self.windows, self.counts)
        self.history.append(GeometryMoment(step=step, sites=rows, gradient=gradient))
        return [alarm for rule in self.rules if rule.quantity != "loss" for alarm in self._geometry(rule, step)]

    def loss(self, step: int, loss: float) -> list[Alarm]:
        """Take up a loss in nats; the alarms that it raises."""
        self.losses.append(loss)
        found: list[Alarm] = []
        for rule in self.rules:
            if rule.quantity == "loss" and rule.speaks(self.losses):
                before = rule.before(self.losses)
                sentence = rule.say("", before, loss)
                alarm = Alarm(name=rule.name, step=step, site=None, before=before, value=loss, sentence=sentence)
                found += self._said(rule, alarm, len(self.losses))
        return found

    def _geometry(self, rule: AlarmRule, step: int) -> list[Alarm]:
        lately = self.history[-rule.memory - 1 :]  # all that the rule looks at, however long the run
        changes: dict[str, float] = {}
        for row in self.history[-1].sites:
            site = str(row["site"])
            change = rule.change(_course(lately, site, rule.quantity))
            if change is not None and change > rule.limit:
                changes[site] = change
        if not changes:
            return []
        site = max(changes, key=changes.__getitem__)
        values = _course(lately, site, rule.quantity)
        before = rule.before(values)
        more = f" and {len(changes) - 1} other site{'s' * (len(changes) > 2)}" if len(changes) > 1 else ""
        alarm = Alarm(
            name=rule.name, step=step, site=site, sites=list(changes), before=before, value=values[-1],
            sentence=rule.say(site + more, before, values[-1]),
        )  # fmt: skip
        return self._said(rule, alarm, len(self.history))

    def _said(self, rule: AlarmRule, alarm: Alarm, readings: int) -> list[Alarm]:
        """The alarm, unless its rule spoke so lately that it still compares with what was before that."""
        if readings <= self._silent.get(rule.name, -1):
            return []
        self._silent[rule.name] = readings + rule.memory
        self.raised.append(alarm)
        return [alarm]


def _course(history: list[GeometryMoment], site: str, quantity: str) -> list[float]:
    """A quantity of a site over time, as far as it was measured."""
    rows: list[Row] = [row for moment in history for row in moment.sites if row["site"] == site]
    return [value if (value := row.number(quantity)) is not None else float("nan") for row in rows]
