"""A slice that runs with another embedding table than its answers are decoded with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headscan.claims.experiment import EXPERIMENTS, PROMPTS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import share_of
from headscan.claims.protocol import StandIn
from headscan.claims.stand_ins import about, lens_of, prompts
from headscan.inversion import Descent, descend
from headscan.model.slicing import Slice

__all__ = ["DecodedWith"]


@EXPERIMENTS.register("decoded-with")
@dataclass(frozen=True, kw_only=True)
class DecodedWith(Experiment):
    """The specimen's first block on an untrained table: decoded with the trained one (as published), and with its own."""

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of tokens right when decoded with the table that the slice did not run with",
        test="Wilson's interval on the effective number of tokens, clustered by prompt and seed",
        scope="one trained stand-in, five untrained tables",
    )
    controlled: ClassVar[bool] = True

    def stand_ins(self) -> tuple[StandIn, ...]:
        """The trained specimen."""
        return (about("specimen"),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        other, same = [], []
        lens = lens_of("specimen")
        for k, own in enumerate(own_seeds(seed)):
            ready = Slice(embedding=f"random:{own}").on(lens)
            ids = prompts("specimen", own, PROMPTS, 6)
            target, setting = ready.run(ids), Descent(steps=150, check_every=0, seed=k)
            wrong = descend(ready, target, 6, setting, decode_with=lens.input_embeddings.detach())
            other.append((wrong.tokens == ids).double().numpy())
            same.append((descend(ready, target, 6, setting).tokens == ids).double().numpy())
        return ExperimentOutcome(
            effect=share_of("tokens right, decoded with the model's table", other, chance=1 / lens.vocabulary_size),
            control=share_of("decoded with the table that ran", same, chance=1 / lens.vocabulary_size),
            cause="the source decodes with another table than it ran with",
            models=(lens.name,),
        )
