"""The sentence vectors of an encoder, made as its folder or its live modules say."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
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


def _weighted_mean(states: Float[Tensor, "B T d"]) -> Float[Tensor, "B d"]:
    """Return the mean of states, the t-th with the weight t."""
    weights = torch.arange(1, states.shape[1] + 1, device=states.device, dtype=states.dtype)
    return (states * weights[:, None]).sum(1) / weights.sum()


POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "cls": lambda states: states[:, 0],
    "max": lambda states: states.amax(1),
    "mean": lambda states: states.mean(1),
    "mean_sqrt_len_tokens": lambda states: states.sum(1) / states.shape[1] ** 0.5,
    "weightedmean": _weighted_mean,
    "lasttoken": lambda states: states[:, -1],
}
"""The poolings of sentence-transformers, of states [B, T, d] without padding."""
POOLING_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The fields by which older files of sentence-transformers say how they pool.

Where a model has several poolings, their vectors are joined in this order.
"""
POOLING_NAMES: dict[str, Pooling] = {"cls": "first", "mean": "mean", "lasttoken": "last"}


TRANSFORMER_CONFIGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
"""The files in which versions of sentence-transformers store how texts are read."""

LONGEST = 2**31
"""Tokenizers without a limit store a larger number."""

Step = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class TextReading:
    """How an encoder reads a text.

    Attributes:
        length: tokens of the longest text, special ones included; None where there is no limit.
        prompt: what stands before each text.
        lower_case: whether texts are written in small letters.
        width: the numbers of a vector that are used; None: all.
    """

    length: int | None = None
    prompt: str = ""
    lower_case: bool = False
    width: int | None = None

    def prepared(self, text: Iterable[str]) -> Iterator[str]:
        """Yield the pieces of a text as the encoder reads it.

        >>> list(TextReading(prompt="query: ", lower_case=True).prepared(["A", "b"]))
        ['query: ', 'a', 'b']
        """
        pieces = [self.prompt] if self.prompt else []
        for piece in chain(pieces, text):
            yield piece.lower() if self.lower_case else piece


@dataclass(frozen=True, eq=False, repr=False)
class SentenceHead:
    """Maps last hidden states [B, T, d] of B texts without padding to their sentence vectors.

    The vectors [B, width] are those that `encode` of sentence-transformers makes.

    Attributes:
        pooling: the poolings, whose vectors are joined.
        steps: dense layers and normalisation, in their order.
        reading: how texts are read.
        token_steps: dense layers of the states, before the pooling.
        weights: of the layers.
        settings: of a live encoder, what its modules say of themselves.
    """

    pooling: tuple[str, ...]
    steps: tuple[Step, ...]
    width: int
    reading: TextReading
    token_steps: tuple[Step, ...] = ()
    weights: tuple[Tensor, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def length(self) -> int | None:
        """Return the tokens of the longest text, special ones included; None without a limit."""
        return self.reading.length

    def __call__(self, states: Float[Tensor, "B T d"]) -> Float[Tensor, "B width"]:
        for step in self.token_steps:
            states = step(states)
        vectors = torch.cat([POOLINGS[name](states) for name in self.pooling], dim=-1)
        for step in self.steps:
            vectors = step(vectors)
        return vectors[:, : self.width]


@dataclass(frozen=True, eq=False)
class DenseLayer:
    """A dense layer of sentence-transformers: activation(x Wᵀ + b), plus x R with a residual.

    `residual`: x itself (True), x through this matrix, or nothing (False).
    """

    weight: Tensor
    bias: Tensor | None
    activation: Step
    residual: Tensor | bool = False

    def __call__(self, vectors: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(vectors)
        linear = torch.nn.functional.linear(vectors, self.weight.to(vectors), bias)
        output = self.activation(linear)
        if isinstance(self.residual, Tensor):
            return output + torch.nn.functional.linear(vectors, self.residual.to(vectors))
        return output + vectors if self.residual else output

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], activation: Step, *, residual: bool) -> "DenseLayer":
        """Return the layer that these tensors of a Dense module make."""
        return cls(
            tensors["linear.weight"].detach(),
            tensors.get("linear.bias"),
            activation,
            tensors.get("residual.weight", residual) if residual else False,
        )

    @property
    def tensors(self) -> list[Tensor]:
        """Return the weights."""
        parts = (self.weight, self.bias, self.residual)
        return [part for part in parts if isinstance(part, Tensor)]


