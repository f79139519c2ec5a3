"""Prompts: strings, token ids, tensors or chats, read in the same way for every verb that takes
them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

from typing_extensions import TypeAliasType

from headscan.run.errors import BadInput
from headscan.text.limited import limited
from headscan.text.spelling import display, readable

OR_IDS = ", or give token ids"

Offset = tuple[int, int]
"""The first character of a token in a text, and the one behind its last."""


@runtime_checkable
class IdArray(Protocol):
    """A torch tensor, a numpy array, or anything else with a shape that can be made a list."""

    @property
    def shape(self) -> Any: ...

    def tolist(self) -> Any: ...


@dataclass(frozen=True)
class Limits:
    """The input of a model.

    Attributes:
        name: the model's name.
        vocabulary: number of token ids that it knows.
        context: its longest input; None: no limit.
    """

    name: str
    vocabulary: int
    context: int | None = None


@dataclass(frozen=True)
class Prompt:
    """Token ids with what a reader needs to find each in the text.

    Attributes:
        text: what was tokenised: for a chat the rendered template, for ids their spelling.
        ids: the token ids.
        tokens: the tokens in visible form.
        offsets: the characters of each token in `text`; (0, 0) for a token that is not in it.
        special: whether each token is one of the tokenizer's special tokens.
        roles: the role whose message each token is in (None: the template, or no chat).
    """

    text: str
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    offsets: tuple[Offset, ...]
    special: tuple[bool, ...]
    roles: tuple[str | None, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of_ids(cls, tokenizer: Any, ids: Sequence[int]) -> "Prompt":
        """Return a prompt of tokens whose text is not known.

        Their spelling is the text, and no token is looked for in it.
        """
        spellings = display(tokenizer, ids)
        return cls(
            text="".join(spellings),
            ids=tuple(ids),
            tokens=tuple(spellings),
            offsets=((0, 0),) * len(ids),
            special=(False,) * len(ids),
        )

    def extended(self, tokenizer: Any, ids: Sequence[int]) -> "Prompt":
        """Return the prompt with further tokens at its end; they count as the model's own text."""
        spellings = display(tokenizer, ids)
        text = self.text
        offsets = list(self.offsets)
        for spelling in spellings:
            token_text = readable(spelling)
            offsets.append((len(text), len(text) + len(token_text)))
            text += token_text

        roles: tuple[str | None, ...] = (None,) * (len(self) + len(ids))
        if any(self.roles):
            roles = self.roles + ("continuation",) * len(ids)
        return Prompt(
            text=text,
            ids=self.ids + tuple(ids),
            tokens=self.tokens + tuple(spellings),
            offsets=tuple(offsets),
            special=self.special + _are_special(tokenizer, ids),
            roles=roles,
        )


def _are_special(tokenizer: Any, ids: Iterable[int]) -> tuple[bool, ...]:
    special = set(getattr(tokenizer, "all_special_ids", None) or ())
    return tuple(token_id in special for token_id in ids)


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
    prompts: PromptsLike,
    tokenizer: Any,
    limits: Limits,
    *,
    chat: bool = False,
    special: bool = True,
) -> list[Prompt]:
    """Read one prompt or several (see `PromptsLike`), and return a list in any case, in order.

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
    >>> limits = Limits("letters", 128)
    >>> [prompt.ids for prompt in read_prompts(["ab", [99, 100]], Letters(), limits)]
    [(97, 98), (99, 100)]
    """
    return [
        _read_one(prompt, tokenizer, limits, chat=chat, special=special)
        for prompt in _separate(prompts)
    ]


def are_texts(prompts: PromptsLike | None) -> bool:
    """Return whether prompts are texts alone, not token ids or chats.

    >>> are_texts("a"), are_texts(["a", "b"]), are_texts([1, 2]), are_texts(["a", [1]])
    (True, True, False, False)
    """
    if isinstance(prompts, str):
        return True
    if not isinstance(prompts, Sequence) or not len(prompts):
        return False
    return all(isinstance(prompt, str) for prompt in prompts)


def read_prompt(
    prompt: PromptLike, tokenizer: Any, limits: Limits, *, chat: bool = False, special: bool = True
) -> Prompt:
    """Read exactly one prompt as `read_prompts` does; BadInput for several."""
    prompts = read_prompts(prompt, tokenizer, limits, chat=chat, special=special)
    if len(prompts) != 1:
        raise BadInput(f"One prompt is asked for, but {len(prompts)} were given.")
    return prompts[0]


def _separate(prompts: PromptsLike) -> list[Any]:
    """Return a list of single prompts."""
    if isinstance(prompts, IdArray) and not isinstance(prompts, str):
        if len(prompts.shape) not in (1, 2):
            raise BadInput(
                "Token ids have the shape [T], or [P, T] for several prompts, not "
                f"{list(prompts.shape)}."
            )
        prompts = prompts.tolist()
    if isinstance(prompts, str | Prompt):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise BadInput(f"A prompt is a text, token ids, or a chat, not {type(prompts).__name__}.")
    if not len(prompts):
        raise BadInput("The prompt is empty.")
    is_single = isinstance(prompts[0], int | Integral | float | Mapping)
    return [prompts] if is_single else list(prompts)


