"""Which predictions of a prompt are explained."""

from __future__ import annotations

from collections.abc import Callable

import torch

from headscan.attribution.engine import Engine
from headscan.attribution.settings import Attributing
from headscan.attribution.target import TargetStep, one_token
from headscan.run import BadInput
from headscan.text.prompts import Prompt

__all__ = ["find_steps"]


def find_steps(engine: Engine, prompt: Prompt, settings: Attributing) -> tuple[Prompt, tuple[TargetStep, ...]]:
    """The predictions to explain, and the prompt with as much of the continuation as they rest on.

    In an encoder-decoder what the decoder says before is put into the engine, and stays as it is.

    Raises:
        BadInput: a token that is none, a mask that is missing, a continuation that a model cannot write or take.
    """
    lens = engine.lens
    other = one_token(lens, settings.against) if settings.against is not None else None
    named = one_token(lens, settings.token) if settings.token is not None else None
    if engine.translates:
        ids = _decoded(engine, prompt, settings, named)
        steps = tuple(TargetStep(k, one, other) for k, one in enumerate(ids))
    elif settings.explains_several:
        if not engine.causal:
            raise BadInput(f"'{lens.name}' fills masks; it continues no text.")
        ids = _continued(engine, prompt, settings)
        longest = lens.context_length
        if longest is not None and len(prompt) + len(ids) - 1 > longest:
            raise BadInput(
                f"Prompt and continuation have {len(prompt) + len(ids)} tokens, but '{lens.name}' takes at most {longest}."
            )
        steps = tuple(TargetStep(len(prompt) - 1 + k, one) for k, one in enumerate(ids))
        prompt = prompt.extended(lens.tokenizer, ids[:-1])
    else:
        positions = [len(prompt) - 1] if engine.causal else _masks(engine, prompt)
        chosen = [named] * len(positions) if named is not None else _predicted(engine, prompt.ids, positions)
        steps = tuple(TargetStep(p, one, other) for p, one in zip(positions, chosen, strict=True))
    if any(step.token == step.against for step in steps):
        raise BadInput("A token cannot be put against itself: choose another --against, or name the --token.")
    return prompt, steps


def _predicted(engine: Engine, ids: tuple[int, ...] | list[int], positions: list[int]) -> list[int]:
    """The likeliest token at each position."""
    with torch.no_grad():
        logits = engine.logits(engine.embed(torch.tensor([list(ids)])), positions)[0]
    return [int(i) for i in logits.argmax(-1)]


def _masks(engine: Engine, prompt: Prompt) -> list[int]:
    lens = engine.lens
    mask = getattr(lens.tokenizer, "mask_token_id", None)
    positions = [i for i, one in enumerate(prompt.ids) if mask is not None and one == mask]
    if not positions:
        word = getattr(lens.tokenizer, "mask_token", None) or "the mask token"
        raise BadInput(f"'{lens.name}' fills masks: put {word} where the prompt is to be completed.")
    return positions


def _decoded(engine: Engine, prompt: Prompt, settings: Attributing, named: int | None) -> list[int]:
    """What an encoder-decoder's decoder says, or is given to say."""
    if settings.continuation is not None:
        tokenizer = engine.lens.require_tokenizer()
        ids = _some([int(i) for i in tokenizer.encode(settings.continuation, add_special_tokens=False)])
        engine.decoder_ids = engine.decoder_ids[:1] + ids[:-1]
        return ids
    if named is not None:
        return [named]

    def following(ids: list[int]) -> int:
        engine.decoder_ids = engine.decoder_ids[:1] + ids
        return _predicted(engine, prompt.ids, [len(ids)])[0]

    return _greedy(following, settings.generate or 1)


def _continued(engine: Engine, prompt: Prompt, settings: Attributing) -> list[int]:
    """The tokens of a continuation that is given, or written greedily."""
    if settings.continuation is not None:
        tokenizer = engine.lens.require_tokenizer()
        whole = tokenizer.encode(prompt.text + settings.continuation, add_special_tokens=False)
        plain = [i for i, special in zip(prompt.ids, prompt.special, strict=True) if not special]
        if whole[: len(plain)] == plain:
            return _some(list(whole[len(plain) :]))
        return _some(list(tokenizer.encode(settings.continuation, add_special_tokens=False)))
    wanted = settings.generate or 1
    longest = engine.lens.context_length
    if longest is not None and len(prompt) + wanted - 1 > longest:
        raise BadInput(
            f"The prompt of {len(prompt)} tokens and {wanted} more exceed the context of '{engine.lens.name}', "
            f"{longest} tokens."
        )

    def following(ids: list[int]) -> int:
        said = [*prompt.ids, *ids]
        return _predicted(engine, said, [len(said) - 1])[0]

    return _greedy(following, wanted)


def _greedy(following: Callable[[list[int]], int], count: int) -> list[int]:
    ids: list[int] = []
    while len(ids) < count:
        ids.append(following(list(ids)))
    return ids


def _some(ids: list[int]) -> list[int]:
    if not ids:
        raise BadInput("The continuation is empty.")
    return ids
