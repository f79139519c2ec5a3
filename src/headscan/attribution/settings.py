"""What `headscan attribute` can be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from headscan.attribution.memory import parse_memory
from headscan.attribution.method import METHODS, AttributionMethod
from headscan.attribution.target import kind_of
from headscan.attribution.units import UnitKind
from headscan.model.settings import Loading
from headscan.run import BadInput, Option, Running
from headscan.text.prompts import PromptLike

__all__ = ["Attributing"]


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
