"""Wrong answers of direct descents: whose tokens they are, the model's or the random start's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from headscan.claims.experiment import EXPERIMENTS, PROMPTS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import share_of
from headscan.claims.protocol import StandIn
from headscan.claims.stand_ins import ModelKind, about, lens_of, prompts
from headscan.inversion import descend, preset
from headscan.model.slicing import Slice

__all__ = ["StartDecides"]

LENGTH = 6


@EXPERIMENTS.register("start-decides")
@dataclass(frozen=True, kw_only=True)
class StartDecides(Experiment):
    """`models`: wrong tokens that two models (`first`, and a Llama or itself with fresh weights) with two prompts share, place
    by place, when they start alike. `prompts`: wrong answers to prompts of one token, or for a hidden first token, that are
    the commonest wrong answer.
    """

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="share of wrong tokens that two descents from one start have in common",
        test="Wilson's interval on the effective number of tokens, clustered by prompt and seed",
        scope="the stand-ins and these descents",
    )

    among: Literal["models", "one-token prompts", "hidden first tokens"] = "models"
    first: ModelKind = "gpt2"
    second: Literal["llama", "untrained"] = "llama"
    method: Literal["direct", "indirect"] = "direct"
    loss: Literal["l1", "cosine"] = "l1"

    def stand_ins(self) -> tuple[StandIn, ...]:
        """One model, or both."""
        both = self.among == "models" and self.second == "llama"
        return (about(self.first), about("llama")) if both else (about(self.first),)

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        shares, names = [], []
        for own in own_seeds(seed):
            shared, used = self._models(own) if self.among == "models" else self._prompts(own)
            shares.append(shared)
            names += used
        vocabulary = lens_of(self.first, own_seeds(seed)[0]).vocabulary_size
        return ExperimentOutcome(
            effect=share_of("wrong tokens in common", shares, chance=1 / vocabulary), models=tuple(dict.fromkeys(names))
        )

    def _answers(
        self, kind: ModelKind, own: int, length: int, at: str, shift: int, weights: str | None = None
    ) -> tuple[Tensor, Tensor, str]:
        ready = Slice.parse(at, weights=weights).on(lens_of(kind, own))
        ids = prompts(kind, own + shift, 40 if length == 1 or at != "block.0" else PROMPTS, length)
        rate = {"direct": {"l1": 0.01, "cosine": 2000.0}, "indirect": {"l1": 0.2, "cosine": 200.0}}[self.method][
            self.loss
        ]
        name = "seed-direct" if self.method == "direct" else "seed"
        setting = preset(name, steps=150, loss=self.loss, rate=rate, seed=own)
        return descend(ready, ready.run(ids), length, setting).tokens, ids, ready.lens.name

    def _models(self, own: int) -> tuple[np.ndarray, list[str]]:
        """Places [prompts, T] at which both are wrong and the same, of places where the first is wrong."""
        one, ids, name = self._answers(self.first, own, LENGTH, "block.0", 0)
        kind: ModelKind = self.first if self.second == "untrained" else "llama"
        weights = f"fresh:{own}" if self.second == "untrained" else None
        two, others, second = self._answers(kind, own, LENGTH, "block.0", 500, weights)
        both = ((one == two) & (one != ids) & (two != others)).double()
        return both.numpy(), [name, second]

    def _prompts(self, own: int) -> tuple[np.ndarray, list[str]]:
        """Of each prompt [prompts, 1]: whether its wrong answer is the commonest of all; right answers count as 0."""
        hidden = self.among == "hidden first tokens"
        found, ids, name = self._answers(
            self.first, own, 3 if hidden else 1, "block.0[:, 1:, :]" if hidden else "block.0", 0
        )
        wrong = [int(a) for a, b in zip(found[:, 0], ids[:, 0], strict=True) if a != b]
        commonest = Counter(wrong).most_common(1)[0][0] if wrong else -1
        shared = (found[:, 0] == commonest) & (found[:, 0] != ids[:, 0])
        return shared.double()[:, None].numpy(), [name]
