"""Claims about direct descents: whether their start decides the answer, and how targets scale."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from headscan.inversion import Descent, descend, preset
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    StandIn,
)
from headscan_lab.ledger.experiments.descents import PRESETS, descent_rate
from headscan_lab.ledger.experiments.search import is_causal
from headscan_lab.ledger.measurement import (
    DIFFERENCE_TEST,
    PROMPTS,
    SHARE_TEST,
    difference_of,
    repeat_seeds,
    share_of,
)
from headscan_lab.ledger.named_models import RANDOM_TWIN
from headscan_lab.ledger.proxies import LARGE_TABLE, about, lens_of, prompts, random_twin

LENGTH = 6
MANY_PROMPTS = 40  # where one token of a prompt is scored
OTHER_PROMPTS = 500  # added to a seed, it draws other prompts


@dataclass(frozen=True, eq=False)
class _StartAnswers:
    """The answers of a descent [prompts, T], the prompts' ids, and the model's name."""

    tokens: Tensor
    ids: Tensor
    model: str

    @property
    def wrong(self) -> Tensor:
        return self.tokens != self.ids


@EXPERIMENTS.register("start-decides")
class StartDecides(Experiment):
    """The share of wrong tokens that descents from one start have in common.

    `models`: wrong tokens that two models (`first`, and a Llama or the same with fresh weights)
    share position by position, for two prompts. The two others: wrong answers to prompts of one
    token, or for a hidden first token, that are the commonest wrong answer.
    """

    words = ExperimentWords(
        quantity="share of wrong tokens that two descents from one start have in common",
        test=SHARE_TEST,
        scope="the stand-ins and these descents",
    )

    among: Literal["models", "one-token prompts", "hidden first tokens"] = "models"
    first: str = "gpt2"
    second: Literal["llama", "untrained"] = "llama"
    method: Literal["direct", "indirect"] = "direct"
    loss: Literal["l1", "cosine"] = "l1"

    def on(self, model: str) -> Self | None:
        if self.first == "gpt2":
            kind = random_twin(model, self.first)
        else:
            kind = None if model.startswith(RANDOM_TWIN) else model
        if kind is None:
            return None
        lens = lens_of(model)
        if not is_causal(lens) or lens.input_embeddings.numel() > LARGE_TABLE:
            return None
        return replace(self, first=kind)

    def stand_ins(self) -> tuple[StandIn, ...]:
        if self.among == "models" and self.second == "llama":
            return (about(self.first), about("llama"))
        return (about(self.first),)

    def observe(self, seed: int) -> ExperimentOutcome:
        shares = []
        names: list[str] = []
        for repeat_seed in repeat_seeds(seed):
            if self.among == "models":
                shared, used = self._shared_by_models(repeat_seed)
            else:
                shared, used = self._shared_by_prompts(repeat_seed)
            shares.append(shared)
            names += used
        vocabulary = _shallow_lens(self.first, repeat_seeds(seed)[0]).vocabulary_size
        return ExperimentOutcome(
            effect=share_of("wrong tokens in common", shares, chance=1 / vocabulary),
            models=tuple(dict.fromkeys(names)),
        )

    def _answers(
        self,
        kind: str,
        seed: int,
        prompt_seed: int,
        *,
        length: int = LENGTH,
        at: str = "block.0",
        weights: str | None = None,
    ) -> _StartAnswers:
        ready = Slice.parse(at, weights=weights).on(_shallow_lens(kind, seed))
        count = MANY_PROMPTS if length == 1 or at != "block.0" else PROMPTS
        ids = prompts(kind, prompt_seed, count, length)
        settings = preset(
            PRESETS[self.method],
            steps=150,
            loss=self.loss,
            rate=descent_rate(self.method, self.loss),
            seed=seed,
        )
        tokens = descend(ready, ready.run(ids), length, settings).tokens
        return _StartAnswers(tokens, ids, ready.lens.name)

    def _shared_by_models(self, seed: int) -> tuple[npt.NDArray[np.float64], list[str]]:
        """Return where both models are wrong and the same, [prompts, T], and their names."""
        first = self._answers(self.first, seed, seed)
        second = self._answers(
            self.first if self.second == "untrained" else "llama",
            seed,
            seed + OTHER_PROMPTS,
            weights=f"fresh:{seed}" if self.second == "untrained" else None,
        )
        shared = (first.tokens == second.tokens) & first.wrong & second.wrong
        return shared.double().numpy(), [first.model, second.model]

    def _shared_by_prompts(self, seed: int) -> tuple[npt.NDArray[np.float64], list[str]]:
        """Return which prompts have the commonest wrong answer, [prompts, 1], and the model's name.

        Right answers count as 0.
        """
        if self.among == "hidden first tokens":
            answers = self._answers(self.first, seed, seed, length=3, at="block.0[:, 1:, :]")
        else:
            answers = self._answers(self.first, seed, seed, length=1)
        first_tokens = answers.tokens[:, 0]
        wrong = answers.wrong[:, 0]
        wrong_tokens = [int(token) for token in first_tokens[wrong]]
        commonest = Counter(wrong_tokens).most_common(1)[0][0] if wrong_tokens else -1
        shared = (first_tokens == commonest) & wrong
        return shared.double()[:, None].numpy(), [answers.model]


def _shallow_lens(kind: str, seed: int) -> Lens:
    """Return a model; one with random weights in a real size has one block."""
    return lens_of(kind, seed, depth=1 if kind.startswith(RANDOM_TWIN) else 3)


@EXPERIMENTS.register("target-scaled")
class TargetScaled(Experiment):
    """Descents from zero to two targets: the outputs of 10 W (one-hot) and of W (pseudo-inverse).

    W⁺W is the identity on the rows of W.
    """

    words = ExperimentWords(
        quantity="share of tokens found for the one-hot target less that for the pseudo-inverse's",
        test=DIFFERENCE_TEST,
        scope="random weights, Adam from zero",
        range=(-1.0, 1.0),
    )

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (about("gpt2"),)

    def observe(self, seed: int) -> ExperimentOutcome:
        one_hot_hits = []
        pseudo_inverse_hits = []
        names = []
        for repeat_seed in repeat_seeds(seed):
            lens = lens_of("gpt2", repeat_seed)
            ids = prompts("gpt2", repeat_seed, PROMPTS, LENGTH)
            one_hot_hits.append(_hits_for_scaled_target(lens, ids, repeat_seed, 10.0))
            pseudo_inverse_hits.append(_hits_for_scaled_target(lens, ids, repeat_seed, 1.0))
            names.append(lens.name)
        one_hot = share_of("found, one-hot target", one_hot_hits)
        pseudo_inverse = share_of("found, pseudo-inverse's target", pseudo_inverse_hits)
        return ExperimentOutcome(
            effect=difference_of("one-hot less pseudo-inverse", one_hot, pseudo_inverse),
            beside=(one_hot, pseudo_inverse),
            models=tuple(names),
        )


def _hits_for_scaled_target(
    lens: Lens, ids: Tensor, seed: int, scale: float
) -> npt.NDArray[np.float64]:
    """Return what a descent from zero finds of prompts whose embeddings were scaled."""
    ready = Slice().on(lens)
    settings = Descent(
        method="direct", init="zeros", steps=150, rate=0.02, seed=seed, check_every=0
    )
    target = ready.run(inputs_embeds=scale * ready.embed(ids))
    tokens = descend(ready, target, ids.shape[1], settings).tokens
    return (tokens == ids).double().numpy()
