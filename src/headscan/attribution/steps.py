"""The predictions that are explained: of a prompt, of a continuation, or a sentence vector."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headscan.attribution.engine import Engine
from headscan.attribution.target import (
    AttributionTarget,
    TargetKind,
    TargetStep,
    kind_of,
    one_token,
)
from headscan.model import Lens
from headscan.run import BadInput
from headscan.text.prompts import Prompt, read_prompt

POOLING_PHRASES = {
    "mean": "the mean over tokens",
    "first": "the first token's",
    "last": "the last token's",
}


@dataclass(frozen=True)
class TargetRequest:
    """The options of `attribute` that say what is explained.

    Attributes:
        token: the token to explain, its text or #ID; None: the model's prediction.
        against: the token to contrast with; for a sentence vector, another text.
        continuation: a text, every token of which is explained.
        generate: the tokens of a greedy continuation, every one of which is explained.

    Raises:
        BadInput: for options that do not fit together.
    """

    target: TargetKind = "next"
    token: str | int | None = None
    against: str | int | None = None
    continuation: str | None = None
    generate: int | None = None

    def __post_init__(self) -> None:
        kind_of(self.target, self.against)
        if self.continuation is not None and self.generate is not None:
            raise BadInput("Give --continuation or --generate, not both.")
        names_token = self.token is not None or self.against is not None
        if self.explains_continuation and names_token:
            raise BadInput("A continuation names its own tokens: leave --token and --against out.")

    @property
    def kind(self) -> str:
        """The kind of number that is explained."""
        return kind_of(self.target, self.against)

    @property
    def explains_continuation(self) -> bool:
        """Return whether several tokens are explained, of a continuation."""
        return self.continuation is not None or self.generate is not None


def asks_for_sentence(lens: Lens, request: TargetRequest) -> bool:
    """Return whether the sentence vector is explained.

    It is where that is asked for, and of encoders that can predict no token.

    Raises:
        BadInput: for options that name tokens to predict.
    """
    predicts_nothing = "head" not in lens.sites and not lens.traits.causal
    is_default = request.target == "next" and predicts_nothing
    if request.target != "sentence" and not is_default:
        return False
    if request.explains_continuation or request.token is not None:
        raise BadInput(
            "A sentence vector predicts no token: leave --token, --continuation and --generate out."
        )
    return True


def find_steps(
    engine: Engine, prompt: Prompt, request: TargetRequest
) -> tuple[Prompt, tuple[TargetStep, ...]]:
    """Return the predictions to explain, and the prompt with the continuation that they depend on.

    Raises:
        BadInput: for a text that is not one token, a mask that is missing, and a continuation that
            the model cannot write or take.
    """
    against = None if request.against is None else one_token(engine.lens, request.against)
    token = None if request.token is None else one_token(engine.lens, request.token)
    if request.explains_continuation:
        prompt, steps = _continuation_steps(engine, prompt, request)
    else:
        steps = _prompt_steps(engine, prompt, token, against)
    if any(step.token == step.against for step in steps):
        raise BadInput(
            "A token cannot be compared with itself: choose another --against, or name the --token."
        )
    return prompt, steps


def _prompt_steps(
    engine: Engine, prompt: Prompt, token: int | None, against: int | None
) -> tuple[TargetStep, ...]:
    """Return the prediction after the prompt, or those at the masks of a masked model."""
    positions = [len(prompt) - 1] if engine.causal else _masks(engine.lens, prompt)
    if token is None:
        tokens = _predicted(engine, prompt.ids, positions)
    else:
        tokens = [token] * len(positions)
    return tuple(
        TargetStep(position, predicted, against)
        for position, predicted in zip(positions, tokens, strict=True)
    )


def _predicted(engine: Engine, ids: Sequence[int], positions: list[int]) -> list[int]:
    """Return the model's likeliest tokens at positions."""
    with torch.no_grad():
        logits = engine.logits(engine.embed(torch.tensor([list(ids)])), positions)[0]
    return [int(token) for token in logits.argmax(-1)]


