"""The difference between two recoveries that differ in one thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from headscan.claims.experiment import EXPERIMENTS, Experiment, ExperimentOutcome, ExperimentWords
from headscan.claims.measurement import difference_of
from headscan.claims.protocol import StandIn

__all__ = ["Contrast"]


@EXPERIMENTS.register("contrast")
@dataclass(frozen=True, kw_only=True)
class Contrast(Experiment):
    """The share that `high` finds less the share that `low` finds, both experiments of one kind, which a row names as `of`
    ("recovered" by default); what they have in common it writes as `base`."""

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="difference of two shares of tokens found by descent",
        test="Newcombe's interval of a difference, from two clustered score intervals, as if unpaired",
        scope="the stand-ins, their prompts and these two descents",
        range=(-1.0, 1.0),
    )

    high: Experiment
    low: Experiment

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """From `of`, `base`, `high` and `low`."""
        kind, base = EXPERIMENTS[options.get("of", "recovered")], options.get("base", {})
        return cls(high=kind.of({**base, **options["high"]}), low=kind.of({**base, **options["low"]}))

    def closer(self) -> Self | None:
        """Both closer."""
        high, low = self.high.closer(), self.low.closer()
        return None if high is None or low is None else replace(self, high=high, low=low)

    def stand_ins(self) -> tuple[StandIn, ...]:
        """Those of both."""
        return tuple(dict.fromkeys((*self.high.stand_ins(), *self.low.stand_ins())))

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        high, low = self.high.observe(seed), self.low.observe(seed)
        assert high.effect is not None
        assert low.effect is not None
        beside = [high.effect, low.effect, *(one.control for one in (high, low) if one.control is not None)]
        return ExperimentOutcome(
            effect=difference_of(
                f"{_name(self.high, self.low)} less {_name(self.low, self.high)}", high.effect, low.effect
            ),
            beside=tuple(beside),
            models=tuple(dict.fromkeys((*high.models, *low.models))),
        )


def _name(one: Experiment, other: Experiment) -> str:
    """What tells one from the other, in words."""
    names = [name for name in one.__dataclass_fields__ if getattr(one, name) != getattr(other, name)]
    return "share with " + ", ".join(f"{name.replace('_', ' ')} {getattr(one, name)}" for name in names)
