"""What a slice is, as one small value: which part of a model is run and which part of its output is looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from headscan.model.slicing.selection import axes, check_features, range_of
from headscan.run import BadInput

__all__ = ["SliceSpecification"]

JsonValue = str | int | bool | list[str] | None


@dataclass(frozen=True)
class SliceSpecification:
    """The attributes of a `Slice`, which documents them; it holds no model and runs nothing."""

    sites: tuple[str, ...] = ("block.0",)
    only: str | None = None
    start: int = 0
    residual: bool = True
    normalisation: bool = True
    causal: bool | None = None
    positions: bool = True
    embedding: str | None = None
    weights: str | None = None
    bits: int | None = None
    tokens: str = ":"
    features: str = ":"
    pool: str | None = None

    def __post_init__(self) -> None:
        sites: Iterable[str] = [self.sites] if isinstance(self.sites, str) else self.sites
        object.__setattr__(self, "sites", tuple(site.strip() for site in sites if site.strip()))
        if not self.sites:
            raise BadInput("A slice needs at least one site, such as block.0.")
        _one_of("only", self.only, ("attention", "mlp"))
        _one_of("pool", self.pool, ("mean", "first", "last"))
        if self.start < 0:
            raise BadInput(f"The first block of a slice cannot be number {self.start}.")
        if self.bits is not None and not 2 <= self.bits <= 8:
            raise BadInput(f"Weights can be rounded to 2 to 8 bits, not to {self.bits}.")
        if self.weights is not None and not re.fullmatch(r"fresh:\d+", self.weights):
            raise BadInput(f"The weights of a slice are given as fresh:SEED, not as '{self.weights}'.")
        object.__setattr__(self, "tokens", self.tokens.replace(" ", "") or ":")
        object.__setattr__(self, "features", " ".join(self.features.split()) or ":")
        range_of(self.tokens)
        check_features(self.features)

    @classmethod
    def parse(cls, text: str, **options: Any) -> Self:
        """Read `SITE [+ SITE ...] [[:, TOKENS, FEATURES]]`; the other attributes are given by name.

        >>> SliceSpecification.parse("block.3[:, -1, :]").tokens
        '-1'
        """
        match = re.fullmatch(r"\s*([^\[\]]*?)\s*(?:\[([^\[\]]*)\])?\s*", text)
        if match is None or not match[1]:
            raise BadInput(f"'{text}' is no slice: write for example 'block.3' or 'block.3[:, 1:, :64]'.")
        parts = axes(match[2]) if match[2] is not None else [":", ":", ":"]
        if len(parts) not in (2, 3) or parts[0].strip() != ":":
            raise BadInput(f"'[{match[2]}]' is no part of an output [B, T, w]: write for example [:, 1:, :64].")
        tokens, features = parts[1].strip(), parts[2].strip() if len(parts) == 3 else ":"
        return cls(sites=tuple(match[1].split("+")), **({"tokens": tokens, "features": features} | options))

    def document(self) -> dict[str, JsonValue]:
        """All attributes as plain JSON values."""
        return asdict(self) | {"sites": list(self.sites)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The slice that `document` wrote; unknown keys are refused."""
        known = {field.name for field in fields(cls)}
        if unknown := set(document) - known:
            raise BadInput(f"A slice has no attribute {', '.join(sorted(unknown))}.")
        return cls(**{**document, "sites": tuple(document.get("sites", ("block.0",)))})

    def __str__(self) -> str:
        part = "" if self.tokens == self.features == ":" else f" [:, {self.tokens}, {self.features}]"
        rest = [
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if field.name not in ("sites", "tokens", "features") and getattr(self, field.name) != field.default
        ]
        return " + ".join(self.sites) + part + "".join(f" {one}" for one in rest)

    def but(self, **changes: Any) -> Self:
        """The same slice with some attributes changed."""
        return replace(self, **changes)


def _one_of(name: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise BadInput(f"The attribute '{name}' of a slice is one of {', '.join(allowed)}, not '{value}'.")
