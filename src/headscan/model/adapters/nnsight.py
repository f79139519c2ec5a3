"""nnsight."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from headscan.model.adapter import ADAPTERS, Adapted, ModelAdapter, of_library
from headscan.run import BadInput

__all__ = ["NnsightAdapter"]


@ADAPTERS.register("nnsight")
class NnsightAdapter(ModelAdapter):
    """`NNsight(model)`, `LanguageModel(...)`, `TransformersModel(...)`: the model inside."""

    title: ClassVar[str] = "nnsight"
    sentence: ClassVar[str] = "The transformers model inside, with the wrapper's tokenizer; no intervention runs."
    tried: ClassVar[str] = "nnsight 0.8.1"

    def recognises(self, model: object) -> bool:
        """An Envoy, which is no Module."""
        return of_library(model, "nnsight", "NNsight", "Envoy")

    def adapt(self, model: Any) -> Adapted:
        """See the class."""
        # Of the wrapper itself, not by its __getattr__, which looks into the model.
        own = vars(model)
        inside = own.get("_module", own.get("_model"))
        if not isinstance(inside, nn.Module):
            raise BadInput("There is no model inside this wrapper of nnsight.")
        if any(one.is_meta for one in inside.parameters()):
            raise BadInput("This model of nnsight has no weights yet: load it with dispatch=True.")
        return Adapted(inside, own.get("tokenizer"), ("Read from inside nnsight's wrapper, without interventions.",))
