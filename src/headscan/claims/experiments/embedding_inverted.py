"""Whether the pseudo-inverse of an embedding takes its rows back to their tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch

from headscan.claims.experiment import EXPERIMENTS, SEEDS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import exactly, share_of
from headscan.claims.protocol import StandIn
from headscan.claims.stand_ins import about, lens_of
from headscan.inversion import Decoder

__all__ = ["EmbeddingInverted"]

ROWS = 1024  # of a table, at most: all of a large one would take V² scores


@EXPERIMENTS.register("embedding-inverted")
@dataclass(frozen=True, kw_only=True)
class EmbeddingInverted(Experiment):
    """x W⁺ of every row of the table: is the largest entry its own, and how large is it beside d/V."""

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of the vocabulary that the pseudo-inverse takes back to itself",
        test="Wilson's interval, a table a seed",
        scope="embedding tables of the stand-ins",
    )

    model: str = "gpt2"

    def on(self, model: str) -> Self | None:
        """Of up to 1,024 rows a seed of a larger table."""
        return replace(self, model=model)

    def stand_ins(self) -> tuple[StandIn, ...]:
        """The model of its kind."""
        return (about(self.model),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        shares, diagonals = [], []
        for own in own_seeds(seed):
            table = lens_of(self.model, own).input_embeddings.detach()
            rows = torch.randperm(len(table), generator=torch.Generator().manual_seed(own))[:ROWS].sort().values
            scores = Decoder(table).pinv(table[rows])
            shares.append((scores.argmax(-1) == rows).double()[:, None].numpy())
            diagonals.append(float(scores[range(len(rows)), rows].mean()) * len(table) / table.shape[1])
        return ExperimentOutcome(
            effect=share_of("tokens taken back to themselves", shares, chance=1 / len(table)),
            beside=(
                exactly("mean of a token's own entry over d/V", sum(diagonals) / SEEDS, unit="ratio", seeds=SEEDS),
            ),
            models=tuple(lens_of(self.model, own).name for own in own_seeds(seed)),
        )
