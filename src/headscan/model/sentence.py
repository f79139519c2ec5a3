"""The sentence vectors of an encoder, made as its folder or its live modules say."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn

from headscan.run import BadInput
from headscan.run.files import leads_out, read_at_most

SENTENCE = "sentence"
"""The site of the vector that a sentence encoder is shipped for; sentence-transformers calls it its
sentence embedding.
"""
Pooling = Literal["mean", "first", "last"]
POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "cls": lambda states: states[:, 0],
    "max": lambda states: states.amax(1),
    "mean": lambda states: states.mean(1),
    "mean_sqrt_len_tokens": lambda states: states.sum(1) / states.shape[1] ** 0.5,
    "lasttoken": lambda states: states[:, -1],
}
"""The poolings of sentence-transformers, of states [B, T, d] without padding.

Where a model has several, their vectors are joined in this order.
"""
POOLING_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "lasttoken": "pooling_mode_lasttoken",
    "weightedmean": "pooling_mode_weightedmean_tokens",
}
"""The fields by which older files of sentence-transformers say how they pool."""
POOLING_NAMES: dict[str, Pooling] = {"cls": "first", "mean": "mean", "lasttoken": "last"}


@dataclass(frozen=True, eq=False, repr=False)
class SentenceHead:
    """Maps last hidden states [B, T, d] of B texts without padding to their sentence vectors.

    The vectors [B, width] are those that `encode` of sentence-transformers makes.

    Attributes:
        steps: dense layers and normalisation, in their order.
        length: tokens of the longest text, special ones included; None where there is no limit.
        weights: of the dense layers.
        settings: of a live encoder, what its modules say of themselves.
    """

    pooling: tuple[str, ...]
    steps: tuple[Callable[[Tensor], Tensor], ...]
    width: int
    length: int | None
    weights: tuple[Tensor, ...] = ()
    settings: tuple[str, ...] = ()

    def __call__(self, states: Float[Tensor, "B T d"]) -> Float[Tensor, "B width"]:
        vectors = torch.cat([POOLINGS[name](states) for name in self.pooling], dim=-1)
        for step in self.steps:
            vectors = step(vectors)
        return vectors


@dataclass(frozen=True, eq=False)
class DenseLayer:
    """A dense layer of sentence-transformers: activation(x Wᵀ + b)."""

    weight: Tensor
    bias: Tensor | None
    activation: Callable[[Tensor], Tensor]

    def __call__(self, vectors: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(vectors)
        linear = torch.nn.functional.linear(vectors, self.weight.to(vectors), bias)
        return self.activation(linear)


@dataclass(frozen=True)
class EncoderModule:
    """A module of sentence-transformers: its kind, its options, and how a dense layer is made."""

    kind: str
    options: Any
    dense: Callable[[], DenseLayer]


def _declared(folder: str | Path | None, file: str) -> Any:
    """Return what a JSON file in a model's folder declares; None where it cannot be read."""
    try:
        path = Path(folder or "") / file
        return json.loads(read_at_most(path)) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None


def _modes(options: Any) -> tuple[str, ...]:
    """Return the poolings that a Pooling's config.json names, in the newer or the older format."""
    if not isinstance(options, dict):
        return ()
    named = options.get("pooling_mode")
    if isinstance(named, str):
        return (named,)
    if named:
        return tuple(named)
    return tuple(name for name, flag in POOLING_FLAGS.items() if options.get(flag))


def declared_pooling(folder: str | Path | None) -> Pooling | None:
    """Return the pooling that a model's folder declares (`1_Pooling/config.json`).

    None: it declares none, or another one than the three.

    >>> declared_pooling("no/such/folder") is None
    True
    """
    modes = _modes(_declared(folder, "1_Pooling/config.json"))
    return POOLING_NAMES.get(modes[0]) if len(modes) == 1 else None


def sentence_head(
    folder: str | Path | None, name: str, width: int, context: int | None
) -> SentenceHead | None:
    """Return what makes the sentence vectors of a sentence encoder, as its folder declares it.

    None: the folder is not that of a sentence encoder (it has no `modules.json`).

    Args:
        name: of the model, for messages.
        width: of the last hidden states.
        context: the longest input of the model, in tokens.

    Raises:
        BadInput: where the folder declares a step that headscan does not do: `encode` would give
            another vector.

    >>> sentence_head("no/such/folder", "none", 8, None) is None
    True
    """
    declared = _declared(folder, "modules.json")
    if folder is None or declared is None:
        return None
    modules = []
    for kind, module_folder in _module_folders(Path(folder), declared):
        options: Any = {}
        if kind in ("Pooling", "Dense"):
            options = _module_options(Path(folder), module_folder)
        dense = partial(_saved_dense, name, module_folder, options)
        modules.append(EncoderModule(kind, options, dense))
    longest = _longest_text(folder, name)
    limits = [length for length in (longest, context) if length]
    return _head_of(modules, name, width, min(limits, default=None))


