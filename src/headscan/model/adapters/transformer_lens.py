"""TransformerLens."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from headscan.model.adapter import ADAPTERS, Adapted, ModelAdapter, of_library
from headscan.run import BadInput

__all__ = ["TransformerLensAdapter"]


@ADAPTERS.register("transformer-lens")
class TransformerLensAdapter(ModelAdapter):
    """`TransformerBridge` (TransformerLens 3 and 4): the model inside."""

    title: ClassVar[str] = "TransformerLens"
    sentence: ClassVar[str] = (
        "The transformers model inside a TransformerBridge; a HookedTransformer is refused, whose weights are folded and centred."
    )
    tried: ClassVar[str] = "TransformerLens 4.3.0"

    def recognises(self, model: object) -> bool:
        """By the class."""
        return of_library(model, "transformer_lens", "TransformerBridge", "HookedRootModule")

    def adapt(self, model: Any) -> Adapted:
        """See the class."""
        inside = getattr(model, "original_model", None)
        if not isinstance(inside, nn.Module):
            raise BadInput(
                f"A {type(model).__name__} folds norms into weights and centres them, so its states are not the model's: give "
                "the model of transformers, a TransformerBridge, or an iterator over its cached activations."
            )
        if getattr(model, "compatibility_mode", False):
            raise BadInput(
                "This TransformerBridge is in compatibility mode, in which weights are folded and centred: give it without."
            )
        return Adapted(inside, getattr(model, "tokenizer", None), ("Read from inside TransformerLens' bridge.",))
