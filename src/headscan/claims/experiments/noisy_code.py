"""How good a code of its own token one state is under noise: random weights against trained ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch

from headscan.claims.experiment import EXPERIMENTS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import difference_of, share_of
from headscan.claims.protocol import StandIn
from headscan.claims.stand_ins import VOCABULARY, about, lens_of
from headscan.model.slicing import Slice

__all__ = ["NoisyCode"]


@EXPERIMENTS.register("noisy-code")
@dataclass(frozen=True, kw_only=True)
class NoisyCode(Experiment):
    """The first block's states of all single tokens, with noise of `noise` times their spread: nearest state decoding, before
    training (the same shape, fresh weights) less after.
    """

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of tokens decoded from a noisy state, untrained less trained",
        test="Newcombe's interval of a difference of two shares, clustered by token and seed",
        scope="small models of one shape, single tokens, one level of noise",
        range=(-1.0, 1.0),
    )

    noise: float = 1.0
    model: str = "taught"

    def on(self, model: str) -> Self | None:
        """Of as many tokens of its vocabulary, which the seed draws."""
        return replace(self, model=model)

    def stand_ins(self) -> tuple[StandIn, ...]:
        """The same shape, trained here and fresh."""
        return (about(self.model),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        shares: dict[str, list[np.ndarray]] = {"untrained": [], "trained": []}
        for own in own_seeds(seed):
            lens = lens_of(self.model, own)
            order = torch.randperm(lens.vocabulary_size, generator=torch.Generator().manual_seed(own))
            ids = order[:VOCABULARY].sort().values  # all of a stand-in's
            for name, model in (("trained", lens), ("untrained", lens.random_init(own, first_block=True))):
                states = Slice().on(model).states(ids[:, None])[:, 0].float()
                drawn = torch.randn(states.shape, generator=torch.Generator().manual_seed(own))
                noisy = states + self.noise * float(states.std(0).mean()) * drawn
                shares[name].append(
                    (torch.cdist(noisy, states).argmin(1) == torch.arange(VOCABULARY)).double()[:, None].numpy()
                )
        before, after = (
            share_of(f"tokens decoded, {name}", rows, chance=1 / VOCABULARY) for name, rows in shares.items()
        )
        return ExperimentOutcome(
            effect=difference_of("tokens decoded, untrained less trained", before, after), beside=(before, after),
            models=tuple(dict.fromkeys(lens_of(self.model, own).name for own in own_seeds(seed))),
        )  # fmt: skip
