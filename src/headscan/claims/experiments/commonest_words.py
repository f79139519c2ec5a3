"""How large a share of a text its commonest word is."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headscan.claims.experiment import EXPERIMENTS, Experiment, ExperimentOutcome, ExperimentWords
from headscan.claims.measurement import mean_of
from headscan.claims.protocol import StandIn
from headscan.text import documents

__all__ = ["CommonestWords"]

SEEDS, WORDS = 5, 4000


@EXPERIMENTS.register("commonest-words")
@dataclass(frozen=True, kw_only=True)
class CommonestWords(Experiment):
    """The share of the commonest word in five pieces of a shipped text of 4,000 words, drawn at random."""

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of the commonest word",
        test="Student's interval over five pieces of text",
        scope="one shipped English text",
    )

    text: str = "stories"

    def stand_ins(self) -> tuple[StandIn, ...]:
        """The text."""
        return (StandIn(f"the shipped text {self.text}", "It is English; another kind of text has other shares."),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        read = re.findall(r"[a-z']+", " ".join(one.text() for one in documents(self.text)).lower())
        drawn = np.random.default_rng(seed).integers(0, max(1, len(read) - WORDS), SEEDS)
        pieces = [Counter(read[start : start + WORDS]) for start in drawn]
        shares = [[one.most_common(3)[rank][1] / one.total() for one in pieces] for rank in range(3)]
        ranked = [
            mean_of(f"share of word {rank + 1}", found, unit="share of words", tokens=SEEDS * WORDS, prompts=SEEDS)
            for rank, found in enumerate(shares)
        ]
        return ExperimentOutcome(effect=ranked[0], beside=tuple(ranked[1:]), models=(self.text,))
