"""Tokens as people can see them: spaces, line ends, stray bytes and invisible characters made visible."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, overload

__all__ = ["display", "visible"]

SIGNS = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@overload
def display(tokenizer: Any, ids: int) -> str: ...
@overload
def display(tokenizer: Any, ids: Iterable[int]) -> list[str]: ...
def display(tokenizer: Any, ids: int | Iterable[int]) -> str | list[str]:
    """One visible string for each token id.

    Byte-level pieces and byte tokens are decoded, bytes that are no whole character are shown as <0xE2>, a space is ␣
    (also sentencepiece's ▁), a line feed ⏎, a carriage return ␍, a tab ⇥; other characters that show nothing are
    spelt <U+200B>, and a combining mark at the beginning stands on ◌. Special tokens, and the ## of a
    WordPiece inside a word, stay as the tokenizer spells them. An id without a token is shown as <id 50300>, as is every id
    where there is no tokenizer.

    Args:
        tokenizer: of transformers; or with `convert_ids_to_tokens(ids)`, or else with `decode(ids)`; or None.
        ids: one token id, or several.

    Returns:
        one string, or a list of them.
    """
    if isinstance(ids, Iterable):
        spell = _spelling(tokenizer)
        return [spell(int(i)) for i in ids]
    return _spelling(tokenizer)(int(ids))


def visible(text: str) -> str:
    """The text with every character visible.

    >>> visible("a b\\n"), visible("\\u0301"), visible("\\u200b")
    ('a␣b⏎', '◌\u0301', '<U+200B>')
    """
    shown = "".join(map(_character, text))
    return "◌" + shown if text and unicodedata.category(text[0]).startswith("M") else shown


def _character(c: str) -> str:
    if c in SIGNS:
        return SIGNS[c]
    if c < " ":
        return chr(0x2400 + ord(c))
    if c == "\x7f":
        return "␡"
    category = unicodedata.category(c)
    return f"<U+{ord(c):04X}>" if category[0] in "CZ" else c


def _bytes(data: bytes) -> str:
    """Whole characters as such, the bytes of others as <0xE2>; bytes without a character never vanish."""
    # surrogateescape keeps a byte b that is not part of a character as the lone surrogate U+DC00 + b
    text = data.decode("utf-8", "surrogateescape")
    parts = re.split("([\udc80-\udcff])", text)
    return "".join(f"<0x{ord(part) - 0xDC00:02X}>" if i % 2 else visible(part) for i, part in enumerate(parts))


@cache
def _byte_alphabet() -> dict[str, int]:
    """The letters by which byte-level BPE spells bytes: printable Latin-1 as itself, the rest from U+0100 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(0x100 + i): b for i, b in enumerate(others)}


def _kinds(tokenizer: Any) -> set[str]:
    """The types of the parts of the tokenizer's decoder and pre-tokenizer; `▁` for one that turns ▁ into a space."""
    kinds: set[str] = set()

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if "type" in part:
                kinds.add(part["type"])
            if part.get("type") == "Replace" and part.get("pattern") == {"String": "▁"}:
                kinds.add("▁")
            for inner in part.values():
                walk(inner)
        elif isinstance(part, list):
            for inner in part:
                walk(inner)

    backend = getattr(tokenizer, "backend_tokenizer", None)
    for part in (getattr(backend, "decoder", None), getattr(backend, "pre_tokenizer", None)):
        if part is not None:
            walk(json.loads(part.__getstate__()))
    if hasattr(tokenizer, "byte_decoder"):
        kinds.add("ByteLevel")
    if hasattr(tokenizer, "sp_model"):
        kinds.add("Metaspace")
    return kinds


def _spelling(tokenizer: Any) -> Callable[[int], str]:
    if tokenizer is None:
        return lambda i: f"<id {i}>"
    kinds = _kinds(tokenizer)
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    alphabet = _byte_alphabet() if "ByteLevel" in kinds else None
    spaces = bool(kinds & {"Metaspace", "▁"})

    def spell(i: int) -> str:
        if i in added:
            return visible(str(getattr(added[i], "content", added[i])))
        if not hasattr(tokenizer, "convert_ids_to_tokens"):
            return visible(tokenizer.decode([i]))
        try:
            token = tokenizer.convert_ids_to_tokens([i])[0]
        except (IndexError, KeyError, OverflowError):
            token = None
        if token is None:
            return f"<id {i}>"
        if isinstance(token, bytes):
            return _bytes(token)
        if byte := BYTE_TOKEN.fullmatch(token):
            return _bytes(bytes([int(byte[1], 16)]))
        if alphabet and all(c in alphabet for c in token):
            return _bytes(bytes(alphabet[c] for c in token))
        return visible(token.replace("▁", " ") if spaces else token)

    return spell
