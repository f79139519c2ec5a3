"""The sentence vector as a target: what the vector of a text rests on, for encoders that predict no token.

The number is the cosine of the prompt's sentence vector with a fixed one: that of the whole prompt, so that a token's score
is how far the vector turns without it, or that of another text (`--against`), so that it says why the two are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.engine import Engine
from headscan.attribution.method import METHODS, AttributionMethod
from headscan.attribution.target import AttributionTarget, TargetStep
from headscan.model import Lens
from headscan.model.pooling import Pooling, declared_pooling, pooled
from headscan.model.verify import evaluating
from headscan.run import BadInput
from headscan.text.prompts import read_prompt

if TYPE_CHECKING:
    from headscan.attribution.settings import Attributing

__all__ = ["SentenceEngine", "SentenceTarget", "asks_for_sentence", "check_slopes"]


class SentenceEngine(Engine):
    """A model as a function from embeddings [B, T, e] to sentence vectors [B, 1, d], in the place of logits.

    Rows are run whole: every token moves the vector of every other, or all of them are pooled.

    Attributes:
        pooling: as the model's folder declares it; else the mean over all tokens, special ones too.
        declared: whether it does.
    """

    pools = True

    def __init__(self, lens: Lens) -> None:
        super().__init__(lens)
        self.causal = False  # the vector depends on every token
        declared = declared_pooling(lens.origin.source)
        self.pooling: Pooling = declared or "mean"
        self.declared = declared is not None

    @property
    def masked(self) -> bool:
        """No mask is filled."""
        return False

    def check(self) -> None:
        """Refuse encoder-decoders, whose encoder alone is a model of its own."""
        if self.lens.traits.encoder_decoder:
            raise BadInput(f"'{self.lens.name}' is an encoder-decoder, whose sentence vector is not explained.")

    def logits(
        self, embeds: Float[Tensor, "B T e"], positions: Sequence[int], prefix: int = 0, *, grad: bool = False
    ) -> Float[Tensor, "B 1 d"]:
        """The sentence vectors of whole rows."""
        self.tokens_computed += embeds.shape[0] * embeds.shape[1]
        body = getattr(self.model, self.model.base_model_prefix, self.model)
        with torch.set_grad_enabled(grad), evaluating(self.model):
            states = body(inputs_embeds=embeds, **self._uncached).last_hidden_state
        return pooled(states, self.pooling)[:, None]


@dataclass(frozen=True, kw_only=True)
class SentenceTarget(AttributionTarget):
    """The cosine of sentence vectors [B, 1, d] with a fixed one [d].

    Attributes:
        reference: that of the whole prompt, or of another text.
        sentence: what is explained, in words.
        steep: whether the cosine has a slope at the prompt: with its own vector it is at its largest, 1.
    """

    reference: Float[Tensor, " d"]
    sentence: str
    steep: bool

    @property
    def judged(self) -> str:
        """See `AttributionTarget.judged`."""
        return "cosine"

    def value(
        self, logits: Float[Tensor, "B 1 d"], original: Float[Tensor, "1 d"] | None = None
    ) -> Float[Tensor, "B 1"]:
        """The cosine, in [-1, 1]."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return F.cosine_similarity(logits, self.reference.to(logits), dim=-1)

    def judge(self, logits: Float[Tensor, "B 1 d"]) -> Float[Tensor, "B 1"]:
        """The same."""
        return self.value(logits)

    @classmethod
    def of(cls, engine: SentenceEngine, ids: Sequence[int], settings: Attributing) -> SentenceTarget:
        """The target that the settings ask for."""
        other = settings.against
        if other is not None and not isinstance(other, str):
            raise BadInput("A sentence vector is put against that of another text: give --against a text.")
        with_ = "its own when no token is missing"
        if other is not None:
            lens = engine.lens
            ids = read_prompt(other, lens.tokenizer, lens.limits, special=settings.special).ids
            with_ = f"that of '{other}'"
        reference = engine.logits(engine.embed(torch.tensor([list(ids)])), [0])[0, 0].float()
        over = {"mean": "the mean over tokens", "first": "the first token's", "last": "the last token's"}[
            engine.pooling
        ]
        over += "" if engine.declared else "; the model's folder names none"
        return cls(
            "sentence", (TargetStep(0, None),), reference=reference, steep=other is not None,
            sentence=f"the cosine of the prompt's sentence vector ({over}) with {with_}",
        )  # fmt: skip


def asks_for_sentence(lens: Lens, settings: Attributing) -> bool:
    """Whether the sentence vector is explained: where it is asked for, and of encoders that can predict no token.

    Raises:
        BadInput: options that name tokens to predict.
    """
    headless = "head" not in lens.sites and not lens.traits.causal and not lens.traits.encoder_decoder
    if settings.target != "sentence" and not (settings.target == "next" and headless):
        return False
    if settings.explains_several or settings.token is not None:
        raise BadInput("A sentence vector predicts no token: leave --token, --continuation and --generate out.")
    return True


def check_slopes(target: AttributionTarget, methods: Sequence[AttributionMethod]) -> None:
    """Raise BadInput for methods that ask for a slope where there is none: a cosine with its own vector is at its largest."""
    flat = [one.name for one in methods if one.local]
    if flat and isinstance(target, SentenceTarget) and not target.steep:
        others = ", ".join(name for name, item in METHODS.items() if not item.local)
        raise BadInput(
            f"The cosine of a sentence vector with itself has no slope, so {' and '.join(flat)} would score every token 0: "
            f"choose --method {others}, or another text with --against."
        )
