"""Which models are compared, at which sites and on which prompts."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.flow.settings import LENGTH, WINDOWS, Comparing, listed
from headscan.model import Lens
from headscan.model.opening import ModelsLike, open_model, open_models
from headscan.run import BadInput, TextRecord
from headscan.text.prompts import read_prompts
from headscan.text.windows import Windows

__all__ = ["find_models", "find_prompts", "find_sites", "wider"]


SCALED = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "word_embed_proj_dim")


def find_models(models: ModelsLike, settings: Comparing) -> list[Lens]:
    """The models in the order of the result: as given (or each revision), and wider ones with random weights.

    Raises:
        BadInput: revisions of anything but one Hugging Face id.
    """
    if settings.revisions is None:
        lenses = list(open_models(models, settings))
    else:
        wanted = listed(settings.revisions)
        only = (
            models if isinstance(models, str) else models[0] if isinstance(models, list) and len(models) == 1 else None
        )
        if not isinstance(only, str) or not wanted:
            raise BadInput("--revisions takes names of revisions, separated by commas, of exactly one Hugging Face id.")
        lenses = [open_model(only, settings.but(revision=revision)) for revision in wanted]
        for lens, revision in zip(lenses, wanted, strict=True):
            lens.name = f"{only}@{revision}"
    return lenses + [wider(lens, factor, settings.seed) for lens in lenses for factor in settings.widths()]


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


def find_sites(lens: Lens, at: str | Sequence[str]) -> tuple[str, ...]:
    """The sites that the globs match; of an encoder-decoder those of the encoder, which all see the same tokens.

    Raises:
        BadInput: a glob matches nothing, or only what the decoder has.
    """
    sites = lens.match(at)
    if not lens.traits.encoder_decoder:
        return sites
    found = tuple(site for site in sites if site.startswith("encoder."))
    if not found:
        raise BadInput(
            f"In an encoder-decoder such as '{lens.name}' the encoder is looked at: choose --at 'encoder.block.*'."
        )
    return found


def find_prompts(lens: Lens, settings: Comparing) -> tuple[Int[Tensor, "N T"], TextRecord | None]:
    """Token ids, each prompt cut to the length of the shortest; and the record of the text they come from.

    Raises:
        BadInput: no prompt, one of a single token, one longer than the context.
    """
    rows: list[list[int]] = []
    record = None
    if settings.prompt is not None:
        # Prompts are cut before their length counts.
        limits = replace(lens.limits, context=None)
        rows += [list(one.ids) for one in read_prompts(settings.prompt, lens.tokenizer, limits, special=False)]
    if settings.text is not None:
        count, size = settings.windows or WINDOWS, settings.length or LENGTH
        windows = Windows(settings.text, lens.require_tokenizer(), size, max_tokens=count * size)
        rows += [window.ids.tolist() for window in windows]
        record = windows.record()
    least = min([len(row) for row in rows] + ([settings.length] if settings.length is not None else []))
    if least < 2:
        raise BadInput("A prompt of one token has no two tokens that could know of each other; give at least two.")
    if lens.context_length is not None and least > lens.context_length:
        raise BadInput(f"The prompt has {least} tokens, but '{lens.name}' takes at most {lens.context_length}.")
    return torch.tensor([row[:least] for row in rows]), record