def _masks(lens: Lens, prompt: Prompt) -> list[int]:
    """Return the positions of the masks in a prompt."""
    mask_id = getattr(lens.tokenizer, "mask_token_id", None)
    positions = [
        index for index, token in enumerate(prompt.ids) if mask_id is not None and token == mask_id
    ]
    if not positions:
        mask = getattr(lens.tokenizer, "mask_token", None) or "the mask token"
        raise BadInput(
            f"'{lens.name}' fills masks: put {mask} where the prompt is to be completed."
        )
    return positions


def _continuation_steps(
    engine: Engine, prompt: Prompt, request: TargetRequest
) -> tuple[Prompt, tuple[TargetStep, ...]]:
    """Return the predictions of a continuation's tokens, and the prompt with all but the last."""
    lens = engine.lens
    if engine.masked:
        raise BadInput(f"'{lens.name}' fills masks; it continues no text.")
    if request.continuation is not None:
        ids = _continuation_ids(lens, prompt, request.continuation)
    else:
        ids = _generated_ids(engine, prompt, request.generate or 1)
    total = len(prompt) + len(ids)
    longest = lens.context_length
    if longest is not None and total - 1 > longest:
        raise BadInput(
            f"Prompt and continuation have {total} tokens, but '{lens.name}' takes at most "
            f"{longest}."
        )
    first = len(prompt) - 1
    steps = tuple(TargetStep(first + index, token) for index, token in enumerate(ids))
    return prompt.extended(lens.tokenizer, ids[:-1]), steps


def _continuation_ids(lens: Lens, prompt: Prompt, continuation: str) -> list[int]:
    """Return the tokens of a continuation, as they are when it follows the prompt's text."""
    tokenizer = lens.require_tokenizer()
    joined_ids = list(tokenizer.encode(prompt.text + continuation, add_special_tokens=False))
    prompt_ids = [
        token for token, special in zip(prompt.ids, prompt.special, strict=True) if not special
    ]
    if joined_ids[: len(prompt_ids)] == prompt_ids:
        ids = joined_ids[len(prompt_ids) :]
    else:
        ids = tokenizer.encode(continuation, add_special_tokens=False)
    if not ids:
        raise BadInput("The continuation is empty.")
    return [int(token) for token in ids]


def _generated_ids(engine: Engine, prompt: Prompt, count: int) -> list[int]:
    """Return the tokens of a greedy continuation."""
    lens = engine.lens
    longest = lens.context_length
    if longest is not None and len(prompt) + count - 1 > longest:
        raise BadInput(
            f"The prompt of {len(prompt)} tokens and {count} more exceed the context of "
            f"'{lens.name}', {longest} tokens."
        )
    ids: list[int] = []
    while len(ids) < count:
        last_position = len(prompt) + len(ids) - 1
        ids += _predicted(engine, [*prompt.ids, *ids], [last_position])
    return ids


def sentence_target(
    engine: Engine, prompt_ids: Sequence[int], against: str | int | None
) -> AttributionTarget:
    """Return the cosine of the prompt's sentence vector with a fixed one.

    That is the one of the whole prompt, so that a token's score is how far the vector turns without
    it, or the one of another text (`against`), so that it says why the two are alike.
    """
    lens = engine.lens
    if against is None:
        reference_ids = prompt_ids
        reference = "its own when no token is missing"
    elif isinstance(against, str):
        reference_ids = read_prompt(against, lens.tokenizer, lens.limits).ids
        reference = f"that of '{against}'"
    else:
        raise BadInput(
            "A sentence vector is compared with that of another text: give --against a text."
        )
    pooling = POOLING_PHRASES[engine.pooling]
    if not engine.declared:
        pooling += "; the model's folder names none"
    embeds = engine.embed(torch.tensor([list(reference_ids)]))
    return AttributionTarget(
        kind="sentence",
        steps=(TargetStep(0, None),),
        reference=engine.logits(embeds, [0])[0, 0].float(),
        sentence=f"the cosine of the prompt's sentence vector ({pooling}) with {reference}",
        flat=against is None,
    )
