"""The claims on next-token prediction: a number of each of five random instances, by the name of
what it checks.
"""

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
from headscan_lab.ledger.stand_ins import TWIN, prompts
from headscan_lab.theory import checks
from headscan_lab.theory.checks import Found

SEEDS = 5
TOKENS = 2000
CHECKS: dict[str, Callable[..., Found]] = {
    name: check
    for name, check in vars(checks).items()
    if getattr(check, "__annotations__", {}).items() >= {"seed": int, "return": Found}.items()
}
"""The functions of headscan_lab.theory.checks that take a seed, and a text where that can be the
instance.
"""
TRAINED = ("transformer_turns", "mlp_stays_behind", "short_contexts_first")


@EXPERIMENTS.register("next-token-theory")
class NextTokenTheory(Experiment):
    """`check`: one of the functions of `headscan_lab.theory.checks`; `number`: which of its numbers
    counts, the first by default. `worst`: the largest of the five instances counts, exactly
    (theorems and formulas); else their mean with its interval (what training does). `control` is
    the name of the check's number that the effect is held against, `cause` what it would show.
    `tokens_of`: the instances are five pieces of the shipped stories in a model's tokens; of it
    only the tokenizer is used.
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

    def on(self, model: str) -> Self | None:
        reads = "text" in CHECKS[self.check].__annotations__ and not model.startswith(TWIN)
        return replace(self, tokens_of=model) if reads else None

    def closer(self) -> Self | None:
        """Formulas are exact, and three checks train transformers for minutes."""
        again = not self.worst and self.instances == SEEDS and self.check not in TRAINED
        return replace(self, instances=4 * SEEDS) if again else None

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise BadInput(f"There is no check {self.check!r}; there are: {', '.join(CHECKS)}.")

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (
            StandIn(
                "five random instances of some ten tokens",
                "The statement is about any supports and soft labels.",
            ),
        )

    def observe(self, seed: int) -> ExperimentOutcome:
        try:
            seeds = [
                SEEDS * seed + k if k < SEEDS else 1000 * (seed + 1) + k
                for k in range(self.instances)
            ]
            texts = [
                prompts(self.tokens_of, own, 1, TOKENS).tolist() if self.tokens_of else []
                for own in seeds
            ]
            found = [
                CHECKS[self.check](own, *map(tuple, text))
                for own, text in zip(seeds, texts, strict=True)
            ]
        except BadInput as error:
            return ExperimentOutcome(effect=None, note=str(error))
        join = _worst if self.worst else _mean
        columns = {name: [one[name] for one in found] for name in found[0]}
        made = {
            name: join(name, values)
            for name, values in columns.items()
            if np.isfinite(values).all()
        }
        effect = made.pop(self.number or next(iter(columns)), None)
        control = made.pop(self.control, None)
        if effect is None:
            return ExperimentOutcome(
                effect=None, note="What the claim rests on is not defined on all five instances."
            )
        return ExperimentOutcome(
            effect=effect, control=control, cause=self.cause, beside=tuple(made.values()), models=()
        )


def _mean(name: str, values: list[float]) -> Measurement:
    angular = (
        re.search("^(mean |least )?cosine|similarity|correlation", name) and " less " not in name
    )
    return mean_of(name, values, unit="", bounds=(-1.0, 1.0) if angular else (-np.inf, np.inf))


def _worst(name: str, values: list[float]) -> Measurement:
    return exactly(f"{name}, the largest of {len(values)}", max(values), unit="", seeds=len(values))
