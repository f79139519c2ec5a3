"""Targets: the one number of a prediction that is explained; and the vector of an absent token."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.engine import Engine
from headscan.model import Lens
from headscan.run import BadInput
from headscan.statistics.uncertainty import Floats
from headscan.text.spelling import display

Scores = Floats

TargetKind = Literal["next", "logit", "contrast", "logprob", "all", "sentence"]
KINDS = {
    "logit": "the logit of the token",
    "contrast": "the logit of the token minus that of another: why this one and not that",
    "logprob": "the logarithm of the token's probability, in nats",
    "sentence": "the cosine of the sentence vector with that of the whole prompt, or of another "
    "text",
    "all": "all logits at once: their sum for gradients, their L1 distance from the original for "
    "occlusion",
}
SUBSTITUTES = ("mask", "pad", "eos", "unk")
"""The special tokens that may stand for an absent one by default, the first that there is."""
SPECIAL_TOKENS = ("mask", "pad", "eos", "bos", "unk")
ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class TargetStep:
    """One prediction: read at output `position`, of `token`, perhaps against another token.

    The token is None for a sentence vector.
    """

    position: int
    token: int | None
    against: int | None = None


@dataclass(frozen=True, eq=False)
class AttributionTarget:
    """A kind of number that is explained, at one or more predictions.

    A sentence vector is one step; its value is the cosine of the vectors [B, 1, d] with
    `reference`.

    Attributes:
        reference: the sentence vector of the whole prompt, or of another text.
        sentence: what is explained, in words; by default those of the kind.
        flat: whether there is no slope at the prompt: a cosine with its own vector is at its
            largest, 1.

    >>> target = AttributionTarget("contrast", (TargetStep(3, token=0, against=2),))
    >>> target.value(torch.tensor([[[5.0, 0.0, 1.0]]]))
    tensor([[4.]])
    """

    kind: str
    steps: tuple[TargetStep, ...]
    reference: Float[Tensor, " d"] | None = None
    sentence: str = ""
    flat: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", self.sentence or KINDS.get(self.kind, ""))

    @property
    def positions(self) -> list[int]:
        """The positions that are read, one a prediction."""
        return [step.position for step in self.steps]

    def value(
        self, logits: Float[Tensor, "B P V"], original: Float[Tensor, "P V"] | None = None
    ) -> Float[Tensor, "B P"]:
        """Return the number that is explained for logits at each step, in float32 or wider.

        With `original`, the logits of the whole prompt, "all" is minus the L1 distance from them;
        without it, the sum of the logits, which has a gradient there.
        """
        if logits.dtype != torch.float64:
            logits = logits.float()
        if self.reference is not None:
            return F.cosine_similarity(logits, self.reference.to(logits), dim=-1)
        if self.kind == "all":
            if original is None:
                return logits.sum(-1)
            return -(logits - original.to(logits)).abs().sum(-1)
        if self.kind == "logprob":
            return self._gather(logits.log_softmax(-1), "token")
        values = self._gather(logits, "token")
        if self.kind == "contrast":
            values = values - self._gather(logits, "against")
        return values

    @property
    def judged(self) -> str:
        """The number on which faithfulness is judged, in a word."""
        return "probability" if self.reference is None else "cosine"

    def judge(self, logits: Float[Tensor, "B P V"]) -> Float[Tensor, "B P"]:
        """Return the probability of each step's token, or the cosine."""
        if self.reference is not None:
            return self.value(logits)
        return self._gather(logits.float().softmax(-1), "token")

    def _gather(self, values: Tensor, role: Literal["token", "against"]) -> Tensor:
        """Return the values of each step's token in one of its roles."""
        tokens = [getattr(step, role) or 0 for step in self.steps]
        index = torch.tensor(tokens, device=values.device).expand(values.shape[0], -1)
        return values.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def kind_of(name: str, against: str | int | None) -> str:
    """Return the kind that a user's word means; a token to contrast with makes a logit a contrast.

    Raises:
        BadInput: for a contrast without that token, and a token without a contrast.
    """
    kind = "logit" if name == "next" else name
    if kind == "contrast" and against is None:
        raise BadInput("A contrast needs the other token, too: --against TOKEN.")
    if against is not None and kind not in ("logit", "contrast", "sentence"):
        raise BadInput(
            "A contrast is between two logits: it cannot be compared with a token with the target "
            f"'{kind}'."
        )
    return "contrast" if against is not None and kind == "logit" else kind


