"""What a slice is, as one small value: which part of a model is run and which part of its output is
looked at.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.run import BadInput, halving

RANDOM = re.compile(r"^random\((\d+)(?:,(\d+))?\)$")
RANGE = re.compile(r"^\s*(-?\d*)\s*(:?)\s*(-?\d*)\s*$")


def range_of(text: str) -> slice:
    """`1:`, `:3`, `2:5` or `-1` as a slice, as between numpy's brackets.

    >>> range_of("2:5"), range_of("-1")
    (slice(2, 5, None), slice(-1, None, None))
    """
    match = RANGE.match(text)
    if match is None or not (match[1] or match[2]) or (match[3] and not match[2]):
        raise BadInput(
            f"'{text}' is no range of positions or features: write for example 1:, :3, 2:5 or -1."
        )
    first, colon, last = match.groups()
    if not colon:
        number = int(first)
        return slice(number, number + 1 if number != -1 else None)
    return slice(int(first) if first else None, int(last) if last else None)


def positions_of(text: str, length: int) -> list[int]:
    """The positions that a range keeps of `length`; BadInput for none.

    >>> positions_of("-1", 5), positions_of("1:3", 5)
    ([4], [1, 2])
    """
    if not (positions := list(range(length))[range_of(text)]):
        raise BadInput(f"[:, {text}, :] leaves nothing of an output of {length} positions.")
    return positions


def features_of(text: str, width: int) -> Int[Tensor, " kept"] | slice:
    """The index of the features that a range, or `random(COUNT,SEED)`, keeps of `width`; BadInput
    for none.
    """
    if match := RANDOM.match(text):
        count = int(match[1])
        seed = int(match[2] or 0)
        if not 0 < count <= width:
            raise BadInput(f"{count} random features cannot be taken from {width}.")
        return (
            torch.randperm(width, generator=torch.Generator().manual_seed(seed))[:count]
            .sort()
            .values
        )
    part = range_of(text)
    if not range(width)[part]:
        raise BadInput(f"[:, :, {text}] leaves nothing of an output of {width} features.")
    return part


JsonValue = str | bool | list[str] | None


@dataclass(frozen=True)
class SliceSpecification:
    """The attributes of a `Slice`, which documents them; it holds no model and runs nothing."""

    sites: tuple[str, ...] = ("block.0",)
    only: str | None = None
    residual: bool = True
    normalisation: bool = True
    causal: bool | None = None
    embedding: str | None = None
    weights: str | None = None
    tokens: str = ":"
    features: str = ":"
    pool: str | None = None

    def __post_init__(self) -> None:
        sites: Iterable[str] = [self.sites] if isinstance(self.sites, str) else self.sites
        object.__setattr__(self, "sites", tuple(site.strip() for site in sites if site.strip()))
        if not self.sites:
            raise BadInput("A slice needs at least one site, such as block.0.")
        for name, allowed in (("only", ("attention", "mlp")), ("pool", ("mean", "first", "last"))):
            if (value := getattr(self, name)) is not None and value not in allowed:
                raise BadInput(
                    f"The attribute '{name}' of a slice is one of {', '.join(allowed)}, not "
                    f"'{value}'."
                )
        if self.weights is not None and not re.fullmatch(r"fresh:\d+", self.weights):
            raise BadInput(
                f"The weights of a slice are given as fresh:SEED, not as '{self.weights}'."
            )
        object.__setattr__(self, "tokens", self.tokens.replace(" ", "") or ":")
        object.__setattr__(self, "features", self.features.replace(" ", "") or ":")
        range_of(self.tokens)
        if not RANDOM.match(self.features):
            range_of(self.features)

    @classmethod
    def parse(cls, text: str, **options: Any) -> Self:
        """Read `SITE [+ SITE ...] [[:, TOKENS, FEATURES]] [ATTRIBUTE=VALUE ...]`, as `str` writes
        it; or attributes by name.

        >>> cut = SliceSpecification.parse("block.3[:, -1, :] only=attention residual=false")
        >>> cut.tokens, cut.only, cut.residual
        ('-1', 'attention', False)
        """
        place, *words = re.split(r"\s+(?=\w+=)", text.strip())
        options = dict(map(cls._attribute, words)) | options
        match = re.fullmatch(r"([^\[\]]*?)\s*(?:\[([^\[\]]*)\])?\s*", place)
        if match is None or not match[1]:
            raise BadInput(
                f"'{text}' is no slice: write for example 'block.3' or 'block.3[:, 1:, :64]'."
            )
        # at commas outside parentheses
        parts = re.split(r",(?![^(]*\))", ":,:,:" if match[2] is None else match[2])
        if len(parts) not in (2, 3) or parts[0].strip() != ":":
            raise BadInput(
                f"'[{match[2]}]' is no part of an output [B, T, w]: write for example [:, 1:, :64]."
            )
        tokens = parts[1].strip()
        features = parts[2].strip() if len(parts) == 3 else ":"
        options = {"tokens": tokens, "features": features} | options
        return cls(sites=tuple(match[1].split("+")), **options)

    @classmethod
    def _attribute(cls, word: str) -> tuple[str, JsonValue]:
        """`NAME=VALUE` as a pair."""
        name, _, value = word.partition("=")
        defaults = {
            field.name: field.default
            for field in fields(cls)
            if field.name not in ("sites", "tokens", "features")
        }
        if name not in defaults:
            raise BadInput(f"A slice has no attribute '{name}'; there are: {', '.join(defaults)}.")
        if name == "causal" or isinstance(defaults[name], bool):
            if value.lower() not in ("true", "false"):
                raise BadInput(
                    f"The attribute '{name}' of a slice is true or false, not '{value}'."
                )
            return name, value.lower() == "true"
        return name, value

    def document(self) -> dict[str, JsonValue]:
        return asdict(self) | {"sites": list(self.sites)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The slice that `document` wrote; unknown keys are refused."""
        if unknown := set(document) - {field.name for field in fields(cls)}:
            raise BadInput(f"A slice has no attribute {', '.join(sorted(unknown))}.")
        return cls(**{**document, "sites": tuple(document.get("sites", ("block.0",)))})

    def __str__(self) -> str:
        part = (
            "" if self.tokens == self.features == ":" else f" [:, {self.tokens}, {self.features}]"
        )
        rest = (
            f" {field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if field.name not in ("sites", "tokens", "features")
            and getattr(self, field.name) != field.default
        )
        return " + ".join(self.sites) + part + "".join(rest)

    def but(self, **changes: Any) -> Self:
        return replace(self, **changes)


def split_on_exhaustion(
    run: Callable[[slice], Tensor], count: int, batch: int
) -> tuple[Tensor, int, str | None]:
    """Run `run(slice)` over `count` rows in batches; when memory runs out, in batches of half the
    size.

    Returns the results concatenated, the size that went well, and a sentence if it had to shrink.

    >>> def run(part):
    ...     if part.stop - part.start > 3:
    ...         raise MemoryError
    ...     return torch.arange(part.start, part.stop)
    >>> split_on_exhaustion(run, 5, 8)
    (tensor([0, 1, 2, 3, 4]), 2, 'Memory ran out with batches of 8; batches of 2 are used.')
    """
    parts = [] if count else [run(slice(0, 0))]
    least = "Memory runs out even for a single candidate: use a shorter prompt or a smaller model."
    size = halving(
        count, lambda begin, end: parts.append(run(slice(begin, end))), least=least, size=batch
    )
    note = (
        f"Memory ran out with batches of {batch}; batches of {size} are used."
        if size < batch
        else None
    )
    return torch.cat(parts), size, note
