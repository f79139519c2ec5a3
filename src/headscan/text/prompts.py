"""Prompts as a model sees them: texts, token ids, tensors or chats, read alike for every verb that
takes them.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from typing import Any, Protocol, overload, runtime_checkable

from typing_extensions import TypeAliasType

from headscan.run.errors import BadInput

# ---- Tokens as people can see them: spaces, line ends, stray bytes and invisible characters made visible.

SIGNS = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\x7f": "␡"}
IDS = ", or give token ids"
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@overload
def display(tokenizer: Any, ids: int) -> str: ...
@overload
def display(tokenizer: Any, ids: Iterable[int]) -> list[str]: ...
def display(tokenizer: Any, ids: int | Iterable[int]) -> str | list[str]:
    """One visible string for each token id; of one id the string itself.

    Byte-level pieces and byte tokens are decoded, bytes that are no whole character are shown as
    <0xE2>, a space is ␣ (also sentencepiece's ▁), a line feed ⏎, a carriage return ␍, a tab ⇥;
    other characters that show nothing are spelt <U+200B>, and a combining mark at the beginning
    stands on ◌. Special tokens, and the ## of a WordPiece inside a word, stay as the tokenizer
    spells them. An id without a token, or without a tokenizer, is shown as <id 50300>.
    """
    if isinstance(ids, Iterable):
        spell = _spelling(tokenizer)
        return [spell(int(i)) for i in ids]
    return _spelling(tokenizer)(int(ids))


def visible(text: str) -> str:
    """The text with every character visible."""
    shown = "".join(map(_character, text))
    return "◌" + shown if text and unicodedata.category(text[0]).startswith("M") else shown


def _character(c: str) -> str:
    if c in SIGNS:
        return SIGNS[c]
    if c < " ":
        return chr(0x2400 + ord(c))
    return f"<U+{ord(c):04X}>" if unicodedata.category(c)[0] in "CZ" else c


def _bytes(data: bytes) -> str:
    """Whole characters as such, the bytes of others as <0xE2>; bytes without a character never
    vanish.
    """
    # surrogateescape keeps a byte b that is not part of a character as the lone surrogate U+DC00 +
    # b
    parts = re.split("([\udc80-\udcff])", data.decode("utf-8", "surrogateescape"))
    return "".join(
        f"<0x{ord(part) - 0xDC00:02X}>" if i % 2 else visible(part) for i, part in enumerate(parts)
    )


@cache
def _byte_alphabet() -> dict[str, int]:
    """The letters by which byte-level BPE spells bytes: printable Latin-1 as itself, the rest from
    U+0100 on.
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(0x100 + i): b for i, b in enumerate(others)}


def _kinds(tokenizer: Any) -> set[str]:
    """The types of the parts of the tokenizer's decoder and pre-tokenizer; `▁` for one that turns ▁
    into a space.
    """
    kinds: set[str] = set()

    def note(part: Any) -> Any:
        kinds.add(str(part.get("type")))
        if part.get("type") == "Replace" and part.get("pattern") == {"String": "▁"}:
            kinds.add("▁")
        return part

    backend = getattr(tokenizer, "backend_tokenizer", None)
    for part in (getattr(backend, "decoder", None), getattr(backend, "pre_tokenizer", None)):
        if part is not None:
            json.loads(part.__getstate__(), object_hook=note)
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


@runtime_checkable
class IdArray(Protocol):
    """A torch tensor, a numpy array, or anything else with a shape that can be made a list."""

    @property
    def shape(self) -> Any: ...

    def tolist(self) -> Any: ...


@dataclass(frozen=True)
class Limits:
    """What a model takes: its name, how many token ids it knows, and its longest input (None: no
    limit).
    """

    name: str
    vocabulary: int
    context: int | None = None


