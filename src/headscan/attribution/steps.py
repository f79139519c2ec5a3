"""Which predictions of a prompt are explained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headscan.attribution.engine import Engine, parse_memory
from headscan.attribution.method import METHODS, AttributionMethod
from headscan.attribution.target import AttributionTarget, TargetStep, UnitKind, kind_of, one_token
from headscan.model import Lens
from headscan.model.inputs import Pooling, declared_pooling, pooled
from headscan.model.recording import evaluating
from headscan.model.settings import Loading
from headscan.run import BadInput, Option, Running
from headscan.text.prompts import Prompt, PromptLike, read_prompt

# ---- What `headscan attribute` can be asked for.


@dataclass(frozen=True)
class Attributing(Loading, Running):
    """What is explained, by which methods, and how far the maps are checked."""

    prompt: Annotated[PromptLike, Option("The prompt; - reads it from standard input.", content=True)]
    _: KW_ONLY
    method: Annotated[
        str | AttributionMethod | Sequence[str | AttributionMethod] | None,
        Option(
            "Several with commas (the first colours the page), or all. Default: gradient-x-input; of a sentence vector by "
            "itself occlusion.",
            choices=METHODS,
        ),
    ] = None
    target: Annotated[
        Literal["next", "logit", "contrast", "logprob", "probability", "entropy", "all", "sentence"],
        Option(
            "What is explained: next or logit (the token's), contrast, logprob and entropy (nats), probability, all logits; "
            "sentence, the cosine of the sentence vector (next, of encoders without a head)."
        ),
    ] = "next"
    token: Annotated[
        str | int | None, Option("The token to explain: its text or #ID. Default: the model's prediction.")
    ] = None
    against: Annotated[
        str | int | None,
        Option(
            "Why the token and not this one: its text or #ID; of a sentence vector, another text to be compared with."
        ),
    ] = None
    continuation: Annotated[str | None, Option("Explain every token of this continuation.")] = None
    generate: Annotated[int | None, Option("Explain every token of a greedy continuation of so many.", low=1)] = None
    substitute: Annotated[
        str | int,
        Option("Stands for an absent token: auto, mask, pad, eos, bos, unk, mean, zero, remove, or a token (text or #ID)."),
    ] = "auto"  # fmt: skip
    units: Annotated[UnitKind, Option("What is scored together.")] = "token"
    spans: Annotated[
        Sequence[str | tuple[int, int]],
        Option("A span to score as one: a text of the prompt or FIRST:BEHIND token; repeat.", name="span", repeat=True),
    ] = ()  # fmt: skip
    signed: Annotated[bool, Option("Scores with signs; else their sizes alone.")] = True
    chat: Annotated[bool, Option("Put the prompt into the model's chat template.")] = False
    special: Annotated[bool, Option("Add the tokenizer's own special tokens.")] = True
    faithfulness: Annotated[bool, Option("Measure how far each map can be trusted: curves, comprehensiveness, ...")] = (
        True
    )
    memory: Annotated[
        str | int | None,
        Option("What a micro-batch may take, as 512MiB or in MiB. Default: 1GiB; half of what is free on a GPU."),
    ] = None
    batch: Annotated[int | None, Option("Rows of a micro-batch, in place of --memory.", low=1)] = None

    def check(self) -> None:
        """Options that exclude each other, and those that nothing would use, by name."""
        super().check()
        kind_of(self.target, self.against)
        if self.continuation is not None and self.generate is not None:
            raise BadInput("Give --continuation or --generate, not both.")
        if self.explains_several and (self.token is not None or self.against is not None):
            raise BadInput("A continuation names its own tokens: leave --token and --against out.")
        if self.spans and self.units != "token":
            raise BadInput(f"Spans are scored as they are named: leave --units {self.units} or --span out.")
        if self.memory is not None and self.batch is not None:
            raise BadInput("Give --memory or --batch, not both.")
        if self.memory is not None:
            parse_memory(self.memory)
        methods = self.methods()
        if self.substitute != "auto" and not self.faithfulness and not any(one.substitutes for one in methods):
            users = ", ".join(sorted(name for name, item in METHODS.items() if item.substitutes))
            raise BadInput(
                f"--substitute is not used by the attribution method {' or '.join(one.name for one in methods)} without "
                f"--faithfulness; it belongs to {users}."
            )

    @property
    def explains_several(self) -> bool:
        """Whether a continuation is explained, token by token."""
        return self.continuation is not None or self.generate is not None

    def methods(self, *, sentence: bool = False) -> list[AttributionMethod]:
        """The methods that are asked for, without repeats; "all" is every one. `sentence`: for a sentence vector.

        >>> [one.name for one in Attributing("text", method="occlusion,shapley").methods()]
        ['occlusion', 'shapley']
        """
        if self.method is None:
            return [METHODS["occlusion" if sentence and self.against is None else "gradient-x-input"]()]
        given = [self.method] if isinstance(self.method, str | AttributionMethod) else list(self.method)
        found: dict[str, AttributionMethod] = {}
        for one in given:
            if isinstance(one, AttributionMethod):
                found[one.name] = one
                continue
            names = [name.strip() for name in one.split(",") if name.strip()]
            for name in METHODS.names() if names == ["all"] else names:
                found.setdefault(name, METHODS[name]())
        if not found:
            raise BadInput(f"Name at least one attribution method: {', '.join(METHODS)}, or all.")
        return list(found.values())


def find_steps(engine: Engine, prompt: Prompt, settings: Attributing) -> tuple[Prompt, tuple[TargetStep, ...]]:
    """The predictions to explain, and the prompt with as much of the continuation as they rest on.

    In an encoder-decoder what the decoder says before is put into the engine, and stays as it is.

    Raises:
        BadInput: a token that is none, a mask that is missing, a continuation that a model cannot write or take.
    """
    lens = engine.lens
    other = one_token(lens, settings.against) if settings.against is not None else None
    named = one_token(lens, settings.token) if settings.token is not None else None
    if engine.translates:
        ids = _decoded(engine, prompt, settings, named)
        steps = tuple(TargetStep(k, one, other) for k, one in enumerate(ids))
    elif settings.explains_several:
        if not engine.causal:
            raise BadInput(f"'{lens.name}' fills masks; it continues no text.")
        ids = _continued(engine, prompt, settings)
        longest = lens.context_length
        if longest is not None and len(prompt) + len(ids) - 1 > longest:
            raise BadInput(
                f"Prompt and continuation have {len(prompt) + len(ids)} tokens, but '{lens.name}' takes at most {longest}."
            )
        steps = tuple(TargetStep(len(prompt) - 1 + k, one) for k, one in enumerate(ids))
        prompt = prompt.extended(lens.tokenizer, ids[:-1])
    else:
        positions = [len(prompt) - 1] if engine.causal else _masks(engine, prompt)
        chosen = [named] * len(positions) if named is not None else _predicted(engine, prompt.ids, positions)
        steps = tuple(TargetStep(p, one, other) for p, one in zip(positions, chosen, strict=True))
    if any(step.token == step.against for step in steps):
        raise BadInput("A token cannot be put against itself: choose another --against, or name the --token.")
    return prompt, steps


def _predicted(engine: Engine, ids: tuple[int, ...] | list[int], positions: list[int]) -> list[int]:
    """The likeliest token at each position."""
    with torch.no_grad():
        logits = engine.logits(engine.embed(torch.tensor([list(ids)])), positions)[0]
    return [int(i) for i in logits.argmax(-1)]


def _masks(engine: Engine, prompt: Prompt) -> list[int]:
    lens = engine.lens
    mask = getattr(lens.tokenizer, "mask_token_id", None)
    positions = [i for i, one in enumerate(prompt.ids) if mask is not None and one == mask]
    if not positions:
        word = getattr(lens.tokenizer, "mask_token", None) or "the mask token"
        raise BadInput(f"'{lens.name}' fills masks: put {word} where the prompt is to be completed.")
    return positions


def _decoded(engine: Engine, prompt: Prompt, settings: Attributing, named: int | None) -> list[int]:
    """What an encoder-decoder's decoder says, or is given to say."""
    if settings.continuation is not None:
        tokenizer = engine.lens.require_tokenizer()
        ids = _some([int(i) for i in tokenizer.encode(settings.continuation, add_special_tokens=False)])
        engine.decoder_ids = engine.decoder_ids[:1] + ids[:-1]
        return ids
    if named is not None:
        return [named]

    def following(ids: list[int]) -> int:
        engine.decoder_ids = engine.decoder_ids[:1] + ids
        return _predicted(engine, prompt.ids, [len(ids)])[0]

    return _greedy(following, settings.generate or 1)


