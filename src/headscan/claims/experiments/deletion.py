"""Deletion curves of attribution methods: how fast the prediction goes when tokens go in a method's order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

from headscan.attribution import attribute
from headscan.claims.experiment import EXPERIMENTS, SEEDS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import mean_of
from headscan.claims.protocol import Power, StandIn
from headscan.claims.stand_ins import about, lens_of, prompts

__all__ = ["Deletion"]

PROMPTS, LENGTH = 6, 7
METHODS = ("gradient-x-input", "occlusion", "combined")


@EXPERIMENTS.register("deletion")
@dataclass(frozen=True, kw_only=True)
class Deletion(Experiment):
    """The area under the deletion curve of `method` less that of the best of `against` ("random" is a random order); below
    zero, the method's order takes the prediction away faster.
    """

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="area under the method's deletion curve less the least of those it is held against, a training seed",
        test="Student's interval over training seeds, the prompts of a seed averaged",
        scope="small models of a made-up language; tokens are replaced by the mean embedding",
        range=(-1.0, 1.0),
    )
    power: ClassVar[Power] = Power(SEEDS, 200)

    method: str = "gradient-x-input"
    against: tuple[str, ...] = ("random",)
    model: str = "taught"

    def __post_init__(self) -> None:
        object.__setattr__(self, "against", tuple(self.against))

    def on(self, model: str) -> Self | None:
        """One model, whose prompts are what differs from seed to seed."""
        return replace(self, model=model)

    def stand_ins(self) -> tuple[StandIn, ...]:
        """Models that are trained with every seed."""
        return (about(self.model),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        areas = _areas(self.model, seed)
        least = [min(areas[one][k] for one in self.against) for k in range(SEEDS)]
        tokens = SEEDS * PROMPTS * LENGTH
        apart = [mine - other for mine, other in zip(areas[self.method], least, strict=True)]
        name = f"deletion area of {self.method} less {' or '.join(self.against)}"
        return ExperimentOutcome(
            effect=mean_of(name, apart, unit="probability", tokens=tokens, prompts=SEEDS * PROMPTS, chance=0.0),
            beside=tuple(
                mean_of(
                    f"deletion area of {one}", areas[one], unit="probability", tokens=tokens, prompts=SEEDS * PROMPTS
                )
                for one in (self.method, *self.against)
            ),
            models=tuple(dict.fromkeys(lens_of(self.model, own).name for own in own_seeds(seed))),
        )


@lru_cache(maxsize=4)
def _areas(model: str, seed: int) -> dict[str, list[float]]:
    """By method, and for random orders, a mean area a training seed."""
    found: dict[str, list[float]] = {name: [] for name in (*METHODS, "random")}
    for own in own_seeds(seed):
        lens = lens_of(model, own)
        sums = dict.fromkeys(found, 0.0)
        for ids in prompts(model, own, PROMPTS, LENGTH):
            for method in METHODS:
                judged = attribute(lens, ids.tolist(), method=method, signed=False, substitute="mean").faithfulness
                assert judged is not None
                sums[method] += judged.deletion.area / PROMPTS
                if method == METHODS[0]:
                    sums["random"] += judged.random.deletion / PROMPTS
        for name, value in sums.items():
            found[name].append(value)
    return found
