"""The arguments of a forward pass, and the sentence vectors that an encoder makes of its output."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.model.sentence import Pooling
from headscan.model.traits import embedding_table
from headscan.run import BadInput

SPECIAL_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
START_IDS = ("decoder_start_token_id", "bos_token_id", "pad_token_id")
IdsLike = Tensor | npt.NDArray[np.integer[Any]] | Sequence[int] | Sequence[Sequence[int]]
"""Token ids: a tensor, an array or nested lists, [B, T]."""


def context_length(model: Any) -> int | None:
    """Return the longest input that a model was made for, in tokens.

    None: the model sets no limit (BLOOM, T5, Mamba).
    """
    config = model.config
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    length = getattr(config, "max_position_embeddings", None)
    if not isinstance(length, int) or length <= 0:
        return None
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and isinstance(padding, int):
            # RoBERTa and its relatives number positions from padding_idx + 1 on, so that many rows
            # of the table serve no token.
            return int(module.weight.shape[0] - padding - 1)
    return length


def probe_inputs(model: Any, shape: tuple[int, int], seed: int) -> dict[str, Any]:
    """Return the arguments of a forward pass on random plain tokens of this shape [B, T]."""
    table = embedding_table(model)
    vocabulary = table.shape[0]
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocabulary, shape, generator=generator)
    special = _special_ids(model.config)
    plain = next((token for token in range(vocabulary) if token not in special), 0)
    for token in special:
        ids[ids == token] = plain
    ids = ids.to(table.device)
    inputs: dict[str, Any] = {"input_ids": ids, **without_cache(model)}
    if getattr(model.config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = ids.flip(1)
    return inputs


def _special_ids(config: Any) -> set[int]:
    """Return the ids of padding and of the beginnings and ends of a text.

    Llama 3 ends a text by one of several tokens.
    """
    special: set[int] = set()
    for field in SPECIAL_IDS:
        value = getattr(config, field, None)
        tokens = value if isinstance(value, list) else [value]
        special |= {token for token in tokens if isinstance(token, int)}
    return special


@dataclass(frozen=True, eq=False, repr=False)
class ModelInputs:
    """Makes the arguments of one model's forward pass and checks them against what it takes.

    Attributes:
        context: the longest input in tokens; None where there is no limit.
    """

    model: Any
    name: str
    context: int | None

    @property
    def device(self) -> torch.device:
        """The device of the input embeddings."""
        return embedding_table(self.model).device

    def forward(
        self,
        input_ids: IdsLike | None,
        inputs_embeds: Float[Tensor, "B T e"] | None,
        attention_mask: IdsLike | None,
        decoder_input_ids: IdsLike | None,
        sites: Sequence[str],
    ) -> dict[str, Any]:
        """Return the arguments of the model's forward pass, checked.

        Raises:
            BadInput: for neither or both of ids and embeddings, ids out of the vocabulary, and an
                input longer than the context.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise BadInput("Give either input_ids or inputs_embeds, not both and not neither.")
        inputs: dict[str, Any] = without_cache(self.model)
        shape: Sequence[int]
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
            inputs |= self._decoder(decoder_input_ids, inputs, shape[0], sites)
        elif decoder_input_ids is not None:
            raise BadInput(
                f"The model '{self.name}' has no decoder beside its encoder, so it takes no "
                "decoder_input_ids."
            )
        return inputs

    def ids(self, ids_like: IdsLike, role: str = "input") -> Int[Tensor, "B T"]:
        """Return token ids as int64 [B, T] on the model's device.

        Raises:
            BadInput: for prompts of unequal lengths, numbers that are not whole, ids out of the
                vocabulary, and more tokens than the context; the message calls them by their role.
        """
        try:
            values = np.asarray(ids_like) if isinstance(ids_like, (list, tuple)) else ids_like
            ids = torch.as_tensor(values)
        except (ValueError, TypeError, RuntimeError) as error:
            raise BadInput(
                f"The {role} must be whole-number token ids, every prompt of the same length."
            ) from error
        is_integer = not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
        if ids.ndim != 2 or ids.numel() == 0 or not is_integer:
            raise BadInput(
                f"The {role} must be whole-number token ids of shape [B, T], not "
                f"{list(ids.shape)} {ids.dtype}."
            )
        self._check_length(ids.shape[1], role)
        self._check_vocabulary(ids, role)
        return ids.to(self.device, torch.int64)

    def _check_vocabulary(self, ids: Tensor, role: str) -> None:
        lowest, highest = (int(value) for value in torch.aminmax(ids))
        size = embedding_table(self.model).shape[0]
        if lowest >= 0 and highest < size:
            return
        unknown = lowest if lowest < 0 else highest
        raise BadInput(
            f"Token id {unknown} of the {role} is not in the vocabulary of '{self.name}' (0 to "
            f"{size - 1})."
        )

    def _check_length(self, length: int, role: str) -> None:
        if self.context is not None and length > self.context:
            raise BadInput(
                f"The {role} has {length} tokens, but '{self.name}' takes at most {self.context}."
            )

    def _decoder(
        self, decoder_ids: IdsLike | None, inputs: dict[str, Any], rows: int, sites: Sequence[str]
    ) -> dict[str, Tensor]:
        """Return the arguments of the decoder.

        By default it reads the encoder's input behind the start token, without the last token.
        """
        if decoder_ids is not None:
            return {"decoder_input_ids": self.ids(decoder_ids, "decoder input")}
        start = torch.full((rows, 1), self.decoder_start, dtype=torch.int64, device=self.device)
        if "input_ids" in inputs:
            return {"decoder_input_ids": torch.cat([start, inputs["input_ids"][:, :-1]], dim=1)}
        if all(site.startswith("encoder.") for site in sites):
            return {"decoder_input_ids": start}
        embedding = self.model.get_input_embeddings()
        if self.model.get_decoder().get_input_embeddings().weight is not embedding.weight:
            raise BadInput(
                "With inputs_embeds, the sites of a decoder need decoder_input_ids as well."
            )
        embeds = inputs["inputs_embeds"]
        start_embeds = embedding(start).to(embeds)
        return {"decoder_inputs_embeds": torch.cat([start_embeds, embeds[:, :-1]], dim=1)}

    @property
    def decoder_start(self) -> int:
        """The token that the decoder of an encoder-decoder begins with; 0 where none is named."""
        for config in (self.model.config, getattr(self.model, "generation_config", None)):
            for field in START_IDS:
                token = getattr(config, field, None)
                if isinstance(token, int):
                    return token
        return 0


def without_cache(model: Any) -> dict[str, Any]:
    """Return the arguments of a forward pass that make a model store no keys and values."""
    takes_cache = "use_cache" in inspect.signature(model.forward).parameters
    return {"use_cache": False} if takes_cache else {}


def pooled(
    states: Float[Tensor, "B T d"], pooling: Pooling, mask: Int[Tensor, "B T"] | None = None
) -> Float[Tensor, "B d"]:
    """Return one vector a row: the mean of its tokens' vectors, the first token's, or the last's.

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
    last_positions = (mask.sum(1) - 1).tolist()
    return states[range(len(states)), last_positions]
