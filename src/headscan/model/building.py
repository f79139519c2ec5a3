"""Building a model from its configuration: tried without memory first, so that what cannot be is refused in a sentence."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from headscan.model.quiet import quiet
from headscan.model.source import reason
from headscan.run import BadInput

__all__ = ["Blank", "ModelSize", "build", "estimate_size", "hollow"]

DEPTHS = ("num_hidden_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers", "n_layer")
SIZES = ("vocab_size", "hidden_size", "num_attention_heads", *DEPTHS)
# Blocks up to which the whole model is tried; deeper ones are tried with one and with two, and the rest is counted.
WHOLE = 256
# Bytes of Python's objects for a block, whatever its width.
OBJECTS = 50_000


@dataclass(frozen=True)
class ModelSize:
    """How large a model will be: entries of its weights and buffers, and its blocks."""

    entries: int
    blocks: int

    def bytes(self, each: float) -> float:
        """Memory in bytes, at so many bytes an entry."""
        return self.entries * each + self.blocks * OBJECTS


def build(family: Any, config: Any, dtype: torch.dtype, trust_remote_code: bool = False) -> Any:
    """A model of a class or an Auto class with the weights that the random state gives."""
    with quiet():
        if hasattr(family, "from_config"):
            return family.from_config(config, dtype=dtype, trust_remote_code=trust_remote_code)
        return family._from_config(config, dtype=dtype)


@dataclass(frozen=True, repr=False)
class Blank:
    """A model but for its weights: class, configuration, precision and device, and nothing of its memory."""

    family: type[Any]
    config: Any
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, model: Any) -> Self:
        """What is left of a model when its weights are taken away."""
        return cls(type(model), without_quantization(model.config), model.dtype, model.device)

    def __repr__(self) -> str:
        return f"Blank({self.family.__name__})"

    def first_block(self) -> Self:
        """The same with one block. Where a family's first weights depend on the depth (GPT-2's), it stays as deep."""
        source = inspect.getsource(self.family._init_weights)
        if any(name in source for name in DEPTHS):
            return self
        return replace(self, config=_shortened(self.config, 1, above=1))

    def drawn(self, seed: int) -> Any:
        """Such a model with fresh weights drawn from `seed`, in evaluation mode; the random state is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = build(self.family, self.config, self.dtype)
        return fresh.to(self.device).eval()


def without_quantization(config: Any) -> Any:
    """A copy of the configuration without quantisation, which fresh weights do not have."""
    config = copy.deepcopy(config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def estimate_size(family: Any, config: Any, name: str, trust_remote_code: bool = False) -> ModelSize:
    """How large the model of a configuration will be, found by building it without memory (torch's device 'meta').

    Raises:
        BadInput: nothing can be built from the configuration; the sentence says what it is about.

    Cost: milliseconds (34 for Llama 7B), whatever the configuration says.

    >>> from transformers import AutoModelForCausalLM, GPT2Config
    >>> estimate_size(AutoModelForCausalLM, GPT2Config(), "gpt2")
    ModelSize(entries=124439808, blocks=12)
    """
    for part in _parts(config):
        for field in SIZES:
            value, least = getattr(part, field, None), int(field in SIZES[:2])
            if isinstance(value, int) and value < least:
                raise BadInput(
                    f"The configuration of '{name}' is at fault: {field} is {value} and must be at least {least}."
                )
    config = without_quantization(config)
    depth = max((value for part in _parts(config) for _, value in _depths(part)), default=0)
    try:
        if depth <= WHOLE:
            return ModelSize(_entries(family, config, trust_remote_code), depth)
        one, two = (_entries(family, _shortened(config, count), trust_remote_code) for count in (1, 2))
    except BadInput:
        raise
    except Exception as error:  # a model's own code raises what it likes
        raise BadInput(f"The configuration of '{name}' is at fault: {reason(error)}.") from error
    return ModelSize(one + (two - one) * (depth - 1), depth)


def hollow(family: Any, config: Any, trust_remote_code: bool = False) -> Any:
    """The model of a configuration without memory for its weights (on torch's device 'meta')."""
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        return build(family, without_quantization(config), torch.float32, trust_remote_code)


def _entries(family: Any, config: Any, trust_remote_code: bool) -> int:
    model = hollow(family, config, trust_remote_code)
    return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))


def _parts(config: Any) -> Iterator[Any]:
    """A configuration and those inside it (the text and the picture part of a model that reads both)."""
    yield config
    for value in vars(config).values():
        if type(value).__name__.endswith("Config") and hasattr(value, "to_dict") and hasattr(value, "model_type"):
            yield from _parts(value)


def _depths(config: Any) -> Iterator[tuple[str, int]]:
    for field in DEPTHS:
        value = getattr(config, field, None)
        if isinstance(value, int) and not isinstance(value, bool):
            yield field, value


def _shortened(config: Any, count: int, above: int = WHOLE) -> Any:
    """A copy with so many blocks, where there are more than `above`; lists of something of each block are cut as well."""
    config = copy.deepcopy(config)
    for part in _parts(config):
        deep = {value for _, value in _depths(part) if value > above}
        for field, value in list(_depths(part)):
            if value in deep:
                setattr(part, field, count)
        for field, value in list(vars(part).items()):
            if isinstance(value, list) and len(value) in deep:
                setattr(part, field, value[:count])
    return config
