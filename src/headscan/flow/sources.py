"""Which models are compared, and on which prompts."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from headscan.errors import BadInput
from headscan.model import Lens
from headscan.text.windows import Windows

__all__ = ["find_models", "find_prompts", "wider"]

SCALED = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "word_embed_proj_dim")


def find_models(
    model: str | Lens | Sequence[str | Lens], revisions: str | Sequence[str] | None, widths: Sequence[int], seed: int,
    loading: dict[str, Any],
) -> list[Lens]:  # fmt: skip
    """The models in the order of the result: as given (or each revision), and untrained twins so many times as wide.

    Raises:
        BadInput: revisions of anything but one Hugging Face id.
    """
    given = [model] if isinstance(model, str | Lens) else list(model)
    if not given:
        raise BadInput("Name at least one model.")
    if revisions is not None:
        wanted = revisions.split(",") if isinstance(revisions, str) else list(revisions)
        wanted = [one.strip() for one in wanted if one.strip()]
        if len(given) != 1 or not isinstance(given[0], str) or not wanted:
            raise BadInput("--revisions takes names of revisions, separated by commas, of exactly one Hugging Face id.")
        lenses = []
        for revision in wanted:
            lens = Lens.load(given[0], **(loading | {"revision": revision}))
            lens.name = f"{given[0]}@{revision}"
            lenses.append(lens)
    else:
        lenses = [one if isinstance(one, Lens) else Lens.load(one, **loading) for one in given]
    return lenses + [wider(lens, factor, seed) for lens in list(lenses) for factor in widths]


def wider(lens: Lens, factor: int, seed: int = 0) -> Lens:
    """An untrained model of the same family, `factor` times as wide: features, feed-forward parts and heads.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)), name="m")
    >>> wider(lens, 3).width("block.1")
    24
    """
    config: Any = copy.deepcopy(lens.model.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # fresh weights are not rounded
    if factor < 1 or not isinstance(getattr(config, "hidden_size", None), int):
        raise BadInput(f"'{lens.name}' cannot be built {factor} times as wide.")
    for name in SCALED:
        names = getattr(config, "attribute_map", {})
        if isinstance(value := getattr(config, names.get(name, name), None), int):
            setattr(config, names.get(name, name), value * factor)
    if isinstance(inner := getattr(config, "n_inner", None), int):
        config.n_inner = inner * factor
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = type(lens.model)._from_config(config, dtype=lens.input_embeddings.dtype)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise BadInput(
            f"'{lens.name}' cannot be built {factor} times as wide: {str(error).splitlines()[0]}."
        ) from error
    return Lens(made.to(lens.device).eval(), lens.tokenizer, name=f"{lens.name} (random weights, {factor} x as wide)")


def find_prompts(lens: Lens, prompt: Any, text: Any, count: int, length: int | None) -> tuple[torch.Tensor, Any]:
    """Token ids [N, T], each prompt cut to the length of the shortest; and the account of the text they come from.

    Args:
        lens: whose tokenizer is used.
        prompt: a text, token ids, several of either, or None.
        text: where windows of `length` tokens (16 by default) are taken from, or None.
        count: how many windows.
        length: tokens of a prompt.

    Raises:
        BadInput: no prompt, one of a single token, one longer than the context.
    """
    rows: list[list[int]] = []
    account = None
    if prompt is not None and (isinstance(prompt, str) or (len(prompt) and isinstance(prompt[0], int | np.integer))):
        prompt = [prompt]
    for one in prompt if prompt is not None else []:
        if isinstance(one, str):
            if not one.strip():
                raise BadInput("The prompt is empty.")
            rows.append(lens.require_tokenizer().encode(one, add_special_tokens=False))
        else:
            rows.append([int(i) for i in one])
    if text is not None:
        if count < 1:
            raise BadInput(f"At least one prompt is taken of a text, not {count}.")
        size = 16 if length is None else length
        if size < 2:
            raise BadInput("A prompt of one token has no two tokens that could know of each other; give at least two.")
        windows = Windows(text, lens.require_tokenizer(), size, max_tokens=count * size)
        rows += [window.ids.tolist() for window in windows]
        account = windows.account()
    if not rows or not all(rows):
        raise BadInput("The prompt is empty." if text is None else "The text has no tokens.")
    least = min([len(row) for row in rows] + ([length] if length is not None else []))
    if least < 2:
        raise BadInput("A prompt of one token has no two tokens that could know of each other; give at least two.")
    ids = torch.tensor([row[:least] for row in rows])
    if lens.context_length is not None and least > lens.context_length:
        raise BadInput(f"The prompt has {least} tokens, but '{lens.name}' takes at most {lens.context_length}.")
    if int(ids.max()) >= lens.vocabulary_size or int(ids.min()) < 0:
        raise BadInput(f"Token id {int(ids.max())} is not in the vocabulary of '{lens.name}'.")
    return ids, account
