"""Slices as options: what verbs that run a slice of a model share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from headscan.model.slicing.slice import Slice
from headscan.run import BadInput, Option, Settings, options_of

__all__ = ["Slicing"]


@dataclass(frozen=True, kw_only=True)
class Slicing(Settings):
    """Which part of a model is run, and which part of its output is looked at; `Slice` says more of each.

    >>> str(Slicing(at="block.3[:, 1:, :]", only="mlp").slice())
    'block.3 [:, 1:, :] only=mlp'
    """

    at: Annotated[
        str | Slice, Option("The slice: SITE [+ SITE ...] and a part of its output, such as 'block.3[:, 1:, :64]'.")
    ] = "block.0"
    only: Annotated[Literal["attention", "mlp"] | None, Option("Slice: one kind of branch alone in every block.")] = (
        None
    )
    start: Annotated[int, Option("Slice: the first block that is run.", low=0)] = 0
    residual: Annotated[bool, Option("Slice: residual connections.")] = True
    normalisation: Annotated[bool, Option("Slice: normalisation.", name="norm")] = True
    causal: Annotated[bool | None, Option("Slice: impose or lift the causal mask. Default: the model's own.")] = None
    positions: Annotated[bool, Option("Slice: positions.")] = True
    embedding: Annotated[str | None, Option("Slice: another embedding table: random:SEED or a model.")] = None
    weights: Annotated[str | None, Option("Slice: fresh:SEED for newly initialised weights.")] = None
    bits: Annotated[int | None, Option("Slice: weights rounded to so many bits.", low=2, high=8)] = None

    def check(self) -> None:
        """A slice that can be read, and that is said once."""
        super().check()
        self.slice()

    def slice(self) -> Slice:
        """The slice that is meant."""
        own = [field for field in options_of(Slicing) if field.name != "at"]
        if isinstance(self.at, str):
            return Slice.parse(self.at, **{field.name: getattr(self, field.name) for field in own})
        for field in own:
            if getattr(self, field.name) != field.default:
                raise BadInput(f"{field.flag} belongs into the Slice that was given, not beside it.")
        return self.at