def one_token(lens: Lens, token: str | int) -> int:
    """Return the id of a token that is given as an id, as "#ID", or as its text.

    Raises:
        BadInput: for a text of several tokens, or of none.
    """
    if isinstance(token, str) and token[:1] == "#" and token[1:].isdigit():
        token = int(token[1:])
    if isinstance(token, int):
        if not 0 <= token < lens.vocabulary_size:
            raise BadInput(
                f"Token id {token} is not in the vocabulary of '{lens.name}' (0 to "
                f"{lens.vocabulary_size - 1})."
            )
        return token
    tokenizer = lens.require_tokenizer()
    ids = list(tokenizer.encode(token, add_special_tokens=False))
    if len(ids) == 1:
        return int(ids[0])
    known_id = None
    if hasattr(tokenizer, "convert_tokens_to_ids"):
        known_id = tokenizer.convert_tokens_to_ids(token)
    if isinstance(known_id, int) and known_id != getattr(tokenizer, "unk_token_id", None):
        return known_id
    count = str(len(ids))
    if ids:
        pieces = zip(display(tokenizer, ids), ids, strict=True)
        count += ": " + " ".join(f"{piece} (#{piece_id})" for piece, piece_id in pieces)
    raise BadInput(
        f"The target '{token}' must be one token, but it is {count}; choose one of them by #ID, "
        "or give a whole continuation."
    )


def substitute_vector(engine: Engine, choice: str | int) -> tuple[Float[Tensor, " e"] | None, str]:
    """Return the embedding that stands for an absent token, and its name; None for removal.

    `choice` is "auto" (the tokenizer's mask, padding, end-of-text or unknown token, the first there
    is; else "mean"), "mask", "pad", "eos", "bos", "unk", "mean" (of the embedding table), "zero",
    "remove", or a token, as its text, its id or "#ID".
    """
    lens = engine.lens
    if choice == "auto":
        available = [name for name in SUBSTITUTES if _special_token(lens, name) is not None]
        choice = available[0] if available else "mean"
    if choice == "remove":
        return None, "remove"
    if choice == "zero":
        return torch.zeros_like(engine.embed(torch.tensor([0]))[0]), "zero"
    if choice == "mean":
        return _mean_vector(engine), "mean"
    if choice in SPECIAL_TOKENS:
        token = _special_token(lens, str(choice))
        if token is None:
            raise BadInput(
                f"The tokenizer of '{lens.name}' has no {choice} token; use mean, zero, remove or "
                "a token."
            )
    else:
        token = one_token(lens, choice)
    return engine.embed(torch.tensor([token]))[0], str(choice)


def _special_token(lens: Lens, name: str) -> int | None:
    owner = lens.model.config if lens.tokenizer is None else lens.tokenizer
    token = getattr(owner, f"{name}_token_id", None)
    return token if isinstance(token, int) and 0 <= token < lens.vocabulary_size else None


def _mean_vector(engine: Engine) -> Float[Tensor, " e"]:
    """Return the mean of the embedding table."""
    lens = engine.lens
    batches = torch.arange(lens.vocabulary_size).split(ROWS_AT_ONCE)
    sums = torch.stack([engine.embed(ids).double().sum(0) for ids in batches])
    return (sums.sum(0) / lens.vocabulary_size).to(lens.input_embeddings.dtype)
