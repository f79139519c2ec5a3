"""What `headscan flow` and `headscan channel` can be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, TypeVar

from headscan.flow.variants import VARIANTS, names_of
from headscan.flow.width import SEARCHES
from headscan.model.settings import Loading
from headscan.run import BadInput, Option, Running
from headscan.text.prompts import PromptsLike
from headscan.text.settings import TEXT, TextLike

__all__ = ["Channelling", "Comparing", "Flowing"]

WINDOWS, LENGTH = 8, 16


@dataclass(frozen=True)
class Comparing(Loading, Running):
    """Which models, cut how, are compared at which sites on which prompts."""

    prompt: Annotated[
        PromptsLike | None, Option("A prompt; repeat it to average over several.", content=True, repeat=True)
    ] = None
    _: KW_ONLY
    text: Annotated[TextLike | None, TEXT] = None
    windows: Annotated[
        int | None, Option(f"Windows of --length tokens taken from the text's beginning. Default: {WINDOWS}.", low=1)
    ] = None
    length: Annotated[
        int | None, Option(f"Tokens of each prompt. Default: those of the shortest; {LENGTH} of a text.", low=2)
    ] = None
    at: Annotated[str | Sequence[str], Option("Globs of sites, comma-separated.")] = "block.*"
    cuts: Annotated[
        str | Sequence[str],
        Option(f"What of the model is left: {', '.join(VARIANTS)}; joined with +, several with commas.", name="cut"),
    ] = "whole"
    null: Annotated[bool, Option("Add each model with random weights (the cut fresh).")] = False
    wider: Annotated[
        int | str | Sequence[int],
        Option("Add each model with random weights, so many times as wide; several with commas.", low=1),
    ] = ()
    revisions: Annotated[
        str | Sequence[str] | None, Option("Checkpoints of one Hugging Face id in order, comma-separated.")
    ] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "wider", tuple(self.widths()))  # as numbers, whose bounds are checked next
        super().__post_init__()

    def check(self) -> None:
        """There is something to read, and every cut has a name."""
        super().check()
        if self.prompt is None and self.text is None:
            raise BadInput("Give a prompt, or a text that prompts are taken from.")
        if self.windows is not None and self.text is None:
            raise BadInput("--windows is not used without --text: prompts are taken as they are.")
        for name in self.cut_names():
            names_of(name)

    def cut_names(self) -> list[str]:
        """The cuts in their order, without repeats."""
        names = listed(self.cuts) + (["fresh"] if self.null else [])
        if not names:
            raise BadInput(f"Name at least one cut: {', '.join(VARIANTS)}.")
        return list(dict.fromkeys(names))

    def widths(self) -> list[int]:
        """How many times as wide the added models are."""
        return numbers("--wider", self.wider, int)


@dataclass(frozen=True, kw_only=True)
class Flowing(Comparing):
    """How leak and recovery are measured."""

    trials: Annotated[int, Option("Random other tokens put in each place, for the leak.", low=1)] = 4
    recover: Annotated[bool, Option("Try the vocabulary in each place; else only the leak.")] = True
    candidates: Annotated[
        int | None,
        Option("Tokens tried for recovery. Default: the vocabulary, or as many as some minutes have room for.", low=2),
    ] = None

    def check(self) -> None:
        """Candidates are of recovery."""
        super().check()
        if self.candidates is not None and not self.recover:
            raise BadInput("--candidates is not used without --recover.")


@dataclass(frozen=True, kw_only=True)
class Channelling(Comparing):
    """How the channel is measured."""

    searches: Annotated[
        str | Sequence[str] | None,
        Option(
            f"How tokens are looked for: {', '.join(SEARCHES)}; several with commas. Default: exact and adam, where that "
            "takes some minutes at most.",
            name="search",
        ),
    ] = None
    noise: Annotated[
        float | str | Sequence[float],
        Option("Standard deviations of noise, in those of a feature; several with commas.", above=0),
    ] = (0.25, 0.5, 1.0, 2.0)
    bits: Annotated[
        int | str | Sequence[int], Option("Bits a feature is rounded to; several with commas.", low=1, high=32)
    ] = (1, 2, 3, 4, 8)
    trials: Annotated[int, Option("Tokens sent for each noise and width.", low=1)] = 400

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", tuple(self.noises()))
        object.__setattr__(self, "bits", tuple(self.precisions()))
        super().__post_init__()

    def check(self) -> None:
        """Every search has a name, and there is something to measure."""
        super().check()
        for name in ("noise", "bits"):
            if not getattr(self, name):
                raise BadInput(f"Give --{name} at least one number.")
        if unknown := [one for one in self.search_names() if one not in SEARCHES]:
            raise BadInput(f"There is no search '{unknown[0]}'; there are: {', '.join(SEARCHES)}.")

    def search_names(self) -> list[str]:
        """The searches in their order."""
        return ["exact", "adam"] if self.searches is None else listed(self.searches)

    def noises(self) -> list[float]:
        """The levels of noise."""
        return numbers("--noise", self.noise, float)

    def precisions(self) -> list[int]:
        """The numbers of bits."""
        return numbers("--bits", self.bits, int)


def listed(words: str | Sequence[str]) -> list[str]:
    """Words that are given as a list, or as one text with commas.

    >>> listed("a, b"), listed(["a", "b,c"])
    (['a', 'b'], ['a', 'b', 'c'])
    """
    given = [words] if isinstance(words, str) else words
    return [one.strip() for part in given for one in part.split(",") if one.strip()]


N = TypeVar("N", int, float)


def numbers(flag: str, given: N | str | Sequence[N], kind: type[N]) -> list[N]:
    """Numbers that are given as one, as a list, or as one text with commas.

    >>> numbers("--wider", "2, 4", int)
    [2, 4]
    """
    if not isinstance(given, str):
        return [given] if isinstance(given, int | float) else list(given)
    try:
        return [kind(one) for one in listed(given)]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise BadInput(f"{flag} takes {what}, separated by commas, not {given!r}.") from None
