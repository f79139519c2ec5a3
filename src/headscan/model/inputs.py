"""What a forward pass is given: checked token ids, and the few extras some families need."""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file
from torch import Tensor, nn

from headscan.model.traits import embedding_table
from headscan.run import BadInput
from headscan.run.files import leads_out

PROBE_SHAPE = (2, 7)
IdsLike = Tensor | npt.NDArray[np.integer[Any]] | Sequence[int] | Sequence[Sequence[int]]
"""Token ids: a tensor, an array or nested lists, [B, T]."""


def context_length(model: Any) -> int | None:
    """The longest input the model was made for, in tokens; None where it sets no limit (BLOOM, T5,
    Mamba).
    """
    config = (
        model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    )
    length = getattr(config, "max_position_embeddings", None)
    if not isinstance(length, int) or length <= 0:
        return None
    for name, module in model.named_modules():
        # RoBERTa and its kin number positions from padding_idx + 1 on, so that many rows of the
        # table serve no token.
        if (
            name.endswith("position_embeddings")
            and isinstance(module, nn.Embedding)
            and module.padding_idx is not None
        ):
            return module.num_embeddings - module.padding_idx - 1
    return length


def probe_inputs(
    model: Any, context: int | None, seed: int
) -> tuple[dict[str, Any], tuple[int, int]]:
    table = embedding_table(model)
    rows = PROBE_SHAPE[0]
    length = min(PROBE_SHAPE[1], context or PROBE_SHAPE[1])
    ids = torch.randint(
        0, table.shape[0], (rows, length), generator=torch.Generator().manual_seed(seed)
    )
    named = (getattr(model.config, f"{name}_token_id", None) for name in ("pad", "bos", "eos"))
    # Llama 3 ends a text by several
    each = (token for one in named for token in (one if isinstance(one, list) else [one]))
    special = {token for token in each if isinstance(token, int)}
    plain = next((i for i in range(table.shape[0]) if i not in special), 0)
    for token in special:
        ids[ids == token] = plain
    ids = ids.to(table.device)
    inputs: dict[str, Any] = {"input_ids": ids, **_without_cache(model)}
    if getattr(model.config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = ids.flip(0)
    return inputs, (rows, length)


@dataclass(frozen=True, eq=False, repr=False)
class ModelInputs:
    """Makes the arguments of one model's forward pass and checks them against what it takes."""

    model: Any
    name: str
    context: int | None  # the longest input in tokens

    @property
    def device(self) -> torch.device:
        return embedding_table(self.model).device

    def forward(
        self,
        input_ids: IdsLike | None,
        inputs_embeds: Float[Tensor, "B T e"] | None,
        attention_mask: IdsLike | None,
        decoder_input_ids: IdsLike | None,
        sites: Sequence[str],
    ) -> dict[str, Any]:
        """The arguments of the model's forward pass, checked. Raises BadInput: neither or both of
        ids and embeddings, ids out of the vocabulary, input longer than the context.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise BadInput("Give either input_ids or inputs_embeds, not both and not neither.")
        inputs: dict[str, Any] = _without_cache(self.model)
        if input_ids is not None:
            inputs["input_ids"] = self.ids(input_ids)
            shape = inputs["input_ids"].shape
        else:
            assert inputs_embeds is not None
            if inputs_embeds.ndim != 3:
                raise BadInput(
                    f"inputs_embeds must have the shape [B, T, e], not {list(inputs_embeds.shape)}."
                )
            inputs["inputs_embeds"] = inputs_embeds.to(self.device)
            shape = inputs_embeds.shape[:2]
            self._check_length(shape[1], "input")
        if attention_mask is not None:
            inputs["attention_mask"] = torch.as_tensor(attention_mask).to(self.device)
        if getattr(self.model.config, "is_encoder_decoder", False):
            inputs |= self._decoder(decoder_input_ids, inputs, shape, sites)
        elif decoder_input_ids is not None:
            raise BadInput(
                f"The model '{self.name}' has no decoder beside its encoder, so it takes no "
                "decoder_input_ids."
            )
        return inputs

    def ids(self, given: IdsLike, what: str = "input") -> Int[Tensor, "B T"]:
        """Token ids as int64 [B, T] on the model's device. Raises BadInput: prompts of unequal
        lengths, no whole numbers, ids out of the vocabulary, more than the context.
        """
        try:
            ids = torch.as_tensor(np.asarray(given) if isinstance(given, (list, tuple)) else given)
        except (ValueError, TypeError, RuntimeError) as error:
            raise BadInput(
                f"The {what} must be whole-number token ids, every prompt of the same length."
            ) from error
        whole = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
        if ids.ndim != 2 or ids.numel() == 0 or not whole:
            raise BadInput(
                f"The {what} must be whole-number token ids of shape [B, T], not "
                f"{list(ids.shape)} {ids.dtype}."
            )
        self._check_length(ids.shape[1], what)
        low, high = (int(value) for value in torch.aminmax(ids))
        size = embedding_table(self.model).shape[0]
        if low < 0 or high >= size:
            raise BadInput(
                f"Token id {low if low < 0 else high} of the {what} is not in the vocabulary of "
                f"'{self.name}' (0 to {size - 1})."
            )
        return ids.to(self.device, torch.int64)

    def _decoder(
        self,
        given: IdsLike | None,
        inputs: dict[str, Any],
        shape: Sequence[int],
        sites: Sequence[str],
    ) -> dict[str, Tensor]:
        """What the decoder is given; by default the encoder's input behind the start token, without
        its last.
        """
        if given is not None:
            return {"decoder_input_ids": self.ids(given, "decoder input")}
        begin = torch.full((shape[0], 1), self.decoder_start, dtype=torch.int64, device=self.device)
        if "input_ids" in inputs:
            return {"decoder_input_ids": torch.cat([begin, inputs["input_ids"][:, :-1]], dim=1)}
        if all(site.startswith("encoder.") for site in sites):
            return {"decoder_input_ids": begin}
        module = self.model.get_input_embeddings()
        if self.model.get_decoder().get_input_embeddings().weight is not module.weight:
            raise BadInput(
                "With inputs_embeds, the sites of a decoder need decoder_input_ids as well."
            )
        embeds = inputs["inputs_embeds"]
        return {
            "decoder_inputs_embeds": torch.cat([module(begin).to(embeds), embeds[:, :-1]], dim=1)
        }

    @property
    def decoder_start(self) -> int:
        """The token that the decoder of an encoder-decoder begins with; 0 where the model names
        none.
        """
        for config in (self.model.config, getattr(self.model, "generation_config", None)):
            for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
                if isinstance(token := getattr(config, name, None), int):
                    return token
        return 0

    def _check_length(self, length: int, what: str) -> None:
        if self.context is not None and length > self.context:
            raise BadInput(
                f"The {what} has {length} tokens, but '{self.name}' takes at most {self.context}."
            )


def _without_cache(model: Any) -> dict[str, Any]:
    return (
        {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
    )


# ---- From token vectors to the one vector of a sentence, as declared in the files that sentence-transformers writes

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
"""What sentence-transformers pools by, of states [B, T, d] without padding; several are put side by
side in this order.
"""
_NAMES: dict[str, Pooling] = {"cls": "first", "mean": "mean", "lasttoken": "last"}


@dataclass(frozen=True, eq=False, repr=False)
class SentenceHead:
    """Last hidden states [B, T, d] of B texts without padding to their sentence vectors [B, width],
    as `encode` makes them.
    """

    pooling: tuple[str, ...]
    steps: tuple[Callable[[Tensor], Tensor], ...]  # dense layers and normalisation, in their order
    width: int
    length: int | None  # tokens of the longest text, special ones included
    weights: tuple[Tensor, ...] = ()  # of the dense layers
    settings: tuple[str, ...] = ()  # of a live encoder, what its modules say of themselves

    def __call__(self, states: Float[Tensor, "B T d"]) -> Float[Tensor, "B width"]:
        found = torch.cat([POOLINGS[name](states) for name in self.pooling], dim=-1)
        for step in self.steps:
            found = step(found)
        return found


def _declared(source: str | Path | None, file: str) -> Any:
    try:
        return json.loads((Path(source or "") / file).read_text())
    except (
        OSError,
        ValueError,
        RecursionError,
        MemoryError,
    ):  # a sparse file may say that it is larger than the memory
        return None


def _modes(options: Any) -> tuple[str, ...]:
    """The poolings that a Pooling's config.json names, in its newer or its older way."""
    if not isinstance(options, dict):
        return ()
    named = options.get("pooling_mode")
    old = {
        name: f"pooling_mode_{name}{'' if 'token' in name else '_tokens'}"
        for name in (*POOLINGS, "weightedmean")
    }
    old |= {"cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
    chosen = [name for name, flag in old.items() if options.get(flag)]
    return (named,) if isinstance(named, str) else tuple(named or chosen)


def declared_pooling(source: str | Path | None) -> Pooling | None:
    """The pooling that a model's folder declares (`1_Pooling/config.json`); None where it declares
    none, or another one.

    >>> declared_pooling("no/such/folder") is None
    True
    """
    modes = _modes(_declared(source, "1_Pooling/config.json"))
    return _NAMES.get(modes[0]) if len(modes) == 1 else None


@dataclass(frozen=True)
class _Module:
    """A module of sentence-transformers: its kind, what its configuration says, and how a dense
    layer is made.
    """

    kind: str
    options: Any
    dense: Callable[[], "_Dense"]


def sentence_head(
    folder: str | Path | None, name: str, width: int, context: int | None
) -> SentenceHead | None:
    """What the folder of a sentence encoder (`modules.json`) says of its sentence vectors; None of
    any other model.

    Raises BadInput where it declares what is not made here: `encode` would give another vector.

    >>> sentence_head("no/such/folder", "none", 8, None) is None
    True
    """
    modules = _declared(folder, "modules.json")
    if folder is None or modules is None:
        return None
    try:
        places = [
            (str(module["type"]).rpartition(".")[2], Path(folder) / str(module["path"]))
            for module in modules
        ]
    except (TypeError, KeyError):
        raise BadInput(
            f"The file '{folder}/modules.json' names no modules of sentence-transformers."
        ) from None
    declared = list[_Module]()
    for kind, place in places:
        options = _declared(place, "config.json")
        if kind in ("Pooling", "Dense") and (
            leads_out(Path(folder), place) or not isinstance(options, dict)
        ):
            raise BadInput(
                f"The folder '{place}', which modules.json names, has no config.json inside the "
                "model's folder."
            )
        declared.append(_Module(kind, options, partial(_saved_dense, name, place, options)))
    reading = _declared(folder, "sentence_bert_config.json") or {}
    if reading.get("do_lower_case"):
        raise _unmade(name, "writes its texts in small letters first")
    if prompt := (_declared(folder, "config_sentence_transformers.json") or {}).get(
        "default_prompt_name"
    ):
        raise _unmade(name, f"puts the prompt '{prompt}' before its texts")
    lengths = [length for length in (reading.get("max_seq_length"), context) if length]
    return _head_of(declared, name, width, min(lengths, default=None))


def live_sentence_head(
    encoder: nn.Module, name: str, width: int, context: int | None
) -> SentenceHead | None:
    """Return the head of a live SentenceTransformer, made of its modules as they are now; None
    where it has no pooling.

    Raises BadInput where `encode` does what is not made here.
    """
    modules = list(encoder.children())
    transformer = modules[0]
    if getattr(transformer, "do_lower_case", False):
        raise _unmade(name, "writes its texts in small letters first")
    if prompt := getattr(encoder, "default_prompt_name", None):
        raise _unmade(name, f"puts the prompt '{prompt}' before its texts")
    if getattr(encoder, "truncate_dim", None) is not None:
        raise _unmade(name, "cuts its vectors off (truncate_dim)")
    declared = list[_Module]()
    for module in modules:
        options: Any = module.get_config_dict() if hasattr(module, "get_config_dict") else {}  # type: ignore[operator]
        declared.append(_Module(type(module).__name__, options, partial(_live_dense, name, module)))
    lengths = [
        length for length in (getattr(transformer, "max_seq_length", None), context) if length
    ]
    head = _head_of(declared, name, width, min(lengths, default=None))
    if head is None:
        return None
    return replace(head, settings=tuple(f"{module.kind} {module.options}" for module in declared))


def _head_of(
    modules: Sequence[_Module], name: str, width: int, length: int | None
) -> SentenceHead | None:
    """Return what modules of sentence-transformers make of last hidden states; BadInput for one
    that is not made here.
    """
    steps = list[Callable[[Tensor], Tensor]]()
    weights = list[Tensor]()
    pooling = tuple[str, ...]()
    for module in modules:
        if module.kind == "Pooling":
            pooling = _modes(module.options) or ("mean",)
            width *= len(pooling)
            if unknown := [mode for mode in pooling if mode not in POOLINGS]:
                raise _unmade(name, f"pools by {unknown[0]}")
        elif module.kind == "Dense":
            dense = module.dense()
            steps.append(dense)
            weights += [tensor for tensor in (dense.weight, dense.bias) if tensor is not None]
            width = int(module.options.get("out_features", 0))
        elif module.kind == "Normalize":
            steps.append(partial(torch.nn.functional.normalize, dim=-1))
        elif module.kind not in ("Transformer", "Dropout"):
            raise _unmade(name, f"has a module {module.kind}")
    return SentenceHead(pooling, tuple(steps), width, length, tuple(weights)) if pooling else None


@dataclass(frozen=True, eq=False)
class _Dense:
    """A dense layer of sentence-transformers: activation(x Wᵀ + b)."""

    weight: Tensor
    bias: Tensor | None
    activation: Callable[[Tensor], Tensor]

    def __call__(self, pooled: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(pooled)
        return self.activation(torch.nn.functional.linear(pooled, self.weight.to(pooled), bias))


def _saved_dense(name: str, place: Path, options: Any) -> _Dense:
    activation = getattr(
        nn, str(options.get("activation_function") or "Tanh").rpartition(".")[2], None
    )
    weights = place / "model.safetensors"
    if options.get("use_residual") or not isinstance(activation, type) or not weights.is_file():
        raise _unmade(
            name,
            f"has a dense layer, {place.name}, of another kind than activation(linear) in "
            "safetensors",
        )
    held = load_file(weights)
    return _Dense(held["linear.weight"], held.get("linear.bias"), activation())


def _live_dense(name: str, module: Any) -> _Dense:
    own = "sentence_embedding"
    reads = getattr(module, "module_input_name", own)
    writes = getattr(module, "module_output_name", own)
    if getattr(module, "use_residual", False) or reads != own or writes != own:
        raise _unmade(
            name, "has a dense layer of another kind than activation(linear) of the pooled vector"
        )
    bias = module.linear.bias
    return _Dense(
        module.linear.weight.detach(),
        None if bias is None else bias.detach(),
        module.activation_function,
    )


def _unmade(name: str, what: str) -> BadInput:
    return BadInput(
        f"The sentence encoder '{name}' {what}, which headscan does not do: to look at its tokens "
        "alone, copy its folder without modules.json, or pass the transformers model inside a "
        "live one."
    )


def pooled(
    states: Float[Tensor, "B T d"], pooling: Pooling, mask: Int[Tensor, "B T"] | None = None
) -> Float[Tensor, "B d"]:
    """One vector a row: the mean of its tokens' vectors, that of the first token, or of the last.

    `mask` is 1 where a token is, 0 behind the row's end; without it rows are full.

    >>> import torch
    >>> pooled(torch.tensor([[[1.0], [3.0], [9.0]]]), "mean", torch.tensor([[1, 1, 0]])).tolist()
    [[2.0]]
    """
    if pooling == "first":
        return states[:, 0]
    if mask is None:
        return states.mean(1) if pooling == "mean" else states[:, -1]
    if pooling == "mean":
        return (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    return states[range(len(states)), (mask.sum(1) - 1).tolist()]
