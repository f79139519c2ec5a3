"""Tokens in visible form: spaces, line ends, stray bytes and invisible characters are shown."""

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Any, overload

SIGNS = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\x7f": "␡"}

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

STRAY_BYTE = re.compile("([\udc80-\udcff])")
"""A byte b without a character, which `surrogateescape` decodes to U+DC00 + b."""


@overload
def display(tokenizer: Any, ids: int) -> str: ...
@overload
def display(tokenizer: Any, ids: Iterable[int]) -> list[str]: ...
def display(tokenizer: Any, ids: int | Iterable[int]) -> str | list[str]:
    """Return one visible string for each token id; for one id the string itself.

    Byte-level pieces and byte tokens are decoded, bytes that are no whole character are shown as
    <0xE2>, a space is ␣ (also sentencepiece's ▁), a line feed ⏎, a carriage return ␍, a tab ⇥;
    other characters that show nothing are spelt <U+200B>, and a combining mark at the beginning
    stands on ◌. Special tokens, and the ## of a WordPiece inside a word, stay as the tokenizer
    spells them. An id without a token, or without a tokenizer, is shown as <id 50300>.
    """
    speller = _Speller(tokenizer)
    if isinstance(ids, Iterable):
        return [speller.spell(int(token_id)) for token_id in ids]
    return speller.spell(int(ids))


def visible(text: str) -> str:
    """Return the text with every character visible."""
    shown = "".join(_visible_character(character) for character in text)
    if text and unicodedata.category(text[0]).startswith("M"):
        return "◌" + shown
    return shown


def readable(spelling: str) -> str:
    """Return a token's visible form with spaces and line ends as themselves again."""
    text = spelling.replace("␣", " ").replace("⏎", "\n")
    return text.replace("⇥", "\t").replace("␍", "\r")


def _visible_character(character: str) -> str:
    if character in SIGNS:
        return SIGNS[character]
    if character < " ":
        return chr(0x2400 + ord(character))
    if unicodedata.category(character)[0] in "CZ":
        return f"<U+{ord(character):04X}>"
    return character


def _visible_bytes(data: bytes) -> str:
    """Return whole characters as such, the bytes of others as <0xE2>; no byte vanishes."""
    parts = STRAY_BYTE.split(data.decode("utf-8", "surrogateescape"))
    shown = []
    for index, part in enumerate(parts):
        is_stray_byte = index % 2 == 1
        shown.append(f"<0x{ord(part) - 0xDC00:02X}>" if is_stray_byte else visible(part))
    return "".join(shown)


@cache
def _byte_alphabet() -> dict[str, int]:
    """Return the letters by which byte-level BPE spells bytes, each with its byte.

    Printable Latin-1 characters are themselves, the other bytes are letters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    for index, byte in enumerate(unprintable):
        alphabet[chr(0x100 + index)] = byte
    return alphabet


def _component_types(tokenizer: Any) -> set[str]:
    """Return the types of the parts of the tokenizer's decoder and pre-tokenizer.

    `▁` is among them where a part turns ▁ into a space.
    """
    types: set[str] = set()

    def record(component: Any) -> Any:
        types.add(str(component.get("type")))
        if component.get("type") == "Replace" and component.get("pattern") == {"String": "▁"}:
            types.add("▁")
        return component

    backend = getattr(tokenizer, "backend_tokenizer", None)
    for name in ("decoder", "pre_tokenizer"):
        component = getattr(backend, name, None)
        if component is not None:
            json.loads(component.__getstate__(), object_hook=record)
    if hasattr(tokenizer, "byte_decoder"):
        types.add("ByteLevel")
    if hasattr(tokenizer, "sp_model"):
        types.add("Metaspace")
    return types


class _Speller:
    """The visible forms of one tokenizer's tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        types = set() if tokenizer is None else _component_types(tokenizer)
        self.added = getattr(tokenizer, "added_tokens_decoder", None) or {}
        self.alphabet = _byte_alphabet() if "ByteLevel" in types else None
        self.has_metaspace = bool(types & {"Metaspace", "▁"})

    def spell(self, token_id: int) -> str:
        """Return the visible form of a token."""
        if self.tokenizer is None:
            return f"<id {token_id}>"
        if token_id in self.added:
            added = self.added[token_id]
            return visible(str(getattr(added, "content", added)))
        if not hasattr(self.tokenizer, "convert_ids_to_tokens"):
            return visible(self.tokenizer.decode([token_id]))
        try:
            token = self.tokenizer.convert_ids_to_tokens([token_id])[0]
        except (IndexError, KeyError, OverflowError):
            token = None
        if token is None:
            return f"<id {token_id}>"
        return self._spell_token(token)

    def _spell_token(self, token: str | bytes) -> str:
        if isinstance(token, bytes):
            return _visible_bytes(token)
        byte = BYTE_TOKEN.fullmatch(token)
        if byte is not None:
            return _visible_bytes(bytes([int(byte[1], 16)]))
        alphabet = self.alphabet
        if alphabet and all(letter in alphabet for letter in token):
            return _visible_bytes(bytes(alphabet[letter] for letter in token))
        return visible(token.replace("▁", " ") if self.has_metaspace else token)
