"""Targets: the one number of a prediction that is explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscan.model import Lens
from headscan.run import BadInput
from headscan.text.display import display

__all__ = ["KINDS", "AttributionTarget", "TargetStep", "kind_of", "one_token"]

KINDS = {
    "logit": "the logit of the token",
    "contrast": "the logit of the token minus that of another: why this one and not that",
    "logprob": "the logarithm of the token's probability, in nats",
    "probability": "the token's probability",
    "entropy": "the entropy of the prediction, in nats: what makes the model sure or unsure",
    "sentence": "the cosine of the sentence vector with that of the whole prompt, or of another text",
    "all": "all logits at once: their sum for gradients, their L1 distance from the original for occlusion",
}


@dataclass(frozen=True)
class TargetStep:
    """One prediction: read at output `position`, of token `token` (None: a sentence vector), perhaps against another token."""

    position: int
    token: int | None
    against: int | None = None


@dataclass(frozen=True)
class AttributionTarget:
    """What is explained: a kind of number, at one or more predictions.

    `value` maps logits [B, P, V] (P = the number of steps, in their order) to [B, P], in float32 or wider.

    >>> target = AttributionTarget("contrast", (TargetStep(3, token=0, against=2),))
    >>> target.value(torch.tensor([[[5.0, 0.0, 1.0]]]))
    tensor([[4.]])
    """

    kind: str
    steps: tuple[TargetStep, ...]

    @property
    def positions(self) -> list[int]:
        """Where the output is read, one position a step."""
        return [step.position for step in self.steps]

    def value(
        self, logits: Float[Tensor, "B P V"], original: Float[Tensor, "P V"] | None = None
    ) -> Float[Tensor, "B P"]:
        """The number that is explained.

        Args:
            logits: [B, P, V].
            original: [P, V], the logits of the whole prompt. With it, "all" is minus the L1 distance from them; without
                it, the sum of the logits, which has a gradient there.
        """
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.kind == "all":
            return logits.sum(-1) if original is None else -(logits - original.to(logits)).abs().sum(-1)
        if self.kind == "entropy":
            log_p = logits.log_softmax(-1)
            return -(log_p.exp() * log_p).sum(-1)
        if self.kind == "logprob":
            logits = logits.log_softmax(-1)
        elif self.kind == "probability":
            logits = logits.softmax(-1)
        chosen = self._gather(logits, [step.token or 0 for step in self.steps])
        if self.kind == "contrast":
            return chosen - self._gather(logits, [step.against or 0 for step in self.steps])
        return chosen

    @property
    def judged(self) -> str:
        """The scale on which faithfulness is judged, in a word."""
        return "probability"

    def judge(self, logits: Float[Tensor, "B P V"]) -> Float[Tensor, "B P"]:
        """What faithfulness looks at: the probability of each step's token."""
        return self._gather(logits.float().softmax(-1), [step.token or 0 for step in self.steps])

    def _gather(self, values: Tensor, tokens: Sequence[int]) -> Tensor:
        index = torch.tensor(tokens, device=values.device).expand(values.shape[0], -1).unsqueeze(-1)
        return values.gather(-1, index).squeeze(-1)


def kind_of(name: str, against: str | int | None) -> str:
    """The kind that a user's word means; a token to contrast with makes a logit a contrast."""
    kind = "logit" if name == "next" else name
    if kind == "contrast" and against is None:
        raise BadInput("A contrast needs the other token, too: --against TOKEN.")
    if against is not None and kind not in ("logit", "contrast", "sentence"):
        raise BadInput(f"A contrast is between two logits: it cannot be put against a token with the target '{kind}'.")
    return "contrast" if against is not None and kind == "logit" else kind


def one_token(lens: Lens, word: str | int) -> int:
    """The id of a token given as an id, as "#ID", or as its text.

    Raises:
        BadInput: the text is several tokens (the message names them) or none.
    """
    if isinstance(word, str) and word[:1] == "#" and word[1:].isdigit():
        word = int(word[1:])
    if isinstance(word, int):
        if not 0 <= word < lens.vocabulary_size:
            raise BadInput(
                f"Token id {word} is not in the vocabulary of '{lens.name}' (0 to {lens.vocabulary_size - 1})."
            )
        return word
    tokenizer = lens.require_tokenizer()
    ids = list(tokenizer.encode(word, add_special_tokens=False))
    whole = tokenizer.convert_tokens_to_ids(word) if hasattr(tokenizer, "convert_tokens_to_ids") else None
    if len(ids) != 1 and isinstance(whole, int) and whole != getattr(tokenizer, "unk_token_id", None):
        ids = [whole]
    if len(ids) != 1:
        pieces = " ".join(f"{piece} (#{i})" for i, piece in zip(ids, display(tokenizer, ids), strict=True))
        raise BadInput(
            f"The target '{word}' must be one token, but it is {len(ids)}{': ' + pieces if ids else ''}; "
            "choose one of them by #ID, or give a whole continuation."
        )
    return int(ids[0])
