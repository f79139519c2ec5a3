"""The claim about the commonest words of a text, and how large their shares are."""

import re
from collections import Counter
from functools import partial

import numpy as np

from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    StandIn,
)
from headscan_lab.ledger.measurement import mean_of

PIECES = 5
WORDS = 4000  # of a piece
RANKS = 3


@EXPERIMENTS.register("commonest-words")
class CommonestWords(Experiment):
    """The shares of the three commonest words in five pieces of a text, drawn at random.

    The pieces have 4,000 words of the reference of the Python language (`pydoc_data` of the
    standard library), which no model here has read or written.
    """

    words = ExperimentWords(
        quantity="share of the commonest word",
        test="interval of the mean over five pieces of text",
        scope="one English text of people's, on a technical matter",
    )

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (
            StandIn(
                "the reference of the Python language",
                "It is English that people wrote; other texts have other shares.",
            ),
        )

    def observe(self, seed: int) -> ExperimentOutcome:
        from pydoc_data.topics import topics

        text_words = re.findall(r"[a-z']+", " ".join(topics.values()).lower())
        last_start = max(1, len(text_words) - WORDS)
        starts = np.random.default_rng(seed).integers(0, last_start, PIECES)
        pieces = [Counter(text_words[start : start + WORDS]) for start in starts]
        share = partial(
            mean_of, unit="share of words", bounds=(0.0, 1.0), tokens=PIECES * WORDS, prompts=PIECES
        )
        shares = []
        for rank in range(RANKS):
            values = [piece.most_common(RANKS)[rank][1] / piece.total() for piece in pieces]
            shares.append(share(f"share of word {rank + 1}", values))
        return ExperimentOutcome(effect=shares[0], beside=tuple(shares[1:]), models=())