def _continued(engine: Engine, prompt: Prompt, settings: Attributing) -> list[int]:
    """The tokens of a continuation that is given, or written greedily."""
    if settings.continuation is not None:
        tokenizer = engine.lens.require_tokenizer()
        whole = tokenizer.encode(prompt.text + settings.continuation, add_special_tokens=False)
        plain = [i for i, special in zip(prompt.ids, prompt.special, strict=True) if not special]
        if whole[: len(plain)] == plain:
            return _some(list(whole[len(plain) :]))
        return _some(list(tokenizer.encode(settings.continuation, add_special_tokens=False)))
    wanted = settings.generate or 1
    longest = engine.lens.context_length
    if longest is not None and len(prompt) + wanted - 1 > longest:
        raise BadInput(
            f"The prompt of {len(prompt)} tokens and {wanted} more exceed the context of '{engine.lens.name}', "
            f"{longest} tokens."
        )

    def following(ids: list[int]) -> int:
        said = [*prompt.ids, *ids]
        return _predicted(engine, said, [len(said) - 1])[0]

    return _greedy(following, wanted)


def _greedy(following: Callable[[list[int]], int], count: int) -> list[int]:
    ids: list[int] = []
    while len(ids) < count:
        ids.append(following(list(ids)))
    return ids


def _some(ids: list[int]) -> list[int]:
    if not ids:
        raise BadInput("The continuation is empty.")
    return ids


