"""The options of `headscan attribute`, and which predictions of a prompt they ask to explain."""

from collections.abc import Sequence

import torch

from headscan.attribution.engine import Engine
from headscan.attribution.method import METHODS, AttributionMethod
from headscan.attribution.target import AttributionTarget, TargetStep, kind_of, one_token
from headscan.model import Lens
from headscan.run import BadInput, Given
from headscan.text.prompts import Prompt, read_prompt


def check(asked: Given) -> None:
    """Raise BadInput where options do not fit together."""
    kind_of(asked["target"], asked["against"])
    if asked["continuation"] is not None and asked["generate"] is not None:
        raise BadInput("Give --continuation or --generate, not both.")
    if explains_several(asked) and (asked["token"] is not None or asked["against"] is not None):
        raise BadInput("A continuation names its own tokens: leave --token and --against out.")
    methods = methods_of(asked)
    if (
        asked.stated("substitute", "auto")
        and not asked["faithfulness"]
        and not any(item.substitutes for item in methods)
    ):
        users = ", ".join(sorted(name for name, item in METHODS.items() if item.substitutes))
        unused = (
            "--substitute is not used by the attribution method "
            f"{' or '.join(item.name for item in methods)}"
        )
        raise BadInput(f"{unused} without --faithfulness; it belongs to {users}.")


def explains_several(asked: Given) -> bool:
    return asked["continuation"] is not None or asked["generate"] is not None


def methods_of(asked: Given, *, sentence: bool = False) -> list[AttributionMethod]:
    """The methods that are asked for, without repeats; `sentence`: for a sentence vector."""
    if asked["method"] is None:
        return [
            METHODS["occlusion" if sentence and asked["against"] is None else "gradient-x-input"]()
        ]
    methods: list[AttributionMethod] = METHODS.build_each(asked["method"])
    if not methods:
        raise BadInput(f"Name at least one attribution method: {', '.join(METHODS)}, or all.")
    return methods


def find_steps(
    engine: Engine, prompt: Prompt, asked: Given
) -> tuple[Prompt, tuple[TargetStep, ...]]:
    """The predictions to explain, and the prompt with as much of the continuation as they rest on.
    Raises BadInput: a text that is not one token, a mask that is missing, a continuation that a
    model cannot write or take.
    """
    lens, longest = engine.lens, engine.lens.context_length
    against = one_token(lens, asked["against"]) if asked["against"] is not None else None
    named = one_token(lens, asked["token"]) if asked["token"] is not None else None
    if explains_several(asked):
        if engine.masked:
            raise BadInput(f"'{lens.name}' fills masks; it continues no text.")
        ids = _continuation(engine, prompt, asked)
        many = len(prompt) + len(ids)
        if longest is not None and many - 1 > longest:
            raise BadInput(
                f"Prompt and continuation have {many} tokens, but '{lens.name}' takes at most "
                f"{longest}."
            )
        steps = tuple(TargetStep(len(prompt) - 1 + k, token) for k, token in enumerate(ids))
        prompt = prompt.extended(lens.tokenizer, ids[:-1])
    else:
        positions = [len(prompt) - 1] if engine.causal else _masks(lens, prompt)
        tokens = (
            [named] * len(positions)
            if named is not None
            else _predicted(engine, prompt.ids, positions)
        )
        steps = tuple(
            TargetStep(p, token, against) for p, token in zip(positions, tokens, strict=True)
        )
    if any(step.token == step.against for step in steps):
        raise BadInput(
            "A token cannot be put against itself: choose another --against, or name the --token."
        )
    return prompt, steps


def _predicted(engine: Engine, ids: Sequence[int], positions: list[int]) -> list[int]:
    with torch.no_grad():
        logits = engine.logits(engine.embed(torch.tensor([list(ids)])), positions)[0]
    return [int(i) for i in logits.argmax(-1)]