def live_sentence_head(
    encoder: nn.Module, name: str, width: int, context: int | None
) -> SentenceHead | None:
    """Return the head of a live SentenceTransformer, made of its modules as they are now.

    None: it has no pooling. The arguments are those of `sentence_head`.

    Raises:
        BadInput: where `encode` does what headscan does not.
    """
    children = list(encoder.children())
    transformer = children[0]
    if getattr(transformer, "do_lower_case", False):
        raise _unsupported(name, "writes its texts in small letters first")
    prompt = getattr(encoder, "default_prompt_name", None)
    if prompt:
        raise _unsupported(name, f"puts the prompt '{prompt}' before its texts")
    if getattr(encoder, "truncate_dim", None) is not None:
        raise _unsupported(name, "cuts its vectors off (truncate_dim)")

    modules = []
    for child in children:
        live: Any = child
        options: Any = live.get_config_dict() if hasattr(live, "get_config_dict") else {}
        dense = partial(_live_dense, name, live)
        modules.append(EncoderModule(type(child).__name__, options, dense))
    longest = getattr(transformer, "max_seq_length", None)
    limits = [length for length in (longest, context) if length]
    head = _head_of(modules, name, width, min(limits, default=None))
    if head is None:
        return None
    settings = tuple(f"{module.kind} {module.options}" for module in modules)
    return replace(head, settings=settings)


def _head_of(
    modules: Sequence[EncoderModule], name: str, width: int, length: int | None
) -> SentenceHead | None:
    """Return what sentence-transformers' modules make of last hidden states; None without pooling.

    Raises:
        BadInput: for a module that headscan does not know.
    """
    steps: list[Callable[[Tensor], Tensor]] = []
    weights: list[Tensor] = []
    pooling: tuple[str, ...] = ()
    for module in modules:
        if module.kind == "Pooling":
            pooling = _modes(module.options) or ("mean",)
            unknown = [mode for mode in pooling if mode not in POOLINGS]
            if unknown:
                raise _unsupported(name, f"pools by {unknown[0]}")
            width *= len(pooling)
        elif module.kind == "Dense":
            dense = module.dense()
            steps.append(dense)
            weights += [tensor for tensor in (dense.weight, dense.bias) if tensor is not None]
            width = int(module.options.get("out_features", 0))
        elif module.kind == "Normalize":
            steps.append(partial(torch.nn.functional.normalize, dim=-1))
        elif module.kind not in ("Transformer", "Dropout"):
            raise _unsupported(name, f"has a module {module.kind}")
    if not pooling:
        return None
    return SentenceHead(pooling, tuple(steps), width, length, tuple(weights))


def _module_folders(folder: Path, modules: Any) -> list[tuple[str, Path]]:
    """Return the kind and the folder of each module that modules.json lists."""
    try:
        return [
            (str(module["type"]).rpartition(".")[2], folder / str(module["path"]))
            for module in modules
        ]
    except (TypeError, KeyError):
        raise BadInput(
            f"The file '{folder}/modules.json' names no modules of sentence-transformers."
        ) from None


def _module_options(folder: Path, module_folder: Path) -> dict[str, Any]:
    options = _declared(module_folder, "config.json")
    if leads_out(folder, module_folder) or not isinstance(options, dict):
        raise BadInput(
            f"The folder '{module_folder}', which modules.json names, has no config.json inside "
            "the model's folder."
        )
    return options


def _longest_text(folder: str | Path, name: str) -> int | None:
    """Return the tokens of the longest text that `encode` reads; None where no limit is declared.

    Raises:
        BadInput: where `encode` changes its texts first.
    """
    reading = _declared(folder, "sentence_bert_config.json") or {}
    if reading.get("do_lower_case"):
        raise _unsupported(name, "writes its texts in small letters first")
    prompts = _declared(folder, "config_sentence_transformers.json") or {}
    prompt = prompts.get("default_prompt_name")
    if prompt:
        raise _unsupported(name, f"puts the prompt '{prompt}' before its texts")
    length: int | None = reading.get("max_seq_length")
    return length


def _saved_dense(name: str, module_folder: Path, options: dict[str, Any]) -> DenseLayer:
    """Return a dense layer from the files of a sentence encoder."""
    activation_name = str(options.get("activation_function") or "Tanh").rpartition(".")[2]
    activation_class = getattr(nn, activation_name, None)
    weights = module_folder / "model.safetensors"
    known = isinstance(activation_class, type) and weights.is_file()
    if options.get("use_residual") or activation_class is None or not known:
        raise _unsupported(
            name,
            f"has a dense layer, {module_folder.name}, of another kind than activation(linear) in "
            "safetensors",
        )
    tensors = load_file(weights)
    return DenseLayer(tensors["linear.weight"], tensors.get("linear.bias"), activation_class())


def _live_dense(name: str, module: Any) -> DenseLayer:
    """Return a dense layer from a live module of sentence-transformers."""
    vector = "sentence_embedding"
    reads = getattr(module, "module_input_name", vector)
    writes = getattr(module, "module_output_name", vector)
    if getattr(module, "use_residual", False) or reads != vector or writes != vector:
        raise _unsupported(
            name, "has a dense layer of another kind than activation(linear) of the pooled vector"
        )
    bias = module.linear.bias
    return DenseLayer(
        module.linear.weight.detach(),
        None if bias is None else bias.detach(),
        module.activation_function,
    )


def _unsupported(name: str, property_of_encoder: str) -> BadInput:
    return BadInput(
        f"The sentence encoder '{name}' {property_of_encoder}, which headscan does not do: to look "
        "at its tokens alone, copy its folder without modules.json, or pass the transformers model "
        "inside a live one."
    )
