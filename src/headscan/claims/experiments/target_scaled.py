"""Direct inversion of two targets: a scaled one-hot vector's output, and the pseudo-inverse's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headscan.claims.experiment import EXPERIMENTS, PROMPTS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import difference_of, share_of
from headscan.claims.protocol import StandIn
from headscan.claims.stand_ins import about, lens_of, prompts
from headscan.inversion import Descent, descend
from headscan.model.slicing import Slice

__all__ = ["TargetScaled"]


@EXPERIMENTS.register("target-scaled")
@dataclass(frozen=True, kw_only=True)
class TargetScaled(Experiment):
    """Descents from zero to the output of 10 W (one-hot) and of W (pseudo-inverse, W⁺W being one on rows)."""

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of tokens found for the one-hot target less that for the pseudo-inverse's",
        test="Newcombe's interval of a difference of two shares, clustered by prompt and seed",
        scope="random weights, Adam from zero",
        range=(-1.0, 1.0),
    )

    def stand_ins(self) -> tuple[StandIn, ...]:
        """Random weights."""
        return (about("gpt2"),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        shares: dict[float, list[np.ndarray]] = {10.0: [], 1.0: []}
        for own in own_seeds(seed):
            ready = Slice().on(lens_of("gpt2", own))
            ids = prompts("gpt2", own, PROMPTS, 6)
            setting = Descent(method="direct", init="zeros", steps=150, rate=0.02, seed=own, check_every=0)
            for scale, rows in shares.items():
                target = ready.run(inputs_embeds=scale * ready.embed(ids))
                rows.append((descend(ready, target, 6, setting).tokens == ids).double().numpy())
        one, other = (
            share_of("found, one-hot target", shares[10.0]),
            share_of("found, pseudo-inverse's target", shares[1.0]),
        )
        return ExperimentOutcome(
            effect=difference_of("one-hot less pseudo-inverse", one, other), beside=(one, other),
            models=tuple(lens_of("gpt2", own).name for own in own_seeds(seed)),
        )  # fmt: skip
