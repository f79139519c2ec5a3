"""Whether later tokens reach earlier outputs of attention whose mask is lifted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headscan.claims.experiment import EXPERIMENTS, PROMPTS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import share_of
from headscan.claims.protocol import StandIn
from headscan.claims.stand_ins import about, lens_of, prompts
from headscan.model.slicing import Slice, leak_check

__all__ = ["MaskLifted"]


@EXPERIMENTS.register("mask-lifted")
@dataclass(frozen=True, kw_only=True)
class MaskLifted(Experiment):
    """Each later token of a prompt is changed: the share of earlier outputs that move, without the mask and with it."""

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of earlier outputs that a later token moves when no mask is given",
        test="Wilson's interval, clustered by prompt and seed",
        scope="random weights",
    )

    def stand_ins(self) -> tuple[StandIn, ...]:
        """Random weights."""
        return (about("llama"),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        shares: dict[bool, list[np.ndarray]] = {False: [], True: []}
        for own in own_seeds(seed):
            lens = lens_of("llama", own)
            ids = prompts("llama", own, PROMPTS, 6)
            for lifted, rows in shares.items():
                moved = [leak_check(Slice(causal=False if lifted else None), lens, one) > 0 for one in ids]
                rows.append(np.stack([one[np.tril_indices(6, -1)] for one in map(np.asarray, moved)]).astype(float))
        return ExperimentOutcome(
            effect=share_of("earlier outputs moved, mask lifted", shares[True]),
            beside=(share_of("earlier outputs moved, with the model's mask", shares[False]),),
            models=tuple(lens_of("llama", own).name for own in own_seeds(seed)),
        )
