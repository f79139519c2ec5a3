"""Prompts whose output comes as near as the source's own measure asks: how many tokens are wrong all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from headscan.claims.experiment import (
    EXPERIMENTS,
    PROMPTS,
    SEEDS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    own_seeds,
)
from headscan.claims.measurement import exactly, share_of
from headscan.claims.protocol import StandIn
from headscan.claims.recovery import search_shown
from headscan.claims.stand_ins import about, lens_of, prompts
from headscan.inversion import descend, preset
from headscan.model.slicing import Slice

__all__ = ["NearAndWrong"]


@EXPERIMENTS.register("near-and-wrong")
@dataclass(frozen=True, kw_only=True)
class NearAndWrong(Experiment):
    """Descents of `steps` steps; only prompts that come within `limit` of the distance of a slight shift are counted."""

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of tokens found where the output is near",
        test="Wilson's interval on the effective number of tokens, clustered by prompt and seed",
        scope="one trained stand-in; a slight shift is normal noise of 1/20 on every embedding",
    )
    controlled: ClassVar[bool] = True

    steps: int = 600
    limit: float = 1 / 6

    def stand_ins(self) -> tuple[StandIn, ...]:
        """The trained specimen."""
        return (about("specimen"),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        lens = lens_of("specimen")
        ready = Slice().on(lens)
        found, sought, near = [], [], 0
        for own in own_seeds(seed):
            ids = prompts("specimen", own, PROMPTS, 6)
            target = ready.run(ids)
            done = descend(ready, target, 6, preset("seed", steps=self.steps, seed=own))
            noise = torch.randn(*ids.shape, ready.vectors.shape[1], generator=torch.Generator().manual_seed(own))
            shift = (ready.run(inputs_embeds=ready.embed(ids) + 0.05 * noise) - target).abs().flatten(1).sum(1)
            apart = (ready.run(inputs_embeds=done.vectors) - target).abs().flatten(1).sum(1)
            close = apart <= self.limit * shift
            near += int(close.sum())
            if bool(close.any()):
                found.append((done.tokens == ids)[close].double().numpy())
                sought.append((search_shown(ready, target[close], None) == ids[close]).double().numpy())
        reached = exactly("prompts that came as near", near / 40, unit="share of prompts", seeds=SEEDS)
        if len(found) < 2:
            note = f"Of 40 descents {near} came as near as the claim asks; more steps or another rate would be needed."
            return ExperimentOutcome(effect=None, beside=(reached,), models=(lens.name,), note=note)
        return ExperimentOutcome(
            effect=share_of("tokens right where the output is near", found, chance=1 / lens.vocabulary_size),
            control=share_of("by a search of the same outputs", sought),
            cause="the optimiser failed, the information is there",
            beside=(reached,),
            models=(lens.name,),
        )
