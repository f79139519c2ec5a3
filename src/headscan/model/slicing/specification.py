"""The description of a slice: which part of a model is run and of its output is seen."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.run import BadInput

RANDOM = re.compile(r"^random\((\d+)(?:,(\d+))?\)$")
RANGE = re.compile(r"^\s*(-?\d*)\s*(:?)\s*(-?\d*)\s*$")
SLICE = re.compile(r"([^\[\]]*?)\s*(?:\[([^\[\]]*)\])?\s*")
FRESH_WEIGHTS = re.compile(r"fresh:\d+")
BEFORE_ATTRIBUTE = re.compile(r"\s+(?=\w+=)")
COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")

IN_BRACKETS = ("sites", "tokens", "features")
"""The attributes that are written as SITES [:, TOKENS, FEATURES]; all others as NAME=VALUE."""
CHOICES = {"only": ("attention", "mlp"), "pool": ("mean", "first", "last")}

JsonValue = str | bool | list[str] | None


def range_of(text: str) -> slice:
    """Return `1:`, `:3`, `2:5` or `-1` as a slice, as between numpy's brackets.

    >>> range_of("2:5"), range_of("-1")
    (slice(2, 5, None), slice(-1, None, None))
    """
    match = RANGE.match(text)
    start, colon, end = match.groups() if match else ("", "", "")
    if not (start or colon) or (end and not colon):
        raise BadInput(
            f"'{text}' is no range of positions or features: write for example 1:, :3, 2:5 or -1."
        )
    if not colon:
        number = int(start)
        return slice(number, None if number == -1 else number + 1)
    return slice(int(start) if start else None, int(end) if end else None)


def positions_of(text: str, length: int) -> list[int]:
    """Return the positions that a range selects of `length`.

    Raises:
        BadInput: where it selects none.

    >>> positions_of("-1", 5), positions_of("1:3", 5)
    ([4], [1, 2])
    """
    positions = list(range(length))[range_of(text)]
    if not positions:
        raise BadInput(f"[:, {text}, :] leaves nothing of an output of {length} positions.")
    return positions


def features_of(text: str, width: int) -> Int[Tensor, " selected"] | slice:
    """Return the index of the features that a range, or `random(COUNT,SEED)`, selects of `width`.

    Raises:
        BadInput: where it selects none.
    """
    random = RANDOM.match(text)
    if random is None:
        part = range_of(text)
        if not range(width)[part]:
            raise BadInput(f"[:, :, {text}] leaves nothing of an output of {width} features.")
        return part
    count = int(random[1])
    seed = int(random[2] or 0)
    if not 0 < count <= width:
        raise BadInput(f"{count} random features cannot be taken from {width}.")
    shuffled = torch.randperm(width, generator=torch.Generator().manual_seed(seed))
    return shuffled[:count].sort().values


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
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise BadInput(
                    f"The attribute '{name}' of a slice is one of {', '.join(choices)}, not "
                    f"'{value}'."
                )
        if self.weights is not None and not FRESH_WEIGHTS.fullmatch(self.weights):
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
        """Return the slice of `SITE [+ SITE ...] [[:, TOKENS, FEATURES]] [ATTRIBUTE=VALUE ...]`.

        `str` writes a slice so. `options` are attributes by name, which come before those in the
        text.

        >>> cut = SliceSpecification.parse("block.3[:, -1, :] only=attention residual=false")
        >>> cut.tokens, cut.only, cut.residual
        ('-1', 'attention', False)
        """
        output, *assignments = BEFORE_ATTRIBUTE.split(text.strip())
        attributes: dict[str, Any] = dict(cls._attribute(item) for item in assignments)
        match = SLICE.fullmatch(output)
        if match is None or not match[1]:
            raise BadInput(
                f"'{text}' is no slice: write for example 'block.3' or 'block.3[:, 1:, :64]'."
            )
        sites, brackets = match.groups()
        indices = [":", ":", ":"]
        if brackets is not None:
            indices = COMMA_OUTSIDE_PARENTHESES.split(brackets)
        if len(indices) not in (2, 3) or indices[0].strip() != ":":
            raise BadInput(
                f"'[{brackets}]' is no part of an output [B, T, w]: write for example [:, 1:, :64]."
            )
        part = {"tokens": indices[1].strip(), "features": ":"}
        if len(indices) == 3:
            part["features"] = indices[2].strip()
        return cls(sites=tuple(sites.split("+")), **(part | attributes | options))

    @classmethod
    def _attribute(cls, assignment: str) -> tuple[str, JsonValue]:
        """Return `NAME=VALUE` as a pair."""
        name, _, value = assignment.partition("=")
        defaults = {field.name: field.default for field in cls._attributes()}
        if name not in defaults:
            raise BadInput(f"A slice has no attribute '{name}'; there are: {', '.join(defaults)}.")
        is_boolean = name == "causal" or isinstance(defaults[name], bool)
        if not is_boolean:
            return name, value
        if value.lower() not in ("true", "false"):
            raise BadInput(f"The attribute '{name}' of a slice is true or false, not '{value}'.")
        return name, value.lower() == "true"

    @classmethod
    def _attributes(cls) -> list[Any]:
        """Return the fields that are written as NAME=VALUE."""
        return [field for field in fields(cls) if field.name not in IN_BRACKETS]

    def document(self) -> dict[str, JsonValue]:
        """Return the attributes as plain values, for JSON."""
        return asdict(self) | {"sites": list(self.sites)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the slice that `document` wrote.

        Raises:
            BadInput: for keys that no slice has.
        """
        unknown = set(document) - {field.name for field in fields(cls)}
        if unknown:
            raise BadInput(f"A slice has no attribute {', '.join(sorted(unknown))}.")
        return cls(**{**document, "sites": tuple(document.get("sites", ("block.0",)))})

    def __str__(self) -> str:
        text = " + ".join(self.sites)
        if self.tokens != ":" or self.features != ":":
            text += f" [:, {self.tokens}, {self.features}]"
        for field in self._attributes():
            value = getattr(self, field.name)
            if value != field.default:
                text += f" {field.name}={value}"
        return text

    def but(self, **changes: Any) -> Self:
        """Return the same slice with some attributes changed."""
        return replace(self, **changes)
