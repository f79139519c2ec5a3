"""Which models are compared, at which sites and on which prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import BadInput, Given, Option, TextRecord
from headscan.text.prompts import PromptsLike, read_prompts
from headscan.text.windows import Windows

VARIANTS: dict[str, dict[str, str | bool]] = {
    "whole": {},
    "attention": {"only": "attention"},
    "mlp": {"only": "mlp"},
    "no-residual": {"residual": False},
    "causal": {"causal": True},
    "no-mask": {"causal": False},
    "fresh": {"weights": "fresh:0"},
}
"""Name -> what of the model is left (the attributes of a `Slice`). "fresh" has random weights."""


def names_of(name: str) -> list[str]:
    """The cuts that a name joins with +; BadInput where one is none.

    >>> names_of("attention+fresh")
    ['attention', 'fresh']
    """
    names = name.split("+")
    if unknown := [part for part in names if part not in VARIANTS]:
        raise BadInput(f"There is no cut '{unknown[0]}'; there are: {', '.join(VARIANTS)} (joined with +).")
    return names


def variant(name: str, sites: Sequence[str]) -> Slice:
    """The slice of that name which ends at `sites`.

    >>> str(variant("attention", ["block.0"]))
    'block.0 only=attention'
    """
    cut = Slice(sites=tuple(sites))
    for part in names_of(name):
        cut = cut.but(**VARIANTS[part])
    return cut


# ---- What `headscan flow` and `headscan channel` can be asked for.

WINDOWS, LENGTH = 8, 16


Prompts = Annotated[
    PromptsLike | None, Option("A prompt; repeat it to average over several.", content=True, repeat=True)
]
WindowCount = Annotated[
    int | None, Option(f"Windows of --length tokens taken from the text's beginning. Default: {WINDOWS}.", low=1)
]
Length = Annotated[
    int | None, Option(f"Tokens of each prompt. Default: those of the shortest; {LENGTH} of a text.", low=2)
]
SiteGlobs = Annotated[str | Sequence[str], Option("Globs of sites, comma-separated.")]
Cuts = Annotated[
    str | Sequence[str],
    Option(f"What of the model is left: {', '.join(VARIANTS)}; joined with +, several with commas.", name="cut"),
]
RandomWeights = Annotated[bool, Option("Add each model with random weights (the cut fresh).")]


def check(asked: Given) -> None:
    """Raise BadInput where options do not fit together."""
    if asked["prompt"] is None and asked["text"] is None:
        raise BadInput("Give a prompt, or a text that prompts are taken from.")
    if asked["windows"] is not None and asked["text"] is None:
        raise BadInput("--windows is not used without --text: prompts are taken as they are.")
    for name in cut_names(asked):
        names_of(name)


def cut_names(asked: Given) -> list[str]:
    names = listed(asked["cuts"]) + (["fresh"] if asked["null"] else [])
    if not names:
        raise BadInput(f"Name at least one cut: {', '.join(VARIANTS)}.")
    return list(dict.fromkeys(names))


def listed(words: str | Sequence[str]) -> list[str]:
    """Words that are given as a list, or as one text with commas.

    >>> listed("a, b"), listed(["a", "b,c"])
    (['a', 'b'], ['a', 'b', 'c'])
    """
    given = [words] if isinstance(words, str) else words
    return [word.strip() for part in given for word in part.split(",") if word.strip()]


def find_sites(lens: Lens, at: str | Sequence[str]) -> tuple[str, ...]:
    """The sites that the globs match; of an encoder-decoder those of the encoder, which all see the same tokens.

    Raises:
        BadInput: a glob matches nothing, or only what the decoder has.
    """
    sites = lens.match(at)
    if not lens.traits.encoder_decoder:
        return sites
    encoder = tuple(site for site in sites if site.startswith("encoder."))
    if not encoder:
        raise BadInput(
            f"In an encoder-decoder such as '{lens.name}' the encoder is looked at: choose --at 'encoder.block.*'."
        )
    return encoder


def find_prompts(lens: Lens, asked: Given) -> tuple[Int[Tensor, "N T"], TextRecord | None]:
    """Token ids, each prompt cut to the length of the shortest; and the record of the text they come from.

    Raises:
        BadInput: no prompt, one of a single token, one longer than the context.
    """
    rows: list[list[int]] = []
    record = None
    if asked["prompt"] is not None:
        # Prompts are cut before their length counts.
        limits = replace(lens.limits, context=None)
        rows += [list(prompt.ids) for prompt in read_prompts(asked["prompt"], lens.tokenizer, limits, special=False)]
    if asked["text"] is not None:
        count, size = asked["windows"] or WINDOWS, asked["length"] or LENGTH
        windows = Windows(asked["text"], lens.require_tokenizer(), size, max_tokens=count * size)
        rows += [window.ids.tolist() for window in windows]
        record = windows.record()
    least = min([len(row) for row in rows] + ([asked["length"]] if asked["length"] is not None else []))
    if least < 2:
        raise BadInput("A prompt of one token has no two tokens that could know of each other; give at least two.")
    if lens.context_length is not None and least > lens.context_length:
        raise BadInput(f"The prompt has {least} tokens, but '{lens.name}' takes at most {lens.context_length}.")
    return torch.tensor([row[:least] for row in rows]), record