@dataclass(frozen=True)
class Prompt:
    """Token ids with what a reader needs to find each in the text.

    `text` is what was tokenised: for a chat the rendered template, for ids their spelling. `tokens`
    are the tokens as people can see them; `offsets` the (first, last) characters of each in `text`,
    (0, 0) for a token that is not in it; `special` says whether a token is one of the tokenizer's
    special tokens, `roles` who says it in a chat (None: the template, or no chat).
    """

    text: str
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]
    roles: tuple[str | None, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of_ids(cls, tokenizer: Any, ids: Sequence[int]) -> "Prompt":
        """Tokens that no text is known of: their spelling is the text, and no token is looked for
        in it.
        """
        pieces = display(tokenizer, ids)
        return cls(
            "".join(pieces), tuple(ids), tuple(pieces), ((0, 0),) * len(ids), (False,) * len(ids)
        )

    def extended(self, tokenizer: Any, ids: Sequence[int]) -> "Prompt":
        """The prompt with more tokens behind it; they count as text of the model's own."""
        pieces = display(tokenizer, ids)
        text = self.text
        offsets = list(self.offsets)
        for piece in pieces:
            spelt = _spelt(piece)
            offsets.append((len(text), len(text) + len(spelt)))
            text += spelt
        roles = (
            self.roles + ("continuation",) * len(ids)
            if any(self.roles)
            else (None,) * (len(self) + len(ids))
        )
        return Prompt(
            text,
            self.ids + tuple(ids),
            self.tokens + tuple(pieces),
            tuple(offsets),
            self.special + _special(tokenizer, ids),
            roles,
        )


def _special(tokenizer: Any, ids: Iterable[int]) -> tuple[bool, ...]:
    special = set(getattr(tokenizer, "all_special_ids", None) or ())
    return tuple(i in special for i in ids)


PromptLike = TypeAliasType(
    "PromptLike", str | Prompt | IdArray | Sequence[int] | Sequence[Mapping[str, str]]
)
"""One prompt: a text; token ids as a list, tensor or array [T]; or a chat, a list of {"role": ...,
"content": ...}.
"""
PromptsLike = TypeAliasType(
    "PromptsLike", PromptLike | Sequence[str] | Sequence[Sequence[int]] | Sequence[PromptLike]
)
"""One prompt or several: a list of prompts of any kinds, or ids [P, T]."""


def read_prompts(
    given: PromptsLike, tokenizer: Any, limits: Limits, *, chat: bool = False, special: bool = True
) -> list[Prompt]:
    """Read one prompt or several (see `PromptsLike`); a list in any case, in the order given.

    `tokenizer` is of transformers, `headscan.model.ByteTokenizer`, or None (then prompts can only
    be ids). With `chat` each text is put into the tokenizer's chat template, as one message of the
    user; `special` adds the tokenizer's own special tokens (a beginning-of-text token, [CLS]),
    which a chat template has already. Raises `BadInput` where nothing was given, a prompt is empty,
    too long, or holds an id that is not in the vocabulary; for a text without a tokenizer, a chat
    without a template.

    >>> class Letters:
    ...     def __call__(self, text, add_special_tokens=True):
    ...         return {"input_ids": [ord(letter) for letter in text]}
    ...     def decode(self, ids):
    ...         return "".join(map(chr, ids))
    >>> [prompt.ids for prompt in read_prompts(["ab", [99, 100]], Letters(), Limits("letters", 128))]
    [(97, 98), (99, 100)]
    """
    return [_read(one, tokenizer, limits, chat, special) for one in _apart(given)]


def read_prompt(
    given: PromptLike, tokenizer: Any, limits: Limits, *, chat: bool = False, special: bool = True
) -> Prompt:
    """Read exactly one prompt; `read_prompts` says how. BadInput for several."""
    prompts = read_prompts(given, tokenizer, limits, chat=chat, special=special)
    if len(prompts) != 1:
        raise BadInput(f"One prompt is asked for, but {len(prompts)} were given.")
    return prompts[0]


def _apart(given: PromptsLike) -> list[Any]:
    """The prompts one by one."""
    if isinstance(given, IdArray) and not isinstance(given, str):
        if len(given.shape) not in (1, 2):
            raise BadInput(
                "Token ids have the shape [T], or [P, T] for several prompts, not "
                f"{list(given.shape)}."
            )
        given = given.tolist()
    if isinstance(given, str | Prompt):
        return [given]
    if not isinstance(given, Sequence):
        raise BadInput(f"A prompt is a text, token ids, or a chat, not {type(given).__name__}.")
    if not len(given):
        raise BadInput("The prompt is empty.")
    return [given] if isinstance(given[0], int | Integral | float | Mapping) else list(given)


def _read(given: Any, tokenizer: Any, limits: Limits, chat: bool, special: bool) -> Prompt:
    if isinstance(given, IdArray):
        given = given.tolist()
    if isinstance(given, str):
        if not given.strip() and not (given and not special):
            raise BadInput("The prompt is empty.")
        if chat:
            prompt = _chat(tokenizer, limits, [{"role": "user", "content": given}])
        else:
            prompt = _text(require_tokenizer(tokenizer, limits.name, IDS), given, special)
    elif isinstance(given, Prompt):
        prompt = given
    elif not isinstance(given, Sequence) or not len(given):
        raise BadInput(
            "The prompt is empty."
            if isinstance(given, Sequence)
            else "A prompt is a text, ids or a chat."
        )
    elif isinstance(given[0], Mapping):
        prompt = _chat(tokenizer, limits, [dict(message) for message in given])
    elif all(isinstance(i, Integral) and not isinstance(i, bool) for i in given):
        prompt = Prompt("", (), (), (), ()).extended(tokenizer, [int(i) for i in given])
    else:
        raise BadInput("Token ids are whole numbers.")
    if not prompt.ids:
        raise BadInput("The prompt is empty: it has no tokens.")
    if limits.context is not None and len(prompt) > limits.context:
        raise BadInput(
            f"The prompt has {len(prompt)} tokens, but '{limits.name}' takes at most "
            f"{limits.context}."
        )
    low = min(prompt.ids)
    top = max(prompt.ids)
    if low < 0 or top >= limits.vocabulary:
        wrong = low if low < 0 else top
        raise BadInput(
            f"Token id {wrong} is not in the vocabulary of '{limits.name}' (0 to "
            f"{limits.vocabulary - 1})."
        )
    return prompt


def require_tokenizer(tokenizer: Any, name: str, instead: str = "") -> Any:
    if tokenizer is None:
        raise BadInput(
            f"The model '{name}' comes without a tokenizer: name one (--tokenizer FOLDER or id, "
            f"or 'bytes' for a model that reads UTF-8 bytes){instead}."
        )
    return tokenizer


def _text(tokenizer: Any, text: str, special: bool) -> Prompt:
    options: dict[str, bool] = {"add_special_tokens": special}
    if getattr(tokenizer, "is_fast", False):
        options["return_offsets_mapping"] = True
    encoded = tokenizer(text, **options)
    ids = [int(i) for i in encoded["input_ids"]]
    offsets = encoded.get("offset_mapping") if hasattr(encoded, "get") else None
    pieces = display(tokenizer, ids)
    places = [(int(a), int(b)) for a, b in offsets] if offsets else _guessed(pieces, text)
    return Prompt(
        text, tuple(ids), tuple(pieces), tuple(places), _special(tokenizer, ids), (None,) * len(ids)
    )


def _guessed(pieces: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Offsets where the tokenizer gives none: each token's own spelling, looked for from left to
    right.
    """
    places = []
    at = 0
    for piece in pieces:
        spelt = _spelt(piece)
        first = text.find(spelt, at) if spelt else -1
        if first < 0:
            places.append((at, at))
            continue
        at = first + len(spelt)
        places.append((first, at))
    return places


def _spelt(piece: str) -> str:
    return piece.replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t").replace("␍", "\r")


def _chat(tokenizer: Any, limits: Limits, messages: list[dict[str, str]]) -> Prompt:
    if not getattr(require_tokenizer(tokenizer, limits.name, IDS), "chat_template", None):
        raise BadInput(
            f"The tokenizer of '{limits.name}' has no chat template: give the prompt as plain text."
        )
    if any("role" not in message or "content" not in message for message in messages):
        raise BadInput("Each message of a chat needs a 'role' and a 'content'.")
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except (
        Exception
    ) as error:  # templates are programs of the model's author and raise what they like
        raise BadInput(
            f"The chat template of '{limits.name}' refuses the messages: {error}."
        ) from error
    bare = _text(tokenizer, text, special=False)
    roles: list[str | None] = [None] * len(bare)
    at = 0
    for message in messages:
        content = message["content"].strip()
        first = text.find(content, at)
        if first < 0 or not content:
            continue
        at = first + len(content)
        for index, (a, b) in enumerate(bare.offsets):
            if b > first and a < at and b > a:
                roles[index] = message["role"]
    return Prompt(bare.text, bare.ids, bare.tokens, bare.offsets, bare.special, tuple(roles))
