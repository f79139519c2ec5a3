"""What every result says of how it was made: protocol, models, text, findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class TextRecord:
    """A text by its content.

    `sha256` is over the characters that were read (documents parted by the byte 0xFF), None where nothing was read again
    after a resume; `tokens` counts those that entered the statistics, `unknown` how many of
    them are the tokenizer's unknown token, `dropped` those at the end that filled no window.
    """

    source: str
    sha256: str | None = None
    characters: int | None = None
    documents: int | None = None
    tokens: int | None = None
    windows: int | None = None
    dropped: int | None = None
    unknown: int | None = None
    tokenizer: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """What a model is and where it came from. `sha256` has the hex digest of each weight file by its name."""

    name: str
    source: str | None = None
    revision: str | None = None
    model_class: str = ""
    architecture: str | None = None
    parameters: int | None = None
    dtype: str | None = None
    device: str | None = None
    depth: int | None = None
    width: int | None = None
    vocabulary: int | None = None
    context: int | None = None
    quantize: str | None = None
    random_init: int | None = None
    notes: list[str] = field(default_factory=list)
    sha256: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What numbers say in words: a code, how telling it is, a sentence, where it was seen, and the number itself."""

    code: str
    level: Literal["alert", "notice", "good"]
    sentence: str
    model: str | None = None
    site: str | None = None
    value: float | None = None


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a result was made: enough to make it again."""

    verb: str
    command: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    text: TextRecord | None = None
    device: str | None = None
    dtype: str | None = None
    threads: int | None = None
    processes: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    started: str = ""
    seconds: float | None = None
    notes: list[str] = field(default_factory=list)
