"""A prompt as the model sees it: ids, visible tokens, where each came from, and who says it in a chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from headscan.errors import BadInput
from headscan.model import Lens
from headscan.text.display import display

__all__ = ["Prompt", "read_prompt"]


@dataclass(frozen=True)
class Prompt:
    """Token ids with what a reader needs to find each in the text.

    Attributes:
        text: the text that was tokenised; for a chat, the rendered template.
        ids: one id a token.
        tokens: the same tokens as people can see them (`headscan.text.display`).
        offsets: (first, last) characters of each token in `text`; (0, 0) for a token that is not in it.
        special: whether a token is one of the tokenizer's special tokens.
        roles: who says the token in a chat; None for tokens of the template, and outside chats.
    """

    text: str
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]
    roles: tuple[str | None, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.ids)

    def extended(self, tokenizer: Any, ids: Sequence[int]) -> Prompt:
        """The prompt with more tokens behind it; they count as text of the model's own."""
        pieces = display(tokenizer, ids)
        text, offsets = self.text, list(self.offsets)
        for i, piece in zip(ids, pieces, strict=True):
            spelt = _spelt(tokenizer, i, piece)
            offsets.append((len(text), len(text) + len(spelt)))
            text += spelt
        special = set(getattr(tokenizer, "all_special_ids", None) or ())
        return Prompt(
            text,
            self.ids + tuple(ids),
            self.tokens + tuple(pieces),
            tuple(offsets),
            self.special + tuple(i in special for i in ids),
            self.roles + tuple("continuation" for _ in ids) if any(self.roles) else (None,) * (len(self) + len(ids)),
        )


def read_prompt(
    lens: Lens, prompt: str | Sequence[int] | Sequence[Mapping[str, str]], *, chat: bool = False, special: bool = True
) -> Prompt:
    """Tokenise a prompt.

    Args:
        lens: the model with its tokenizer.
        prompt: a text; or token ids; or a chat as a list of {"role": ..., "content": ...}.
        chat: put a text into the tokenizer's chat template, as one message of the user.
        special: add the tokenizer's own special tokens (a beginning-of-text token, [CLS]). A chat template has its own.

    Raises:
        BadInput: the prompt is empty or longer than the context, or the tokenizer has no chat template.
    """
    messages = None
    if isinstance(prompt, str):
        if not prompt.strip() and not (prompt and not special):
            raise BadInput("The prompt is empty.")
        if chat:
            messages = [{"role": "user", "content": prompt}]
    elif prompt and isinstance(prompt[0], Mapping):
        messages = [dict(message) for message in prompt]  # type: ignore[arg-type]
    elif not prompt:
        raise BadInput("The prompt is empty.")
    if messages is not None:
        found = _chat(lens, messages)
    elif isinstance(prompt, str):
        found = _text(lens.require_tokenizer(), prompt, special)
    else:
        found = _ids(lens, [int(i) for i in cast("Sequence[int]", prompt)])
    if not found.ids:
        raise BadInput("The prompt is empty: it has no tokens.")
    if lens.context_length is not None and len(found) > lens.context_length:
        raise BadInput(f"The prompt has {len(found)} tokens, but '{lens.name}' takes at most {lens.context_length}.")
    top = max(found.ids)
    if top >= lens.vocabulary_size or min(found.ids) < 0:
        raise BadInput(f"Token id {top} is not in the vocabulary of '{lens.name}' (0 to {lens.vocabulary_size - 1}).")
    return found


def _text(tokenizer: Any, text: str, special: bool) -> Prompt:
    options: dict[str, Any] = {"add_special_tokens": special}
    if getattr(tokenizer, "is_fast", False):
        options["return_offsets_mapping"] = True
    encoded = tokenizer(text, **options)
    ids = [int(i) for i in encoded["input_ids"]]
    offsets = encoded.get("offset_mapping") if hasattr(encoded, "get") else None
    specials = set(getattr(tokenizer, "all_special_ids", None) or ())
    pieces = display(tokenizer, ids)
    places = [(int(a), int(b)) for a, b in offsets] if offsets else _guessed(tokenizer, ids, pieces, text)
    return Prompt(text, tuple(ids), tuple(pieces), tuple(places), tuple(i in specials for i in ids), (None,) * len(ids))


def _guessed(tokenizer: Any, ids: list[int], pieces: list[str], text: str) -> list[tuple[int, int]]:
    """Offsets where the tokenizer gives none: each token's own spelling, looked for from left to right."""
    places, at = [], 0
    for i, piece in zip(ids, pieces, strict=True):
        spelt = _spelt(tokenizer, i, piece)
        found = text.find(spelt, at) if spelt else -1
        if found < 0:
            places.append((at, at))
            continue
        places.append((found, found + len(spelt)))
        at = found + len(spelt)
    return places


def _spelt(tokenizer: Any, i: int, piece: str) -> str:
    """The token's text in a running text; from its visible form, which keeps the space that `decode` may drop."""
    return piece.replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t").replace("␍", "\r")


def _ids(lens: Lens, ids: list[int]) -> Prompt:
    tokenizer = lens.tokenizer
    if tokenizer is None:
        pieces = [f"<id {i}>" for i in ids]
        return Prompt(
            "".join(pieces), tuple(ids), tuple(pieces), _tiled(pieces), (False,) * len(ids), (None,) * len(ids)
        )
    empty = Prompt("", (), (), (), (), ())
    return empty.extended(tokenizer, ids)


def _tiled(pieces: Sequence[str]) -> tuple[tuple[int, int], ...]:
    places, at = [], 0
    for piece in pieces:
        places.append((at, at + len(piece)))
        at += len(piece)
    return tuple(places)


def _chat(lens: Lens, messages: list[dict[str, str]]) -> Prompt:
    tokenizer = lens.require_tokenizer()
    if not getattr(tokenizer, "chat_template", None):
        raise BadInput(f"The tokenizer of '{lens.name}' has no chat template: give the prompt as plain text.")
    if any("role" not in message or "content" not in message for message in messages):
        raise BadInput("Each message of a chat needs a 'role' and a 'content'.")
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are programs of the model's author and raise what they like
        raise BadInput(f"The chat template of '{lens.name}' refuses the messages: {error}.") from error
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
