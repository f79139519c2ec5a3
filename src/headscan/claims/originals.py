"""The models that the claims name, as facts, and whether a slice of one of them can be."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from headscan.model.slicing.specification import SliceSpecification
from headscan.run import BadInput

__all__ = ["ModelFacts", "check_original", "facts_of"]


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What a model's configuration says: family, blocks, width, heads, vocabulary, longest context."""

    family: str
    blocks: int
    width: int
    heads: int
    vocabulary: int
    context: int


@cache
def _facts() -> dict[str, ModelFacts]:
    text = (resources.files("headscan.claims") / "facts" / "models.json").read_text(encoding="utf-8")
    return {name: ModelFacts(**facts) for name, facts in json.loads(text).items()}


def facts_of(model: str) -> ModelFacts:
    """Of a model that a claim names; BadInput where none does.

    >>> facts_of("gpt2").width
    768
    """
    if model not in _facts():
        raise BadInput(f"No claim names the model {model!r}; there are: {', '.join(_facts())}.")
    return _facts()[model]


def check_original(model: str, cut: SliceSpecification | None = None) -> str:
    """A sentence on the model, or BadInput where it has no such block or feature.

    >>> check_original("gpt2")
    'gpt2: 12 blocks of width 768, V = 50,257'
    """
    facts = facts_of(model)
    for site in cut.sites if cut is not None else ():
        found = re.match(r"block\.(\d+)", site)
        if found and int(found[1]) >= facts.blocks:
            raise BadInput(f"{model} has the blocks 0 to {facts.blocks - 1}; there is no {site}.")
    if cut is not None:
        for end in re.findall(r"\d+", cut.features) if not cut.features.startswith("random") else ():
            if int(end) > facts.width:
                raise BadInput(f"{model} is {facts.width} wide; there are no features {cut.features}.")
    return f"{model}: {facts.blocks} blocks of width {facts.width}, V = {facts.vocabulary:,}"
