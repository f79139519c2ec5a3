"""The result of `attribute`: its tables and the explained predictions in it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from headscan.attribution.faithfulness import Faithfulness
from headscan.attribution.gradients import Completeness
from headscan.attribution.method import AttributionMap, AttributionTask, MethodWords
from headscan.run import DataFrame, Result, dataframe
from headscan.text.spelling import display

LIKELIEST = 5


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
    """A unit of the prompt: text, indices of its tokens, and its score by the first method."""

    text: str
    tokens: list[int]
    score: float


@dataclass(frozen=True)
class AttributionOf:
    """The target: a kind of number, in words, and the tokens whose prediction it is of.

    A sentence vector has no tokens.

    Attributes:
        judged: the number on which faithfulness is judged, in a word: their probability, or the
            cosine of sentence vectors.
    """

    kind: str
    sentence: str
    tokens: list[str]
    ids: list[int]
    judged: str = "probability"


@dataclass(frozen=True)
class ExplainedStep:
    """One prediction that is explained.

    Attributes:
        position: where the output is read.
        id: what is predicted; None of a sentence vector.
        against: the token it is put against.
        value: of the target.
        probability: of the token; None of a sentence vector.
        predictions: the five likeliest tokens there.
        scores: one a token of the prompt, by the first method.
    """

    position: int
    id: int | None
    token: str
    against: NamedToken | None
    value: float
    probability: float | None
    predictions: list[LikelyToken]
    scores: list[float]


@dataclass(frozen=True)
class MapRecord:
    """One method's map, but for its scores, which are in `arrays`.

    The numbers are explained at `AttributionMap`.

    Attributes:
        parameters: the method's own.
        words: what the method says of itself.
        faithfulness: None where it was not asked for.
    """

    method: str
    parameters: dict[str, bool | int | float | str | None]
    words: MethodWords
    seconds: float
    faithfulness: Faithfulness | None
    completeness: Completeness | None


@dataclass(frozen=True)
class AttributionCost:
    """The cost of an attribution.

    Attributes:
        shared_prefix: whether rows share the prompt's keys and values.
        tokens_computed: how many tokens passed the model in all.
    """

    shared_prefix: bool
    tokens_computed: int


@dataclass(frozen=True, repr=False)
class AttributeResult(Result):
    """Which tokens of a prompt a prediction depends on.

    `arrays` holds `scores/METHOD` [S, T], one score a prediction and token, and `units/METHOD` [S,
    n].

    Attributes:
        prompt: its text.
        tokens: as people can see them.
        ids, special, roles: see `headscan.text.prompts.Prompt`.
        spans: the units with their scores.
        units: "token", "word" or "sentence".
        scores: one a token, of the first method, averaged over the predictions.
        method: the first.
        signed: whether scores have signs.
        substitute: what stood for absent tokens.
        faithfulness: of the first method; None where it was not asked for.
        cost: how the model was run.
    """

    kind: ClassVar[str] = "attribute"
    prompt: str
    tokens: list[str]
    ids: list[int]
    special: list[bool]
    roles: list[str | None]
    spans: list[ScoredSpan]
    units: str
    scores: list[float]
    method: str
    signed: bool
    substitute: str
    target: AttributionOf
    steps: list[ExplainedStep]
    maps: list[MapRecord]
    faithfulness: Faithfulness | None
    cost: AttributionCost

    def frame(self, *, units: bool = False) -> DataFrame:
        """Return a row a token, or a row a unit, with a column of scores for each method."""
        columns: dict[str, Any]
        if units:
            columns = {"unit": [span.text for span in self.spans]}
            array = "units"
        else:
            columns = {"token": self.tokens, "id": self.ids}
            array = "scores"
        for record in self.maps:
            columns[record.method] = self.arrays[f"{array}/{record.method}"].mean(0)
        return dataframe(columns)


def explained(task: AttributionTask, scored: AttributionMap) -> list[ExplainedStep]:
    """Return each prediction with its probability, the likeliest tokens there, and its scores."""
    target = task.target
    tokenizer = task.engine.lens.tokenizer
    with torch.no_grad():
        logits = task.engine.logits(task.embeds[None], target.positions)[0].float()
        values = target.value(logits[None])[0].tolist()
        probabilities = logits.softmax(-1)
    steps = []
    for index, step in enumerate(target.steps):
        token = "the sentence vector"
        probability = None
        predictions = []
        if step.token is not None:
            token = display(tokenizer, step.token)
            probability = float(probabilities[index, step.token])
            predictions = _likeliest(tokenizer, probabilities[index])
        against = None
        if step.against is not None:
            against = NamedToken(step.against, display(tokenizer, step.against))
        explained_step = ExplainedStep(
            position=step.position,
            id=step.token,
            token=token,
            against=against,
            value=values[index],
            probability=probability,
            predictions=predictions,
            scores=scored.tokens[index].tolist(),
        )
        steps.append(explained_step)
    return steps


def _likeliest(tokenizer: Any, probabilities: torch.Tensor) -> list[LikelyToken]:
    top = probabilities.topk(min(LIKELIEST, len(probabilities)))
    ids = top.indices.tolist()
    rows = zip(ids, display(tokenizer, ids), top.values.tolist(), strict=True)
    return [LikelyToken(token_id, token, probability) for token_id, token, probability in rows]
