"""What a forward pass is given: checked token ids, and the few extras some families need."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headscan.errors import BadInput

if TYPE_CHECKING:
    from headscan.model.lens import Lens

__all__ = ["context_length", "embedding_table", "forward_inputs", "probe_inputs", "vocabulary_size"]

PROBE_SHAPE = (2, 7)


def embedding_table(model: Any) -> Tensor:
    """The weight of the model's input embeddings [V, e].

    Raises:
        BadInput: the model takes no tokens, or was built without weights.
    """
    try:
        table = model.get_input_embeddings().weight
    except (AttributeError, NotImplementedError) as error:
        raise BadInput(
            f"{type(model).__name__} has no table of token embeddings, so it is no language model that headscan can read."
        ) from error
    if table.is_meta:
        raise BadInput(f"{type(model).__name__} was built without weights (it is on the 'meta' device).")
    return table


def vocabulary_size(model: Any) -> int:
    """The number of rows of the input embedding table."""
    return embedding_table(model).shape[0]


def context_length(model: Any) -> int | None:
    """The longest input the model was made for, in tokens; None where it sets no limit (BLOOM, T5, Mamba)."""
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    length = getattr(config, "max_position_embeddings", None)
    if not isinstance(length, int) or length <= 0:
        return None
    for name, module in model.named_modules():
        # RoBERTa and its kin number positions from padding_idx + 1 on, so that many rows of the table serve no token.
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return length


def probe_inputs(model: Any, context: int | None, seed: int) -> tuple[dict[str, Any], tuple[int, int]]:
    """Inputs of a tiny forward pass and their shape [B, T]."""
    table = embedding_table(model)
    rows, length = PROBE_SHAPE[0], min(PROBE_SHAPE[1], context or PROBE_SHAPE[1])
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, table.shape[0], (rows, length), generator=generator)
    special = {getattr(model.config, f"{name}_token_id", None) for name in ("pad", "bos", "eos")}
    plain = next((i for i in range(table.shape[0]) if i not in special), 0)
    for token in special:
        if isinstance(token, int):
            ids[ids == token] = plain
    ids = ids.to(table.device)
    inputs: dict[str, Any] = {"input_ids": ids, **_without_cache(model)}
    if getattr(model.config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = ids.flip(0)
    return inputs, (rows, length)


def forward_inputs(
    lens: Lens,
    input_ids: Any,
    inputs_embeds: Tensor | None,
    attention_mask: Tensor | None,
    decoder_input_ids: Any,
    sites: Sequence[str],
) -> dict[str, Any]:
    """The arguments of the model's forward pass, checked.

    Raises:
        BadInput: neither or both of ids and embeddings, ids out of the vocabulary, input longer than the context.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise BadInput("Give either input_ids or inputs_embeds, not both and not neither.")
    inputs: dict[str, Any] = _without_cache(lens.model)
    device = lens.device
    if input_ids is not None:
        inputs["input_ids"] = _checked(lens, input_ids, "input")
        shape = inputs["input_ids"].shape
    else:
        assert inputs_embeds is not None
        if inputs_embeds.ndim != 3:
            raise BadInput(f"inputs_embeds must have the shape [B, T, e], not {list(inputs_embeds.shape)}.")
        inputs["inputs_embeds"] = inputs_embeds.to(device)
        shape = inputs_embeds.shape[:2]
        _check_length(lens, shape[1], "input")
    if attention_mask is not None:
        inputs["attention_mask"] = torch.as_tensor(attention_mask).to(device)
    if getattr(lens.model.config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = _decoder_ids(lens, decoder_input_ids, inputs.get("input_ids"), shape, sites)
    elif decoder_input_ids is not None:
        raise BadInput(f"The model '{lens.name}' has no decoder beside its encoder, so it takes no decoder_input_ids.")
    return inputs


def _decoder_ids(lens: Lens, given: Any, source: Tensor | None, shape: Any, sites: Sequence[str]) -> Tensor:
    if given is not None:
        return _checked(lens, given, "decoder input")
    config = lens.model.config
    start = next(
        token
        for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id")
        if isinstance(token := getattr(config, name, None), int) or name == "pad_token_id"
    )
    begin = torch.full((shape[0], 1), start or 0, dtype=torch.int64, device=lens.device)
    if source is None:
        if any(not site.startswith("encoder.") for site in sites):
            raise BadInput("With inputs_embeds, the sites of a decoder need decoder_input_ids as well.")
        return begin
    return torch.cat([begin, source[:, :-1]], dim=1)


def _checked(lens: Lens, ids: Any, what: str) -> Tensor:
    ids = torch.as_tensor(ids)
    if ids.ndim != 2 or ids.numel() == 0 or ids.is_floating_point():
        raise BadInput(f"The {what} must be whole-number token ids of shape [B, T], not {list(ids.shape)} {ids.dtype}.")
    _check_length(lens, ids.shape[1], what)
    low, high = (int(value) for value in torch.aminmax(ids))
    if low < 0 or high >= lens.vocabulary_size:
        wrong = low if low < 0 else high
        raise BadInput(
            f"Token id {wrong} of the {what} is not in the vocabulary of '{lens.name}' (0 to {lens.vocabulary_size - 1})."
        )
    return ids.to(lens.device, torch.int64)


def _check_length(lens: Lens, length: int, what: str) -> None:
    if lens.context_length is not None and length > lens.context_length:
        raise BadInput(f"The {what} has {length} tokens, but '{lens.name}' takes at most {lens.context_length}.")


def _without_cache(model: Any) -> dict[str, Any]:
    """`use_cache=False` for models that know it: a cache costs memory and serves only generation."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