@dataclass(frozen=True)
class EncoderModule:
    """A module of sentence-transformers: its kind, its options, and its weights by name.

    Attributes:
        tensors: returns the weights.
        activation: of a dense layer of a live encoder.
    """

    kind: str
    options: Any
    tensors: Callable[[], Mapping[str, Tensor]]
    activation: Step | None = None


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
    transformer_folder = Path(folder)
    for kind, module_folder in _module_folders(Path(folder), declared):
        options: Any = {}
        if kind in ("Pooling", "Dense", "LayerNorm"):
            options = _module_options(Path(folder), module_folder)
        elif kind == "Transformer":
            transformer_folder = module_folder
        modules.append(EncoderModule(kind, options, partial(_saved_tensors, name, module_folder)))
    settings = _options(folder, "config_sentence_transformers.json")
    longest, lower_case = _text_limits(transformer_folder)
    reading = TextReading(
        _shortest(longest, context),
        _prompt(settings.get("prompts"), settings.get("default_prompt_name")),
        lower_case,
        _count(settings.get("truncate_dim")),
    )
    return _head_of(modules, name, width, reading)


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
    modules = []
    for child in children:
        live: Any = child
        options: Any = live.get_config_dict() if hasattr(live, "get_config_dict") else {}
        activation = getattr(live, "activation_function", None)
        kind = type(child).__name__
        modules.append(EncoderModule(kind, options, live.state_dict, activation))
    prompts = getattr(encoder, "prompts", None)
    reading = TextReading(
        _shortest(getattr(transformer, "max_seq_length", None), context),
        _prompt(prompts, getattr(encoder, "default_prompt_name", None)),
        bool(getattr(transformer, "do_lower_case", False)),
        getattr(encoder, "truncate_dim", None),
    )
    head = _head_of(modules, name, width, reading)
    if head is None:
        return None
    settings = [f"{module.kind} {module.options}" for module in modules]
    return replace(head, settings=(*settings, str(reading)))


def _shortest(longest: int | None, context: int | None) -> int | None:
    limits = [length for length in (longest, context) if length]
    return min(limits, default=None)


def _head_of(
    modules: Sequence[EncoderModule], name: str, width: int, reading: TextReading
) -> SentenceHead | None:
    """Return what sentence-transformers' modules make of last hidden states; None without pooling.

    Raises:
        BadInput: for a module that headscan does not know.
    """
    steps: list[Step] = []
    token_steps: list[Step] = []
    weights: list[Tensor] = []
    pooling: tuple[str, ...] = ()
    for module in modules:
        if module.kind == "Pooling":
            pooling = _poolings(module.options, name, reading)
            width *= len(pooling)
        elif module.kind == "Dense":
            dense = _dense(module, name, pooled=bool(pooling))
            (steps if pooling else token_steps).append(dense)
            weights += dense.tensors
            width = len(dense.weight)
        elif module.kind == "LayerNorm":
            stored = _with(module.tensors(), "norm.weight", name)
            tensors = [stored[f"norm.{part}"].detach() for part in ("weight", "bias")]
            steps.append(partial(_layer_norm, *tensors))
            weights += tensors
        elif module.kind == "Normalize":
            steps.append(partial(torch.nn.functional.normalize, dim=-1))
        elif module.kind not in ("Transformer", "Dropout"):
            raise _unsupported(name, f"has a module {module.kind}")
    if not pooling:
        return None
    if reading.width is not None:
        width = min(width, reading.width)
    return SentenceHead(pooling, tuple(steps), width, reading, tuple(token_steps), tuple(weights))


def _poolings(options: Any, name: str, reading: TextReading) -> tuple[str, ...]:
    """Return the poolings of a Pooling module; BadInput for one that headscan does not do."""
    pooling = _modes(options) or ("mean",)
    unknown = [mode for mode in pooling if mode not in POOLINGS]
    if unknown:
        raise _unsupported(name, f"pools by {unknown[0]}")
    if reading.prompt and options.get("include_prompt") is False:
        raise _unsupported(name, "leaves its prompt out of the pooling")
    return pooling


def _layer_norm(weight: Tensor, bias: Tensor, vectors: Tensor) -> Tensor:
    shape = vectors.shape[-1:]
    return torch.nn.functional.layer_norm(vectors, shape, weight.to(vectors), bias.to(vectors))