# ---- The sentence vector as a target: what the vector of a text rests on, for encoders that predict no token.
#
# The number is the cosine of the prompt's sentence vector with a fixed one: that of the whole prompt, so that a token's score
# is how far the vector turns without it, or that of another text (`--against`), so that it says why the two are alike.


class SentenceEngine(Engine):
    """A model as a function from embeddings [B, T, e] to sentence vectors [B, 1, d], in the place of logits.

    Rows are run whole: every token moves the vector of every other, or all of them are pooled.

    Attributes:
        pooling: as the model's folder declares it; else the mean over all tokens, special ones too.
        declared: whether it does.
    """

    pools = True

    def __init__(self, lens: Lens) -> None:
        super().__init__(lens)
        self.causal = False  # the vector depends on every token
        declared = declared_pooling(lens.origin.source)
        self.pooling: Pooling = declared or "mean"
        self.declared = declared is not None

    @property
    def masked(self) -> bool:
        """No mask is filled."""
        return False

    def check(self) -> None:
        """Refuse encoder-decoders, whose encoder alone is a model of its own."""
        if self.lens.traits.encoder_decoder:
            raise BadInput(f"'{self.lens.name}' is an encoder-decoder, whose sentence vector is not explained.")

    def logits(
        self, embeds: Float[Tensor, "B T e"], positions: Sequence[int], prefix: int = 0, *, grad: bool = False
    ) -> Float[Tensor, "B 1 d"]:
        """The sentence vectors of whole rows."""
        self.tokens_computed += embeds.shape[0] * embeds.shape[1]
        body = getattr(self.model, self.model.base_model_prefix, self.model)
        with torch.set_grad_enabled(grad), evaluating(self.model):
            states = body(inputs_embeds=embeds, **self._uncached).last_hidden_state
        return pooled(states, self.pooling)[:, None]


@dataclass(frozen=True, kw_only=True)
class SentenceTarget(AttributionTarget):
    """The cosine of sentence vectors [B, 1, d] with a fixed one [d].

    Attributes:
        reference: that of the whole prompt, or of another text.
        sentence: what is explained, in words.
        steep: whether the cosine has a slope at the prompt: with its own vector it is at its largest, 1.
    """

    reference: Float[Tensor, " d"]
    sentence: str
    steep: bool

    @property
    def judged(self) -> str:
        """See `AttributionTarget.judged`."""
        return "cosine"

    def value(
        self, logits: Float[Tensor, "B 1 d"], original: Float[Tensor, "1 d"] | None = None
    ) -> Float[Tensor, "B 1"]:
        """The cosine, in [-1, 1]."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return F.cosine_similarity(logits, self.reference.to(logits), dim=-1)

    def judge(self, logits: Float[Tensor, "B 1 d"]) -> Float[Tensor, "B 1"]:
        """The same."""
        return self.value(logits)

    @classmethod
    def of(cls, engine: SentenceEngine, ids: Sequence[int], settings: Attributing) -> SentenceTarget:
        """The target that the settings ask for."""
        other = settings.against
        if other is not None and not isinstance(other, str):
            raise BadInput("A sentence vector is put against that of another text: give --against a text.")
        with_ = "its own when no token is missing"
        if other is not None:
            lens = engine.lens
            ids = read_prompt(other, lens.tokenizer, lens.limits, special=settings.special).ids
            with_ = f"that of '{other}'"
        reference = engine.logits(engine.embed(torch.tensor([list(ids)])), [0])[0, 0].float()
        over = {"mean": "the mean over tokens", "first": "the first token's", "last": "the last token's"}[
            engine.pooling
        ]
        over += "" if engine.declared else "; the model's folder names none"
        return cls(
            "sentence", (TargetStep(0, None),), reference=reference, steep=other is not None,
            sentence=f"the cosine of the prompt's sentence vector ({over}) with {with_}",
        )  # fmt: skip


def asks_for_sentence(lens: Lens, settings: Attributing) -> bool:
    """Whether the sentence vector is explained: where it is asked for, and of encoders that can predict no token.

    Raises:
        BadInput: options that name tokens to predict.
    """
    headless = "head" not in lens.sites and not lens.traits.causal and not lens.traits.encoder_decoder
    if settings.target != "sentence" and not (settings.target == "next" and headless):
        return False
    if settings.explains_several or settings.token is not None:
        raise BadInput("A sentence vector predicts no token: leave --token, --continuation and --generate out.")
    return True


def check_slopes(target: AttributionTarget, methods: Sequence[AttributionMethod]) -> None:
    """Raise BadInput for methods that ask for a slope where there is none: a cosine with its own vector is at its largest."""
    flat = [one.name for one in methods if one.local]
    if flat and isinstance(target, SentenceTarget) and not target.steep:
        others = ", ".join(name for name, item in METHODS.items() if not item.local)
        raise BadInput(
            f"The cosine of a sentence vector with itself has no slope, so {' and '.join(flat)} would score every token 0: "
            f"choose --method {others}, or another text with --against."
        )
