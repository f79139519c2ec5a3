"""Tokens inverted one at a time, each without the tokens before it, as published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from headscan.claims.experiment import EXPERIMENTS, PROMPTS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import share_of
from headscan.claims.protocol import StandIn
from headscan.claims.stand_ins import about, lens_of, prompts
from headscan.inversion import Descent, descend
from headscan.model.slicing import Slice

__all__ = ["Alone"]

LENGTH = 6


@EXPERIMENTS.register("alone")
@dataclass(frozen=True, kw_only=True)
class Alone(Experiment):
    """Each output descended to by one vector without a prefix; the control commits the prefix found so far."""

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of tokens found one after another without their prefix",
        test="Wilson's interval on the effective number of tokens, clustered by prompt and seed",
        scope="random weights, Adam",
    )
    controlled: ClassVar[bool] = True

    def stand_ins(self) -> tuple[StandIn, ...]:
        """Random weights."""
        return (about("gpt2"),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        bare, prefixed, names = [], [], []
        for own in own_seeds(seed):
            ready = Slice().on(lens_of("gpt2", own))
            ids = prompts("gpt2", own, PROMPTS, LENGTH)
            target, setting = ready.run(ids), Descent(steps=150, seed=own)
            tokens = [descend(ready, target[:, t : t + 1], 1, setting).tokens for t in range(LENGTH)]
            bare.append((torch.cat(tokens, 1) == ids).double().numpy())
            after = descend(ready, target, LENGTH, Descent(steps=150, seed=own, sequential=True)).tokens
            prefixed.append((after == ids).double().numpy())
            names.append(ready.lens.name)
        return ExperimentOutcome(
            effect=share_of("tokens found without the prefix", bare, chance=1 / 512),
            control=share_of("with the prefix committed", prefixed, chance=1 / 512),
            cause="the published loop has neither prefix nor position",
            models=tuple(names),
        )
