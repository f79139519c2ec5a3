"""Models built from configurations: without memory, to measure them, or with fresh weights."""

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from headscan.model.source import quiet, reason
from headscan.run import BadInput

DEPTHS = (
    "num_hidden_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
    "n_layer",
)
"""The fields of configurations that hold numbers of blocks."""
LEAST_SIZES = {"vocab_size": 1, "hidden_size": 1, "num_attention_heads": 0} | dict.fromkeys(
    DEPTHS, 0
)
"""The least value of each field of a configuration that is a size."""
INTEGER_LIMIT = 2**63

BUILT_WHOLE = 256
"""Blocks up to which the whole model is built to measure it; deeper ones are extrapolated."""
OBJECT_BYTES = 50_000
"""Bytes of Python's objects for a block, whatever its width."""


@dataclass(frozen=True)
class ModelSize:
    """The size of a model: the entries of its weights and buffers, and its blocks."""

    entries: int
    blocks: int

    def bytes(self, bytes_per_entry: float) -> float:
        """Return the memory of the model in bytes."""
        return self.entries * bytes_per_entry + self.blocks * OBJECT_BYTES


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw random numbers from a seed in this context; the random states are restored afterwards.

    Tensors are made on the CPU, so that the random states of other devices are not touched:
    `torch.manual_seed` would set those as well.
    """
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def build(family: Any, config: Any, dtype: torch.dtype, trust_remote_code: bool = False) -> Any:
    """Return a model of a class or an Auto class with weights from the global random state."""
    with quiet():
        if hasattr(family, "from_config"):
            return family.from_config(config, dtype=dtype, trust_remote_code=trust_remote_code)
        return family._from_config(config, dtype=dtype)


def without_quantization(config: Any) -> Any:
    """Return a copy of a configuration without quantisation, which fresh weights do not have."""
    config = copy.deepcopy(config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


@dataclass(frozen=True, repr=False)
class Blank:
    """A model without its weights, which holds nothing of the model's memory."""

    family: type[Any]
    config: Any
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, model: Any) -> Self:
        """Return a model's class, configuration, precision and device."""
        return cls(type(model), without_quantization(model.config), model.dtype, model.device)

    def first_block(self) -> Self:
        """Return the same with one block.

        Where a family's first weights depend on the depth (GPT-2's), it stays as deep.
        """
        initialisation = inspect.getsource(self.family._init_weights)
        if any(name in initialisation for name in DEPTHS):
            return self
        return replace(self, config=_shortened(self.config, 1, deeper_than=1))

    def drawn(self, seed: int) -> Any:
        """Return such a model with fresh weights drawn from `seed`, in evaluation mode.

        The random states are left as they were.
        """
        with seeded(seed):
            model = build(self.family, self.config, self.dtype)
        return model.to(self.device).eval()


def estimate_size(
    family: Any, config: Any, name: str, trust_remote_code: bool = False
) -> ModelSize:
    """Return how large the model of a configuration will be.

    It is measured by building the model on torch's device 'meta', in milliseconds (34 for Llama
    7B), whatever the configuration says.

    Raises:
        BadInput: where nothing can be built from the configuration; the sentence says why.

    >>> from transformers import AutoModelForCausalLM, GPT2Config
    >>> estimate_size(AutoModelForCausalLM, GPT2Config(), "gpt2")
    ModelSize(entries=124439808, blocks=12)
    """
    fault = f"The configuration of '{name}' is at fault:"
    _check_numbers(config, fault)
    depths = [depth for part in _parts(config) for depth in _depths(part).values()]
    blocks = max(depths, default=0)
    try:
        if blocks <= BUILT_WHOLE:
            return ModelSize(_entries(family, config, trust_remote_code), blocks)
        one_block = _entries(family, _shortened(config, 1), trust_remote_code)
        two_blocks = _entries(family, _shortened(config, 2), trust_remote_code)
    except BadInput:
        raise
    except Exception as error:  # a model's own code raises what it likes
        raise BadInput(f"{fault} {reason(error)}.") from error
    return ModelSize(one_block + (two_blocks - one_block) * (blocks - 1), blocks)


def hollow(family: Any, config: Any, trust_remote_code: bool = False) -> Any:
    """Return the model of a configuration without memory for its weights (on the device 'meta')."""
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        return build(family, without_quantization(config), torch.float32, trust_remote_code)


def _check_numbers(config: Any, fault: str) -> None:
    """Raise BadInput for sizes that are too small, and for whole numbers that no tensor holds."""
    for part in _parts(config):
        for field, least in LEAST_SIZES.items():
            value = getattr(part, field, None)
            if isinstance(value, int) and value < least:
                raise BadInput(f"{fault} {field} is {value} and must be at least {least}.")
        for field, value in vars(part).items():
            if isinstance(value, int) and abs(value) >= INTEGER_LIMIT:
                raise BadInput(
                    f"{fault} {field} is {value:.3g}, a whole number that no tensor holds."
                )


def _entries(family: Any, config: Any, trust_remote_code: bool) -> int:
    model = hollow(family, config, trust_remote_code)
    return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))


def _parts(config: Any) -> Iterator[Any]:
    """Yield a configuration and those inside it: text and picture of a model that reads both."""
    yield config
    for value in vars(config).values():
        named_so = type(value).__name__.endswith("Config")
        if named_so and hasattr(value, "to_dict") and hasattr(value, "model_type"):
            yield from _parts(value)


def _depths(config: Any) -> dict[str, int]:
    """Return the numbers of blocks in a configuration, by field."""
    values = {field: getattr(config, field, None) for field in DEPTHS}
    return {field: value for field, value in values.items() if type(value) is int}


def _shortened(config: Any, count: int, deeper_than: int = BUILT_WHOLE) -> Any:
    """Return a copy with `count` blocks where there are more than `deeper_than`.

    Lists with an entry for each block are cut as well.
    """
    config = copy.deepcopy(config)
    for part in _parts(config):
        depths = _depths(part)
        deep = {depth for depth in depths.values() if depth > deeper_than}
        for field, depth in depths.items():
            if depth in deep:
                setattr(part, field, count)
        for field, value in list(vars(part).items()):
            if isinstance(value, list) and len(value) in deep:
                setattr(part, field, value[:count])
    return config