def _masks(lens: Lens, prompt: Prompt) -> list[int]:
    mask = getattr(lens.tokenizer, "mask_token_id", None)
    positions = [i for i, token in enumerate(prompt.ids) if mask is not None and token == mask]
    if not positions:
        word = getattr(lens.tokenizer, "mask_token", None) or "the mask token"
        raise BadInput(
            f"'{lens.name}' fills masks: put {word} where the prompt is to be completed."
        )
    return positions


def _continuation(engine: Engine, prompt: Prompt, asked: Given) -> list[int]:
    """The tokens of the continuation that is given, or written greedily."""
    lens = engine.lens
    count = asked["generate"] or 1
    if asked["continuation"] is not None:
        tokenizer = lens.require_tokenizer()
        whole = list(
            tokenizer.encode(prompt.text + asked["continuation"], add_special_tokens=False)
        )
        plain = [i for i, special in zip(prompt.ids, prompt.special, strict=True) if not special]
        joined = whole[: len(plain)] == plain
        ids = (
            whole[len(plain) :]
            if joined
            else tokenizer.encode(asked["continuation"], add_special_tokens=False)
        )
        if not ids:
            raise BadInput("The continuation is empty.")
        return [int(i) for i in ids]
    longest = lens.context_length
    if longest is not None and len(prompt) + count - 1 > longest:
        both = f"The prompt of {len(prompt)} tokens and {count} more"
        raise BadInput(f"{both} exceed the context of '{lens.name}', {longest} tokens.")
    ids = []
    while len(ids) < count:
        ids += _predicted(engine, [*prompt.ids, *ids], [len(prompt) + len(ids) - 1])
    return ids


# ---- Sentence vectors, of encoders that predict no token: what the vector of a text rests on


def sentence_target(engine: Engine, ids: Sequence[int], asked: Given) -> AttributionTarget:
    """The cosine of the prompt's sentence vector with a fixed one: that of the whole prompt, so
    that a token's score is how far the vector turns without it, or that of another text
    (`--against`), so that it says why the two are alike.
    """
    text = asked["against"]
    lens = engine.lens
    if text is not None and not isinstance(text, str):
        raise BadInput(
            "A sentence vector is put against that of another text: give --against a text."
        )
    if text is not None:
        ids = read_prompt(text, lens.tokenizer, lens.limits).ids
    other = "its own when no token is missing" if text is None else f"that of '{text}'"
    over = {
        "mean": "the mean over tokens",
        "first": "the first token's",
        "last": "the last token's",
    }[engine.pooling]
    over += "" if engine.declared else "; the model's folder names none"
    return AttributionTarget(
        "sentence",
        (TargetStep(0, None),),
        engine.logits(engine.embed(torch.tensor([list(ids)])), [0])[0, 0].float(),
        f"the cosine of the prompt's sentence vector ({over}) with {other}",
        flat=text is None,
    )


def asks_for_sentence(lens: Lens, asked: Given) -> bool:
    """Whether the sentence vector is explained: where it is asked for, and of encoders that can
    predict no token. Raises BadInput: options that name tokens to predict.
    """
    headless = "head" not in lens.sites and not lens.traits.causal
    if asked["target"] != "sentence" and not (asked["target"] == "next" and headless):
        return False
    if explains_several(asked) or asked["token"] is not None:
        raise BadInput(
            "A sentence vector predicts no token: leave --token, --continuation and --generate out."
        )
    return True


def check_slopes(target: AttributionTarget, methods: Sequence[AttributionMethod]) -> None:
    """Raise BadInput for methods that ask for a slope where there is none: a cosine with its own
    vector is at its largest.
    """
    local = [method.name for method in methods if method.local]
    if local and target.flat:
        others = ", ".join(name for name, item in METHODS.items() if not item.local)
        raise BadInput(
            f"The cosine of a sentence vector with itself has no slope, so {' and '.join(local)} "
            f"would score every token 0: choose --method {others}, or another text with --against."
        )
