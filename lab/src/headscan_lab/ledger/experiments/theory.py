"""The claims on next-token prediction: numbers of random instances, by the name of a check."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np

from headscan.run import BadInput
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    Power,
    StandIn,
)
from headscan_lab.ledger.measurement import Measurement, exactly, mean_of
from headscan_lab.ledger.named_models import RANDOM_TWIN
from headscan_lab.ledger.proxies import prompts
from headscan_lab.theory.checks import FORMULA_CHECKS, Check, CheckNumbers
from headscan_lab.theory.training_checks import TRAINING_CHECKS

CHECKS: dict[str, Check] = {check.name: check for check in (*FORMULA_CHECKS, *TRAINING_CHECKS)}
SEEDS = 5
TOKENS = 2000  # of a piece of text
TRAINED = ("transformer_turns", "mlp_stays_behind", "short_contexts_first")
"""The checks that train a network for minutes."""


@EXPERIMENTS.register("next-token-theory")
class NextTokenTheory(Experiment):
    """A number of a check of `headscan_lab.theory`, over random instances.

    `check`: a function of `checks` or `training_checks`; `number`: which of its numbers counts, the
    first by default. `worst`: the largest of the five instances counts, exactly (theorems and
    formulas); else their mean with its interval (what training does). `control` is the name of the
    check's number that the effect is held against, `cause` what it would show. `tokens_of`: the
    instances are five pieces of the shipped stories in a model's tokens; of it only the tokenizer
    is used.
    """

    words = ExperimentWords(
        quantity="the first number of the check, an instance a seed",
        test="the worst of five instances where a formula is checked; Student's interval over "
        "five where something is trained",
        scope="random instances of some ten tokens, and stories of a small grammar",
        range=(-1e6, 1e6),
    )
    power = Power(SEEDS, 0)

    check: str
    number: str = ""
    worst: bool = True
    control: str = ""
    cause: str = ""
    tokens_of: str = ""
    instances: int = SEEDS

    controlled = True

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise BadInput(f"There is no check {self.check!r}; there are: {', '.join(CHECKS)}.")

    def on(self, model: str) -> Self | None:
        if not CHECKS[self.check].reads_text or model.startswith(RANDOM_TWIN):
            return None
        return replace(self, tokens_of=model)

    def closer(self) -> Self | None:
        """Return the check on four times the instances.

        It is None for formulas, which are exact, and for checks that train networks for minutes.
        """
        if self.worst or self.instances != SEEDS or self.check in TRAINED:
            return None
        return replace(self, instances=4 * SEEDS)

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (
            StandIn(
                "five random instances of some ten tokens",
                "The statement is about any supports and soft labels.",
            ),
        )

    def observe(self, seed: int) -> ExperimentOutcome:
        try:
            instances = [self._instance(instance_seed) for instance_seed in self._seeds(seed)]
        except BadInput as error:
            return ExperimentOutcome(effect=None, note=str(error))
        join = _worst if self.worst else _mean
        measurements = {}
        for name in instances[0]:
            values = [numbers[name] for numbers in instances]
            if np.isfinite(values).all():
                measurements[name] = join(name, values)
        effect_name = self.number or next(iter(instances[0]))
        effect = measurements.pop(effect_name, None)
        control = measurements.pop(self.control, None)
        if effect is None:
            return ExperimentOutcome(
                effect=None, note="What the claim rests on is not defined on all five instances."
            )
        return ExperimentOutcome(
            effect=effect,
            control=control,
            cause=self.cause,
            beside=tuple(measurements.values()),
            models=(),
        )

    def _seeds(self, seed: int) -> list[int]:
        """Return the seed of each instance; those of a second look begin elsewhere."""
        first_look = [SEEDS * seed + number for number in range(SEEDS)]
        second_look = [1000 * (seed + 1) + number for number in range(SEEDS, self.instances)]
        return (first_look + second_look)[: self.instances]

    def _instance(self, seed: int) -> CheckNumbers:
        """Return the numbers of the check on one instance."""
        check: Callable[..., CheckNumbers] = CHECKS[self.check].function
        if not self.tokens_of:
            return check(seed)
        (text,) = prompts(self.tokens_of, seed, 1, TOKENS).tolist()
        return check(seed, tuple(text))


def _mean(name: str, values: list[float]) -> Measurement:
    angular = re.search("^(mean |least )?cosine|similarity|correlation", name) is not None
    bounded = angular and " less " not in name
    bounds = (-1.0, 1.0) if bounded else (-np.inf, np.inf)
    return mean_of(name, values, unit="", bounds=bounds)


def _worst(name: str, values: list[float]) -> Measurement:
    return exactly(f"{name}, the largest of {len(values)}", max(values), unit="", seeds=len(values))