def _dense(module: EncoderModule, name: str, *, pooled: bool) -> DenseLayer:
    """Return the dense layer of a module; BadInput where it reads what headscan does not have."""
    options = module.options
    vector = "sentence_embedding" if pooled else "token_embeddings"
    reads = options.get("module_input_name") or "sentence_embedding"
    writes = options.get("module_output_name") or reads
    if reads != vector or writes != vector:
        raise _unsupported(name, f"has a dense layer from {reads} to {writes}")
    activation = module.activation or _activation(options, name)
    tensors = _with(module.tensors(), "linear.weight", name)
    return DenseLayer.of(tensors, activation, residual=bool(options.get("use_residual")))


def _with(tensors: Mapping[str, Tensor], needed: str, name: str) -> Mapping[str, Tensor]:
    """Return weights; BadInput where one of them is missing."""
    if needed not in tensors:
        raise _unsupported(name, f"has a layer without {needed}")
    return tensors


def _activation(options: dict[str, Any], name: str) -> Step:
    """Return the activation that a Dense's config.json names.

    sentence-transformers puts Tanh in place of one that is not torch's.
    """
    path = str(options.get("activation_function") or "torch.nn.Tanh")
    activation_class: Any = nn.Tanh
    if path.startswith("torch."):
        activation_class = getattr(nn, path.rpartition(".")[2], None)
    if not isinstance(activation_class, type):
        raise _unsupported(name, f"has a dense layer with the activation {path}")
    activation: Step = activation_class()
    return activation


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


def _text_limits(folder: Path) -> tuple[int | None, bool]:
    """Return the tokens of the longest text that `encode` reads, and whether it writes them in
    small letters.

    The limit stands in the encoder's own file (its arguments of the tokenizer included), or, since
    version 6, in the tokenizer's; it is None where none is declared.
    """
    configs = [_options(folder, file) for file in TRANSFORMER_CONFIGS]
    config = next((config for config in configs if config), {})
    declared = [config.get("max_seq_length")]
    for arguments in ("processor_kwargs", "tokenizer_args", "tokenizer_kwargs"):
        options = config.get(arguments)
        declared.append(options.get("model_max_length") if isinstance(options, dict) else None)
    declared.append(_options(folder, "tokenizer_config.json").get("model_max_length"))
    longest = next((length for length in map(_count, declared) if length), None)
    return longest, bool(config.get("do_lower_case"))


def _options(folder: str | Path, file: str) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one where there is none."""
    options = _declared(folder, file)
    return options if isinstance(options, dict) else {}


def _count(number: Any) -> int | None:
    """Return a stored number as a count; None for one that is no limit."""
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return int(number) if is_number and 0 < number < LONGEST else None


def _prompt(prompts: Any, name: Any) -> str:
    """Return the prompt of this name; "" where there is none."""
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    return prompt if isinstance(prompt, str) else ""


def _saved_tensors(name: str, module_folder: Path) -> Mapping[str, Tensor]:
    """Return the weights of a module in the files of a sentence encoder."""
    weights = module_folder / "model.safetensors"
    if weights.is_file():
        return load_file(weights)
    weights = module_folder / "pytorch_model.bin"
    if not weights.is_file():
        raise _unsupported(name, f"has no weights in {module_folder.name}")
    try:
        tensors: Mapping[str, Tensor] = torch.load(weights, map_location="cpu", weights_only=True)
    except Exception as error:  # torch rebuilds what the file says, and raises what that raises
        raise _unsupported(name, f"has weights in {module_folder.name} that are damaged") from error
    return tensors


def check_encoder(folder: str | Path) -> None:
    """Raise BadInput for a folder of sentence-transformers that holds no model of transformers."""
    modules = _declared(folder, "modules.json")
    folders = _module_folders(Path(folder), modules) if modules else []
    if not folders:
        return
    kind, module_folder = folders[0]
    if kind == "StaticEmbedding":
        raise static_encoder(str(folder))
    raise BadInput(
        f"The model of the sentence encoder '{folder}' is in a folder of its own, "
        f"'{module_folder}': load it with sentence-transformers and save it again."
    )


def static_encoder(name: str) -> BadInput:
    """Return the refusal of an encoder that is a table of token vectors."""
    return BadInput(
        f"The sentence encoder '{name}' is a static one: a table of token vectors without blocks, "
        "so that no hidden states can be read. Scan the vectors that its encode makes, as an array "
        "or a .npy file, or its table, PATH/model.safetensors."
    )


def _unsupported(name: str, property_of_encoder: str) -> BadInput:
    return BadInput(
        f"The sentence encoder '{name}' {property_of_encoder}, which headscan does not do: to look "
        "at its tokens alone, copy its folder without modules.json, or pass the transformers model "
        "inside a live one."
    )
