"""What an attribution found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headscan.attribution.agreement import Agreement
from headscan.attribution.faithfulness import Faithfulness
from headscan.attribution.gradients import Completeness
from headscan.attribution.method import MethodWords
from headscan.run import Result

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "AttributeResult", "AttributionCost", "AttributionOf", "ExplainedStep", "LikelyToken", "MapRecord", "NamedToken",
    "ScoredSpan",
]  # fmt: skip


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
    """One prediction that is explained.

    Attributes:
        position: where the output is read; in an encoder-decoder, of the decoder.
        id, token: what is predicted (id and probability of a sentence vector: None). against: the token it is put against.
        value: of the target. probability: of the token. predictions: the five likeliest tokens there.
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
    """One method's map, but for its scores, which are in `arrays`; see `AttributionMap` for the numbers.

    `parameters` are the method's own, `words` what it says of itself, `faithfulness` None where it was not asked for.
    """

    method: str
    parameters: dict[str, bool | int | float | str | None]
    words: MethodWords
    seconds: float
    faithfulness: Faithfulness | None
    completeness: Completeness | None
    evaluations: int | None
    exact: bool | None
    standard_error: list[list[float | None]] | None


@dataclass(frozen=True)
class AttributionCost:
    """How the model was run: `shared_prefix` where rows share the prompt's keys and values, in micro-batches of `rows`
    rows of about `row_bytes` within `budget_bytes`; `tokens_computed` passed it in all."""

    shared_prefix: bool
    tokens_computed: int
    row_bytes: int
    rows: int
    budget_bytes: int


@dataclass(frozen=True, repr=False)
class AttributeResult(Result):
    """Which tokens of a prompt a prediction rests on.

    `arrays` holds `scores/METHOD` [S, T], one score a prediction and token, and `units/METHOD` [S, n].

    Attributes:
        prompt: its text. tokens: as people can see them; ids, special, roles: see `headscan.text.prompts.Prompt`.
        decoder: of an encoder-decoder, what its decoder had said; else None.
        spans: the units with their scores; units: "token", "word", "sentence" or "span".
        scores: one a token, of the first method, averaged over the predictions.
        method: the first. signed: whether scores have signs. substitute: what stood for absent tokens.
        target: what is explained. steps: each prediction.
        maps: each method. agreement: of every two. faithfulness: of the first method, None where it was not asked for.
        cost: how the model was run.
    """

    kind: ClassVar[str] = "attribute"
    prompt: str
    tokens: list[str]
    ids: list[int]
    special: list[bool]
    roles: list[str | None]
    decoder: list[NamedToken] | None
    spans: list[ScoredSpan]
    units: str
    scores: list[float]
    method: str
    signed: bool
    substitute: str
    target: AttributionOf
    steps: list[ExplainedStep]
    maps: list[MapRecord]
    agreement: list[Agreement]
    faithfulness: Faithfulness | None
    cost: AttributionCost

    def frame(self, *, units: bool = False) -> pd.DataFrame:
        """A pandas table: one row a token (or a unit), one column a method; of a continuation, predictions averaged."""
        import pandas as pd

        kind = "units" if units else "scores"
        names: dict[str, list[str] | list[int]] = (
            {"unit": [span.text for span in self.spans]} if units else {"token": self.tokens, "id": self.ids}
        )
        return pd.DataFrame(names | {one.method: self.arrays[f"{kind}/{one.method}"].mean(0) for one in self.maps})
