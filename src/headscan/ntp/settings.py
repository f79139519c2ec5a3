"""What may be asked of a prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from headscan.model.opening import ModelsLike
from headscan.model.settings import Loading
from headscan.run import BadInput, Option, Running
from headscan.text.settings import Counting, Reading

__all__ = ["Predicting"]


@dataclass(frozen=True, kw_only=True)
class Predicting(Loading, Reading, Counting, Running):
    """The options of `headscan.ntp.run`; the tokenizer is by default that of the first model."""

    model: Annotated[
        ModelsLike | None,
        Option(
            "A causal model to hold against the prediction; give it again for checkpoints, in their order.",
            content=True,
            repeat=True,
        ),
    ] = None
    prefixes: Annotated[bool, Option("A context is all that stands before a token in its document.")] = False
    gap: Annotated[float, Option("Certified relative gap of the predicted logits.", above=0)] = 1e-6
    budget: Annotated[
        float,
        Option(
            "Seconds of the solver: the certified gap reached by then is stated; a proxy stands in for what cannot begin.",
            low=0,
        ),
    ] = 10.0
    train: Annotated[
        int, Option("Steps of gradient descent on unconstrained features, to see how fast they get there.", low=0)
    ] = 0
    width: Annotated[int | None, Option("Width of those features. Default: the vocabulary's size.", low=1)] = None
    reading: Annotated[
        Literal["text", "alone"],
        Option("How models meet the contexts: where they stand in the text, or each one alone."),
    ] = "text"
    max_contexts: Annotated[int, Option("Compare models on at most so many contexts, drawn by frequency.", low=1)] = (
        20_000
    )
    groups: Annotated[int, Option("Groups of documents for the bootstrap; 0 for none.", low=0)] = 20

    def check(self) -> None:
        """Options that nothing would use are refused, and so are models where contexts have no fixed order."""
        super().check()
        if self.gap >= 1:
            raise BadInput(f"--gap must be less than 1, not {self.gap:g}.")
        if self.width is not None and not self.train:
            raise BadInput("--width is not used without --train.")
        if self.reading != "text" and self.model is None:
            raise BadInput("--reading is not used without --model.")
        if self.prefixes and self.model is not None:
            raise BadInput("Models are compared on contexts of a fixed order; leave out the prefixes.")
        if self.prefixes and self.engine != "sort":
            raise BadInput("--engine spark counts contexts of a fixed order; leave out the prefixes.")
        if self.tokenizer is None and self.model is None:
            raise BadInput("Name a tokenizer (an id, a folder or bytes) or a model that has one.")