def _read_one(prompt: Any, tokenizer: Any, limits: Limits, *, chat: bool, special: bool) -> Prompt:
    """Read a single prompt of any kind, and check it against the model's limits."""
    if isinstance(prompt, IdArray):
        prompt = prompt.tolist()
    if isinstance(prompt, Prompt):
        result = prompt
    elif isinstance(prompt, str):
        result = _read_text(prompt, tokenizer, limits, chat=chat, special=special)
    elif not isinstance(prompt, Sequence):
        raise BadInput("A prompt is a text, ids or a chat.")
    elif not len(prompt):
        raise BadInput("The prompt is empty.")
    elif isinstance(prompt[0], Mapping):
        result = _read_chat(tokenizer, limits, [dict(message) for message in prompt])
    elif all(_is_whole_number(token_id) for token_id in prompt):
        empty = Prompt("", (), (), (), ())
        result = empty.extended(tokenizer, [int(token_id) for token_id in prompt])
    else:
        raise BadInput("Token ids are whole numbers.")
    _check_limits(result, limits)
    return result


def _is_whole_number(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check_limits(prompt: Prompt, limits: Limits) -> None:
    """Raise BadInput for a prompt that the model cannot read."""
    if not prompt.ids:
        raise BadInput("The prompt is empty: it has no tokens.")
    if limits.context is not None and len(prompt) > limits.context:
        raise BadInput(
            f"The prompt has {len(prompt)} tokens, but '{limits.name}' takes at most "
            f"{limits.context}."
        )
    lowest = min(prompt.ids)
    highest = max(prompt.ids)
    if lowest < 0 or highest >= limits.vocabulary:
        unknown = lowest if lowest < 0 else highest
        raise BadInput(
            f"Token id {unknown} is not in the vocabulary of '{limits.name}' (0 to "
            f"{limits.vocabulary - 1})."
        )


def require_tokenizer(tokenizer: Any, name: str, instead: str = "") -> Any:
    """Return the tokenizer of the model `name`; BadInput for None.

    `instead` ends the message with another way out.
    """
    if tokenizer is None:
        raise BadInput(
            f"The model '{name}' comes without a tokenizer: name one (--tokenizer FOLDER or id, "
            f"or 'bytes' for a model that reads UTF-8 bytes){instead}."
        )
    return tokenizer


def _read_text(text: str, tokenizer: Any, limits: Limits, *, chat: bool, special: bool) -> Prompt:
    """Read a text, or put it into the chat template."""
    # White space alone is a prompt where no special tokens are added.
    content = text.strip() if special else text
    if not content:
        raise BadInput("The prompt is empty.")
    if chat:
        return _read_chat(tokenizer, limits, [{"role": "user", "content": text}])
    return _tokenised(require_tokenizer(tokenizer, limits.name, OR_IDS), text, special)


def _tokenised(tokenizer: Any, text: str, special: bool) -> Prompt:
    """Return the prompt of a text; `special`: add the tokenizer's special tokens."""
    options: dict[str, bool] = {"add_special_tokens": special}
    if getattr(tokenizer, "is_fast", False):
        options["return_offsets_mapping"] = True
    encoded = tokenizer(text, **options)
    ids = [int(token_id) for token_id in encoded["input_ids"]]
    spellings = display(tokenizer, ids)
    mapping = encoded.get("offset_mapping") if hasattr(encoded, "get") else None
    if mapping:
        offsets = [(int(start), int(end)) for start, end in mapping]
    else:
        offsets = _guessed_offsets(spellings, text)
    return Prompt(
        text=text,
        ids=tuple(ids),
        tokens=tuple(spellings),
        offsets=tuple(offsets),
        special=_are_special(tokenizer, ids),
        roles=(None,) * len(ids),
    )


def _guessed_offsets(spellings: Sequence[str], text: str) -> list[Offset]:
    """Return offsets where the tokenizer gives none: each token's spelling is looked for from left
    to right.
    """
    offsets = []
    position = 0
    for spelling in spellings:
        token_text = readable(spelling)
        start = text.find(token_text, position) if token_text else -1
        if start < 0:
            offsets.append((position, position))
            continue
        position = start + len(token_text)
        offsets.append((start, position))
    return offsets


def _read_chat(tokenizer: Any, limits: Limits, messages: list[dict[str, str]]) -> Prompt:
    """Read a chat through the tokenizer's template."""
    if not getattr(require_tokenizer(tokenizer, limits.name, OR_IDS), "chat_template", None):
        raise BadInput(
            f"The tokenizer of '{limits.name}' has no chat template: give the prompt as plain text."
        )
    if any("role" not in message or "content" not in message for message in messages):
        raise BadInput("Each message of a chat needs a 'role' and a 'content'.")
    # a template is a program of the model's author
    render = partial(
        tokenizer.apply_chat_template, messages, tokenize=False, add_generation_prompt=True
    )
    text = limited(render, f"The chat template of '{limits.name}'")
    prompt = _tokenised(tokenizer, text, special=False)
    return replace(prompt, roles=_roles(prompt, messages))


def _roles(prompt: Prompt, messages: list[dict[str, str]]) -> tuple[str | None, ...]:
    """Return the role whose message each token of a rendered chat is in."""
    roles: list[str | None] = [None] * len(prompt)
    position = 0
    for message in messages:
        content = message["content"].strip()
        start = prompt.text.find(content, position)
        if start < 0 or not content:
            continue
        position = start + len(content)
        for index, (token_start, token_end) in enumerate(prompt.offsets):
            in_message = token_end > start and token_start < position
            if in_message and token_end > token_start:
                roles[index] = message["role"]
    return tuple(roles)
