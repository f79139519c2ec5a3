"""The two tables of a language model: input embeddings and output layer."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from headscan.run import BadInput

__all__ = ["OutputLayer", "embedding_table", "output_layer"]


class OutputLayer(NamedTuple):
    """The last layer of a model with logits: the module, its weight [V, e] and its bias [V] or None, both live."""

    module: nn.Module
    weight: Float[Tensor, "V e"]
    bias: Float[Tensor, " V"] | None


def embedding_table(model: Any) -> Float[Tensor, "V e"]:
    """The weight of the model's input embeddings [V, e].

    Raises:
        BadInput: the model takes no tokens, or was built without weights.
    """
    try:
        table: Tensor = model.get_input_embeddings().weight
    except (AttributeError, NotImplementedError) as error:
        raise BadInput(
            f"{type(model).__name__} has no table of token embeddings, so it is no language model that headscan can read."
        ) from error
    if table.is_meta:
        raise BadInput(f"{type(model).__name__} was built without weights (it is on the 'meta' device).")
    return table


def output_layer(model: Any) -> OutputLayer | None:
    """The model's output layer, or None for a model without one."""
    module = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    weight = getattr(module, "weight", None)
    return (
        OutputLayer(module, weight, getattr(module, "bias", None))
        if module is not None and weight is not None
        else None
    )
