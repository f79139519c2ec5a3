"""Targets: the one number of a prediction that is explained; units of the prompt; what stands for
an absent token.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.engine import Engine
from headscan.model import Lens
from headscan.run import BadInput
from headscan.statistics.uncertainty import Floats
from headscan.text.prompts import Prompt
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


@dataclass(frozen=True)
class TargetStep:
    """One prediction: read at output `position`, of token `token` (None: a sentence vector),
    perhaps against another token.
    """

    position: int
    token: int | None
    against: int | None = None


@dataclass(frozen=True, eq=False)
class AttributionTarget:
    """What is explained: a kind of number, at one or more predictions.

    `value` maps logits [B, P, V] (P = the number of steps, in their order) to [B, P], in float32 or
    wider. A sentence vector is one step; its value is the cosine of the vectors [B, 1, d] with
    `reference`.

    >>> target = AttributionTarget("contrast", (TargetStep(3, token=0, against=2),))
    >>> target.value(torch.tensor([[[5.0, 0.0, 1.0]]]))
    tensor([[4.]])
    """

    kind: str
    steps: tuple[TargetStep, ...]
    reference: Float[Tensor, " d"] | None = (
        None  # the sentence vector of the whole prompt, or of another text
    )
    sentence: str = ""  # what is explained, in words; by default those of the kind
    # whether there is no slope at the prompt: a cosine with its own vector is at its largest, 1
    flat: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", self.sentence or KINDS.get(self.kind, ""))

    @property
    def positions(self) -> list[int]:
        return [step.position for step in self.steps]

    def value(
        self, logits: Float[Tensor, "B P V"], original: Float[Tensor, "P V"] | None = None
    ) -> Float[Tensor, "B P"]:
        """The number that is explained. With `original` [P, V], the logits of the whole prompt,
        "all" is minus the L1 distance from them; without it, the sum of the logits, which has a
        gradient there.
        """
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.reference is not None:
            return F.cosine_similarity(logits, self.reference.to(logits), dim=-1)
        if self.kind == "all":
            return (
                logits.sum(-1)
                if original is None
                else -(logits - original.to(logits)).abs().sum(-1)
            )
        chosen = self._gather(logits.log_softmax(-1) if self.kind == "logprob" else logits, "token")
        return chosen - self._gather(logits, "against") if self.kind == "contrast" else chosen

    @property
    def judged(self) -> str:
        return "probability" if self.reference is None else "cosine"

    def judge(self, logits: Float[Tensor, "B P V"]) -> Float[Tensor, "B P"]:
        """What faithfulness looks at: the probability of each step's token, or the cosine."""
        if self.reference is not None:
            return self.value(logits)
        return self._gather(logits.float().softmax(-1), "token")

    def _gather(self, values: Tensor, which: Literal["token", "against"]) -> Tensor:
        tokens = [getattr(step, which) or 0 for step in self.steps]
        index = torch.tensor(tokens, device=values.device).expand(values.shape[0], -1).unsqueeze(-1)
        return values.gather(-1, index).squeeze(-1)


def kind_of(name: str, against: str | int | None) -> str:
    """The kind that a user's word means; a token to contrast with makes a logit a contrast."""
    kind = "logit" if name == "next" else name
    if kind == "contrast" and against is None:
        raise BadInput("A contrast needs the other token, too: --against TOKEN.")
    if against is not None and kind not in ("logit", "contrast", "sentence"):
        raise BadInput(
            "A contrast is between two logits: it cannot be put against a token with the target "
            f"'{kind}'."
        )
    return "contrast" if against is not None and kind == "logit" else kind


def one_token(lens: Lens, word: str | int) -> int:
    """The id of a token given as an id, as "#ID", or as its text; BadInput for a text of several
    tokens, or of none.
    """
    if isinstance(word, str) and word[:1] == "#" and word[1:].isdigit():
        word = int(word[1:])
    if isinstance(word, int):
        if not 0 <= word < lens.vocabulary_size:
            raise BadInput(
                f"Token id {word} is not in the vocabulary of '{lens.name}' (0 to "
                f"{lens.vocabulary_size - 1})."
            )
        return word
    tokenizer = lens.require_tokenizer()
    ids = list(tokenizer.encode(word, add_special_tokens=False))
    whole = (
        tokenizer.convert_tokens_to_ids(word)
        if hasattr(tokenizer, "convert_tokens_to_ids")
        else None
    )
    if (
        len(ids) != 1
        and isinstance(whole, int)
        and whole != getattr(tokenizer, "unk_token_id", None)
    ):
        ids = [whole]
    if len(ids) != 1:
        pieces = " ".join(
            f"{piece} (#{i})" for i, piece in zip(ids, display(tokenizer, ids), strict=True)
        )
        raise BadInput(
            f"The target '{word}' must be one token, but it is "
            f"{len(ids)}{': ' + pieces if ids else ''}; choose one of them by #ID, or give a "
            "whole continuation."
        )
    return int(ids[0])


