"""What `headscan invert` can be asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Annotated, Any, Literal

import numpy as np
from torch import Tensor

from headscan.inversion.given import GIVEN
from headscan.inversion.method import METHODS, Method
from headscan.model.settings import Loading
from headscan.model.slicing.settings import Slicing
from headscan.run import BadInput, Option, Running, Settings, options_of
from headscan.text.prompts import PromptsLike

__all__ = ["Inverting", "refuse_unused"]


@dataclass(frozen=True)
class Inverting(Slicing, Loading, Running):
    """What is inverted, from what, and how."""

    prompt: Annotated[
        PromptsLike | None,
        Option("The text whose states are inverted; may be given several times.", content=True, repeat=True),
    ] = None
    _: KW_ONLY
    states: Annotated[
        str | os.PathLike[str] | Tensor | np.ndarray[Any, Any] | Mapping[str, Any] | None,
        Option(
            "States that leaked, in place of a prompt: a file, folder or URL of any format that scan reads (FILE#SITE is one "
            "site of it); in Python also an array [T, w] or [prompts, T, w].",
            content=True, metavar="FILE",
        ),
    ] = None  # fmt: skip
    method: Annotated[
        str | Method, Option("How: exact (left to right), joint, indirect or direct (gradients).", choices=METHODS)
    ] = "auto"
    given: Annotated[
        str, Option("What is known: states (of the slice), next-token (log-probabilities), embedding.", choices=GIVEN)
    ] = "states"
    tolerance: Annotated[
        float | None,
        Option("Largest relative residual that counts as equal. Default: 8 times the noise measured.", above=0),
    ] = None
    certificate: Annotated[
        Literal["auto", "exhaustive", "sampled"],
        Option(
            "What is compared with the tokens found: every token (exhaustive), some (sampled), or every one where that is "
            "at most 1e10 multiplications a prompt (auto)."
        ),
    ] = "auto"
    vocabulary: Annotated[
        str | Sequence[str] | None, Option("A text whose tokens alone may be returned.", content=True)
    ] = None
    noise: Annotated[float, Option("Gaussian noise on what is given, as a share of its norm.", low=0)] = 0.0
    rounding: Annotated[int | None, Option("Round what is given to so many bits.", low=2, high=64)] = None
    jacobian: Annotated[bool, Option("Add rank and singular values of the Jacobian at each position.")] = False
    special: Annotated[
        bool | None,
        Option("Add the tokenizer's special tokens, which count as known. Default: without a causal mask only."),
    ] = None

    def check(self) -> None:
        """Names that there are, a slice that can be, and no option that what is given does not use."""
        super().check()
        if (self.prompt is None) == (self.states is None):
            raise BadInput("Say what is inverted: a text with --prompt, or states with --states, and not both.")
        if self.states is not None:
            refuse_unused(self, ("noise", "rounding", "given", "special"), "--states", ["--prompt"])
        if isinstance(self.method, str):
            METHODS[self.method]
        if self.given == "gradient":
            raise BadInput(
                "A gradient shows which tokens were in a batch, not their order: it is a release of the verb privacy."
            )
        if not GIVEN[self.given].sliced:
            users = [name for name, one in GIVEN.items() if one.sliced]
            refuse_unused(self, [field.name for field in fields(Slicing)], f"the given {self.given}", users)

    def chosen(self) -> Method:
        """The method, with its defaults where only its name was given."""
        return METHODS[self.method]() if isinstance(self.method, str) else self.method


def refuse_unused(settings: Settings, names: Sequence[str], by: str, users: Sequence[str]) -> None:
    """Raise BadInput for the first of the options `names` that was changed, though `by` does not use it."""
    for field in options_of(type(settings)):
        if field.name in names and _changed(getattr(settings, field.name), field.default):
            raise BadInput(f"{field.flag} is not used by {by}; it belongs to {', '.join(sorted(users))}.")


def _changed(value: object, default: object) -> bool:
    """Whether a value is not the default; arrays, which compare number by number, never are one."""
    return value is not default and (isinstance(value, Tensor | np.ndarray) or value != default)
