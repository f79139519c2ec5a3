"""The models that claims name, and what their configurations say."""

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from headscan.model.slicing.specification import SliceSpecification
from headscan.run import BadInput

RANDOM_TWIN = "fresh:"
"""The beginning of the name of a model's configuration with random weights."""
LLAMAS = ("llama", "mistral", "qwen2", "qwen3")  # one block: RMS norm, rotary positions, gated MLP


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The sizes of a model, as its configuration has them."""

    family: str
    blocks: int
    width: int
    heads: int
    vocabulary: int
    context: int


@cache
def all_facts() -> dict[str, ModelFacts]:
    """Return the facts of every model that a claim names."""
    path = resources.files("headscan_lab.ledger") / "data" / "models.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {name: ModelFacts(**facts) for name, facts in entries.items()}


def facts_of(model: str) -> ModelFacts:
    """Return the facts of a model; raise BadInput where no claim names it.

    >>> facts_of("gpt2").width
    768
    """
    facts = all_facts()
    if model not in facts:
        raise BadInput(f"No claim names the model {model!r}; there are: {', '.join(facts)}.")
    return facts[model]


def check_original(model: str, cut: SliceSpecification | None = None) -> str:
    """Return a sentence on a named model.

    Raises:
        BadInput: where it has no such block or feature.

    >>> check_original("gpt2")
    'gpt2: 12 blocks of width 768, V = 50,257'
    """
    facts = facts_of(model)
    if cut is not None:
        _check_sites(model, facts, cut)
        _check_features(model, facts, cut)
    return f"{model}: {facts.blocks} blocks of width {facts.width}, V = {facts.vocabulary:,}"


def _check_sites(model: str, facts: ModelFacts, cut: SliceSpecification) -> None:
    for site in cut.sites:
        block = re.match(r"block\.(\d+)", site)
        if block is not None and int(block[1]) >= facts.blocks:
            raise BadInput(f"{model} has the blocks 0 to {facts.blocks - 1}; there is no {site}.")


def _check_features(model: str, facts: ModelFacts, cut: SliceSpecification) -> None:
    if cut.features.startswith("random"):
        return
    for end in re.findall(r"\d+", cut.features):
        if int(end) > facts.width:
            raise BadInput(f"{model} is {facts.width} wide; there are no features {cut.features}.")
