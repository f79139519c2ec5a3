"""The result of an attribution."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from headscan.attribution.faithfulness import Faithfulness
from headscan.attribution.gradients import Completeness
from headscan.attribution.method import AttributionMap, AttributionTask, MethodWords
from headscan.run import DataFrame, Finding, Result, dataframe
from headscan.text.prompts import display


@dataclass(frozen=True)
class NamedToken:
    """A token, as its id and as people can see it."""

    id: int
    token: str


@dataclass(frozen=True)
class LikelyToken(NamedToken):
    """A token and its probability."""

    probability: float


@dataclass(frozen=True)
class ScoredSpan:
    """A unit of the prompt: its text, the indices of its tokens, and its score by the first method."""

    text: str
    tokens: list[int]
    score: float


@dataclass(frozen=True)
class AttributionOf:
    """What is explained: a kind of number, in words, and the tokens whose prediction it is of (of a sentence vector none);
    and the number on which faithfulness is judged, in a word: their probability, or the cosine of sentence vectors."""

    kind: str
    sentence: str
    tokens: list[str]
    ids: list[int]
    judged: str = "probability"


@dataclass(frozen=True)
class ExplainedStep:
    """One prediction that is explained."""

    position: int  # where the output is read
    id: int | None  # what is predicted; None of a sentence vector
    token: str
    against: NamedToken | None  # the token it is put against
    value: float  # of the target
    probability: float | None  # of the token; None of a sentence vector
    predictions: list[LikelyToken]  # the five likeliest tokens there
    scores: list[float]  # one a token of the prompt, by the first method


@dataclass(frozen=True)
class MapRecord:
    """One method's map, but for its scores, which are in `arrays`; see `AttributionMap` for the numbers.

    `parameters` are the method's own, `words` what it says of itself, `faithfulness` None where it was not asked for.
    """

    method: str
    parameters: dict[str, bool | int | float | str | None]
    words: MethodWords
    seconds: float
    faithfulness: Faithfulness | None
    completeness: Completeness | None


@dataclass(frozen=True)
class AttributionCost:
    """How the model was run: whether rows share the prompt's keys and values, and how many tokens passed it in all."""

    shared_prefix: bool
    tokens_computed: int


@dataclass(frozen=True, repr=False)
class AttributeResult(Result):
    """Which tokens of a prompt a prediction rests on.

    `arrays` holds `scores/METHOD` [S, T], one score a prediction and token, and `units/METHOD` [S, n]."""

    kind: ClassVar[str] = "attribute"
    prompt: str  # its text
    tokens: list[str]  # as people can see them
    ids: list[int]  # these and the next two: see `headscan.text.prompts.Prompt`
    special: list[bool]
    roles: list[str | None]
    spans: list[ScoredSpan]  # the units with their scores
    units: str  # "token", "word" or "sentence"
    scores: list[float]  # one a token, of the first method, averaged over the predictions
    method: str  # the first
    signed: bool  # whether scores have signs
    substitute: str  # what stood for absent tokens
    target: AttributionOf
    steps: list[ExplainedStep]
    maps: list[MapRecord]
    faithfulness: Faithfulness | None  # of the first method; None where it was not asked for
    cost: AttributionCost  # how the model was run

    def frame(self, *, units: bool = False) -> DataFrame:
        kind = "units" if units else "scores"
        names: dict[str, Any] = {"token": self.tokens, "id": self.ids}
        names = {"unit": [span.text for span in self.spans]} if units else names
        return dataframe(names | {one.method: self.arrays[f"{kind}/{one.method}"].mean(0) for one in self.maps})


# ---- The predictions that were explained, as they stand in a result.


def explained(task: AttributionTask, scored: AttributionMap) -> list[ExplainedStep]:
    """Each prediction with its probability, the likeliest tokens there, and its scores."""
    lens, target = task.engine.lens, task.target
    with torch.no_grad():
        logits = task.engine.logits(task.embeds[None], target.positions)[0].float()
        values = target.value(logits[None])[0].tolist()
        probabilities = logits.softmax(-1)
    steps = []
    for k, step in enumerate(target.steps):
        token, against, probability, likely = "the sentence vector", None, None, []
        if step.token is not None:
            token, probability = display(lens.tokenizer, step.token), float(probabilities[k, step.token])
            top = probabilities[k].topk(min(5, probabilities.shape[-1]))
            names = zip(top.indices.tolist(), display(lens.tokenizer, top.indices.tolist()), strict=True)
            likely = [LikelyToken(i, name, p) for (i, name), p in zip(names, top.values.tolist(), strict=True)]
        if step.against is not None:
            against = NamedToken(step.against, display(lens.tokenizer, step.against))
        scores = scored.tokens[k].tolist()
        steps.append(ExplainedStep(step.position, step.token, token, against, values[k], probability, likely, scores))
    return steps


# ---- What an attribution's numbers say in words.

MARGIN = 0.1
"""A gain below this share of what random orders leave is none: a convention."""
GAP = 0.01
"""From this on a gap of completeness is spoken of: a convention, no test."""


def findings(maps: Sequence[MapRecord], judged: str) -> list[Finding]:
    """Codes, of each map that was checked against random orders at 95 %.

    FAITHFUL: replacing what it ranks highest lowers more (`Faithfulness.gain`), and putting it back first is not worse.
    UNFAITHFUL: neither gains a tenth of what random orders leave. UNDECIDED: all others. And INCOMPLETE.
    """
    found = []
    level: Literal["alert", "notice", "good"]
    for one in maps:
        if (trust := one.faithfulness) is not None:
            own, null = trust.deletion.area, trust.random.deletion
            out, back = ((ends or (-1.0, 1.0)) for ends in (trust.gain_interval, trust.insertion_gain_interval))
            text = f"replacing what it ranks highest leaves a mean {judged} of {own:.2g}, random orders {null:.2g}"
            text += f"; putting it back first gives {trust.insertion.area:.2g}, random orders {trust.random.insertion:.2g}."
            if out[0] > 0 and back[1] >= 0:
                code, level, said = "FAITHFUL", "good", "is more faithful than random orders"
            elif out[0] > 0:
                code, level, said = "UNDECIDED", "notice", "is more faithful than random orders by deletion and less by insertion"
            elif max(out[1], back[1]) < MARGIN * abs(null):
                code, level, said = "UNFAITHFUL", "alert", "is not more faithful than random orders"
            else:
                code, level, said = "UNDECIDED", "notice", "could not be distinguished from random orders"
            found.append(Finding(code=code, level=level, sentence=f"The map by {one.method} {said}: {text}", value=own - null))
        if one.completeness is not None and (gap := max(one.completeness.relative_gap)) > GAP:
            text = f"The scores of {one.method} miss the sum that they should have by {100 * gap:.2g} %."
            found.append(Finding(code="INCOMPLETE", level="alert", sentence=text, value=gap))
    return found