# ---- Units: which tokens are looked at together

UnitKind = Literal["token", "word", "sentence"]
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]+")
SENTENCE = re.compile(r"\S.*?(?:[.!?…。！？]+[\"'”’)\]]*(?=\s|$)|\n|$)|\S.*?[。！？]", re.DOTALL)


@dataclass(frozen=True)
class Unit:
    """Tokens that are attributed together: their indices, in order, and a text to show."""

    tokens: tuple[int, ...]
    text: str


def find_units(prompt: Prompt, units: UnitKind = "token") -> list[Unit]:
    """Cut a prompt into tokens, words (letters and digits together, signs together) or sentences;
    each token is in one unit.
    """
    owner: list[int | None] = [None] * len(prompt)
    if units != "token":
        starts = [
            match.start() for match in (WORD if units == "word" else SENTENCE).finditer(prompt.text)
        ]
        owner = [_piece(prompt, index, starts) for index in range(len(prompt))]
    # A token of no piece is a group by itself: no other has its negative index.
    own = groupby(
        range(len(prompt)), lambda index: -1 - index if owner[index] is None else owner[index]
    )
    groups = [tuple(group) for _, group in own]
    return [Unit(group, "".join(prompt.tokens[i] for i in group)) for group in groups]


def _piece(prompt: Prompt, index: int, starts: list[int]) -> int | None:
    """The piece that holds the token's first visible character; None for a special token, which
    stands alone.
    """
    first, last = prompt.offsets[index]
    if prompt.special[index] or last <= first:
        return None
    inner = prompt.text[first:last]
    # A space of its own goes with what follows, a line end with what it ends.
    blank = first if "\n" in inner else last
    visible = first + len(inner) - len(inner.lstrip()) if inner.strip() else blank
    return max(int(np.searchsorted(starts, visible, side="right")) - 1, 0) if starts else None


def spread(values: Scores, units: Sequence[Unit], length: int) -> Scores:
    """Scores of units [S, n] spread evenly over their tokens [S, length], so that sums stay what
    they were.

    >>> spread(np.array([[2.0, 6.0]]), [Unit((0,), "a"), Unit((1, 2), "bc")], 3)
    array([[2., 3., 3.]])
    """
    tokens = np.zeros((*values.shape[:-1], length))
    for k, unit in enumerate(units):
        tokens[..., list(unit.tokens)] = values[..., k, None] / len(unit.tokens)
    return tokens


def gathered(scores: Scores, units: Sequence[Unit]) -> Scores:
    return np.stack([scores[..., list(unit.tokens)].sum(-1) for unit in units], axis=-1)


def substitute_vector(engine: Engine, choice: str | int) -> tuple[Tensor | None, str]:
    """The embedding [e] that stands for an absent token, and its name; None for removal.

    `choice` is "auto" (the tokenizer's mask, padding, end-of-text or unknown token, the first there
    is; else "mean"), "mask", "pad", "eos", "bos", "unk", "mean" (of the embedding table), "zero",
    "remove", or a token, as its text, its id or "#ID".
    """
    lens = engine.lens

    def special(name: str) -> int | None:
        token = getattr(
            engine.model.config if lens.tokenizer is None else lens.tokenizer,
            f"{name}_token_id",
            None,
        )
        return token if isinstance(token, int) and 0 <= token < lens.vocabulary_size else None

    if choice == "auto":
        choice = next(
            (name for name in ("mask", "pad", "eos", "unk") if special(name) is not None), "mean"
        )
    if choice == "remove":
        return None, "remove"
    if choice == "zero":
        return torch.zeros_like(engine.embed(torch.tensor([0]))[0]), "zero"
    if choice == "mean":
        ids = torch.arange(lens.vocabulary_size).split(8192)
        total = torch.stack([engine.embed(part).double().sum(0) for part in ids]).sum(0)
        return (total / lens.vocabulary_size).to(lens.input_embeddings.dtype), "mean"
    if choice in ("mask", "pad", "eos", "bos", "unk"):
        if (token := special(str(choice))) is None:
            raise BadInput(
                f"The tokenizer of '{lens.name}' has no {choice} token; use mean, zero, remove or "
                "a token."
            )
    else:
        token = one_token(lens, choice)
    return engine.embed(torch.tensor([token]))[0], str(choice)
