"""`attribute`: from a model and a prompt to maps of which tokens the prediction rests on, and the
result that holds them.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch

from headscan.attribution.engine import Engine
from headscan.attribution.faithfulness import Faithfulness, faithfulness
from headscan.attribution.gradients import Completeness
from headscan.attribution.method import (
    METHODS,
    AttributionMap,
    AttributionMethod,
    AttributionTask,
    MethodWords,
)
from headscan.attribution.steps import (
    asks_for_sentence,
    check,
    check_slopes,
    find_steps,
    methods_of,
    sentence_target,
)
from headscan.attribution.target import (
    AttributionTarget,
    TargetKind,
    UnitKind,
    find_units,
    kind_of,
    substitute_vector,
)
from headscan.model import Lens
from headscan.model.lens import ModelLike, open_model
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.run import (
    BadInput,
    DataFrame,
    Finding,
    Given,
    Result,
    Run,
    dataframe,
    options_of,
    verb,
)
from headscan.run.settings import (
    Baseline,
    CommandLine,
    Ignore,
    Option,
    Out,
    Overwrite,
    Progressing,
    Resume,
    Seed,
)
from headscan.text.prompts import PromptLike, read_prompt
from headscan.text.spelling import display


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
    """What is explained: a kind of number, in words, and the tokens whose prediction it is of (of a
    sentence vector none); and the number on which faithfulness is judged, in a word: their
    probability, or the cosine of sentence vectors.
    """

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
    """One method's map, but for its scores, which are in `arrays`; see `AttributionMap` for the
    numbers.

    `parameters` are the method's own, `words` what it says of itself, `faithfulness` None where it
    was not asked for.
    """

    method: str
    parameters: dict[str, bool | int | float | str | None]
    words: MethodWords
    seconds: float
    faithfulness: Faithfulness | None
    completeness: Completeness | None


@dataclass(frozen=True)
class AttributionCost:
    """How the model was run: whether rows share the prompt's keys and values, and how many tokens
    passed it in all.
    """

    shared_prefix: bool
    tokens_computed: int


@dataclass(frozen=True, repr=False)
class AttributeResult(Result):
    """Which tokens of a prompt a prediction rests on.

    `arrays` holds `scores/METHOD` [S, T], one score a prediction and token, and `units/METHOD` [S,
    n].
    """

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
        return dataframe(
            names | {one.method: self.arrays[f"{kind}/{one.method}"].mean(0) for one in self.maps}
        )


# ---- The predictions that were explained, as they stand in a result.


def explained(task: AttributionTask, scored: AttributionMap) -> list[ExplainedStep]:
    """Each prediction with its probability, the likeliest tokens there, and its scores."""
    lens = task.engine.lens
    target = task.target
    with torch.no_grad():
        logits = task.engine.logits(task.embeds[None], target.positions)[0].float()
        values = target.value(logits[None])[0].tolist()
        probabilities = logits.softmax(-1)
    steps = []
    for k, step in enumerate(target.steps):
        token = "the sentence vector"
        against = None
        probability = None
        likely = []
        if step.token is not None:
            token, probability = (
                display(lens.tokenizer, step.token),
                float(probabilities[k, step.token]),
            )
            top = probabilities[k].topk(min(5, probabilities.shape[-1]))
            names = zip(
                top.indices.tolist(), display(lens.tokenizer, top.indices.tolist()), strict=True
            )
            likely = [
                LikelyToken(i, name, p)
                for (i, name), p in zip(names, top.values.tolist(), strict=True)
            ]
        if step.against is not None:
            against = NamedToken(step.against, display(lens.tokenizer, step.against))
        scores = scored.tokens[k].tolist()
        steps.append(
            ExplainedStep(
                step.position, step.token, token, against, values[k], probability, likely, scores
            )
        )
    return steps


# ---- What an attribution's numbers say in words.

MARGIN = 0.1
"""A gain below this share of what random orders leave is none: a convention."""
GAP = 0.01
"""From this on a gap of completeness is spoken of: a convention, no test."""


def findings(maps: Sequence[MapRecord], judged: str) -> list[Finding]:
    """Codes, of each map that was checked against random orders at 95 %.

    FAITHFUL: replacing what it ranks highest lowers more (`Faithfulness.gain`), and putting it back
        first is not worse.
    UNFAITHFUL: neither gains a tenth of what random orders leave. UNDECIDED: all others. And
        INCOMPLETE.
    """
    found = []
    level: Literal["alert", "notice", "good"]
    for one in maps:
        if (trust := one.faithfulness) is not None:
            own = trust.deletion.area
            null = trust.random.deletion
            out, back = (
                (ends or (-1.0, 1.0))
                for ends in (trust.gain_interval, trust.insertion_gain_interval)
            )
            text = (
                f"replacing what it ranks highest leaves a mean {judged} of {own:.2g}, random "
                f"orders {null:.2g}"
            )
            text += (
                f"; putting it back first gives {trust.insertion.area:.2g}, random orders "
                f"{trust.random.insertion:.2g}."
            )
            if out[0] > 0 and back[1] >= 0:
                code = "FAITHFUL"
                level = "good"
                said = "is more faithful than random orders"
            elif out[0] > 0:
                code = "UNDECIDED"
                level = "notice"
                said = "is more faithful than random orders by deletion and less by insertion"
            elif max(out[1], back[1]) < MARGIN * abs(null):
                code = "UNFAITHFUL"
                level = "alert"
                said = "is not more faithful than random orders"
            else:
                code = "UNDECIDED"
                level = "notice"
                said = "could not be distinguished from random orders"
            found.append(
                Finding(
                    code=code,
                    level=level,
                    sentence=f"The map by {one.method} {said}: {text}",
                    value=own - null,
                )
            )
        if one.completeness is not None and (gap := max(one.completeness.relative_gap)) > GAP:
            text = (
                f"The scores of {one.method} miss the sum that they should have by "
                f"{100 * gap:.2g} %."
            )
            found.append(Finding(code="INCOMPLETE", level="alert", sentence=text, value=gap))
    return found


# ---- From a model and a prompt to maps of which tokens the prediction rests on.


@verb("attribute")
def attribute(
    run: Run,
    model: ModelLike,
    prompt: Annotated[
        PromptLike,
        Option("The prompt; - reads it from standard input.", content=True, group="Input"),
    ],
    *,
    method: Annotated[
        str | AttributionMethod | Sequence[str | AttributionMethod] | None,
        Option(
            "Methods, comma-separated (the first colours the page), or all. Default: "
            "gradient-x-input; occlusion for a sentence vector compared with itself.",
            choices=METHODS,
            group="Input",
        ),
    ] = None,
    target: Annotated[
        TargetKind,
        Option(
            "What is explained: next or logit (the token's), contrast, logprob (nats), all logits; "
            "sentence, the cosine of the sentence vector (next, of encoders without a head)."
        ),
    ] = "next",
    token: Annotated[
        str | int | None,
        Option("The token to explain: its text or #ID. Default: the model's prediction."),
    ] = None,
    against: Annotated[
        str | int | None,
        Option(
            "Token to contrast with: its text or #ID; for a sentence vector, another text to "
            "compare with.",
            group="Input",
        ),
    ] = None,
    continuation: Annotated[str | None, Option("Explain every token of this continuation.")] = None,
    generate: Annotated[
        int | None,
        Option("Explain every token of a greedy continuation of this many tokens.", low=1),
    ] = None,
    substitute: Annotated[
        str | int,
        Option(
            "Substitute for a removed token: auto, mask, pad, eos, bos, unk, mean, zero, remove, "
            "or a token (text or #ID)."
        ),
    ] = "auto",
    units: Annotated[UnitKind, Option("Unit that gets one score.")] = "token",
    signed: Annotated[bool, Option("Signed scores; otherwise their absolute values.")] = True,
    chat: Annotated[bool, Option("Put the prompt into the model's chat template.")] = False,
    faithfulness: Annotated[
        bool, Option("Measure how faithful each map is, by deletion and insertion curves.")
    ] = True,
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    ignore: Ignore = None,
    baseline: Baseline = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> AttributeResult:
    """Colour a prompt by the tokens that its prediction depends on, and measure how faithful the
    map is.

    Causal models predict what follows the prompt, masked models what stands at their mask tokens.
    Of encoders without a head, and where it is asked for, the sentence vector is explained:
    `headscan.attribution.steps`.

    Args:
        model: a name, a folder, a live model or a `Lens`.
        prompt: a text, token ids (a list, tensor or array), or a chat as a list of {"role",
            "content"}.
        method: one of `headscan.attribution.METHODS` by name or as an object with its own
            parameters, or several; the first is the one that `scores` holds.

    Raises BadInput: an empty prompt, a single token, one longer than the context, a target that is
    no single token, an option that no method uses, a model without an output layer or without
    gradients.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> found = attribute(lens, [3, 1, 4, 1, 5], method="occlusion", substitute="mean")
    >>> len(found.scores), found.target.kind
    (5, 'logit')
    """
    asked = Given(locals())
    check(asked)
    lens = open_model(model, asked.chosen(Loading))
    sentence = asks_for_sentence(lens, asked)
    task = read_task(lens, asked, sentence=sentence)
    record = lens.provenance()
    lens.identify(run)
    run.identify("the prompt", list(task.prompt.ids))
    methods = methods_of(asked, sentence=sentence)
    check_slopes(task.target, methods)
    scored: dict[str, ScoredMap] = {}
    base = task.engine.tokens_computed
    for done, method in enumerate(methods):
        run.progress(f"attribution · {method.name}", done, len(methods), "methods")
        scored[method.name] = run.unit(method.name, ScoredMap, partial(score, method, task, asked))
    run.progress("attribution", len(methods), len(methods), "methods")
    maps = {
        name: AttributionMap(np.array(item.tokens), np.array(item.units))
        for name, item in scored.items()
    }
    records = [item.record for item in scored.values()]
    first = maps[methods[0].name]
    steps = explained(task, first)
    prompt = task.prompt
    goal = task.target
    cost = AttributionCost(
        any(item.packs for item in scored.values()),
        base + sum(item.computed for item in scored.values()),
    )
    values = zip(task.units, first.units.mean(0).tolist(), strict=True)
    words = [step.token for step in steps]
    ids = [step.id for step in steps if step.id is not None]
    return AttributeResult(
        prompt=prompt.text,
        tokens=list(prompt.tokens),
        ids=list(prompt.ids),
        special=list(prompt.special),
        roles=list(prompt.roles),
        spans=[ScoredSpan(unit.text, list(unit.tokens), value) for unit, value in values],
        units=asked["units"],
        scores=first.tokens.mean(0).tolist(),
        method=methods[0].name,
        signed=asked["signed"],
        substitute=task.substitute_name,
        target=AttributionOf(goal.kind, goal.sentence, words, ids, goal.judged),
        steps=steps,
        maps=records,
        faithfulness=records[0].faithfulness,
        cost=cost,
        findings=findings(records, goal.judged),
        protocol=run.protocol(
            device=str(lens.device), dtype=str(task.embeds.dtype).removeprefix("torch.")
        ),
        models=[record],
        arrays={f"scores/{name}": item.tokens.astype(np.float32) for name, item in maps.items()}
        | {f"units/{name}": item.units.astype(np.float32) for name, item in maps.items()},
    )


def read_task(lens: Lens, asked: Given, *, sentence: bool = False) -> AttributionTask:
    """The prompt, its predictions (or sentence vector) and the substitute's embedding, as the
    methods need them.
    """
    engine = Engine(lens, sentence=sentence)
    prompt = read_prompt(asked["prompt"], lens.tokenizer, lens.limits, chat=asked["chat"])
    if len(prompt) < 2:
        nothing = (
            f"The prompt is the single token '{prompt.tokens[0]}': there is nothing to share the "
            "prediction between"
        )
        raise BadInput(f"{nothing}; give at least two tokens.")
    if sentence:
        target = sentence_target(engine, prompt.ids, asked)
    else:
        prompt, steps = find_steps(engine, prompt, asked)
        target = AttributionTarget(kind_of(asked["target"], asked["against"]), steps)
    embeds = engine.embed(torch.tensor(prompt.ids))
    substitute, name = substitute_vector(engine, asked["substitute"])
    filler = substitute if substitute is not None else substitute_vector(engine, "auto")[0]
    assert filler is not None
    return AttributionTask(
        engine,
        prompt,
        embeds,
        target,
        find_units(prompt, asked["units"]),
        substitute,
        name,
        filler,
        asked["signed"],
        asked["seed"],
    )


@dataclass(frozen=True)
class ScoredMap:
    """A finished map as a run stores it: its scores as plain numbers, its record, and what it cost."""

    tokens: list[list[float]]
    units: list[list[float]]
    record: MapRecord
    packs: bool
    computed: int


def score(method: AttributionMethod, task: AttributionTask, asked: Given) -> ScoredMap:
    start = time.perf_counter()
    before = task.engine.tokens_computed
    engine = task.engine
    engine.packed = None  # each method costs the same, whatever came before it
    scores = method.explain(task)
    seconds = round(time.perf_counter() - start, 4)
    parameters = {field.name: getattr(method, field.name) for field in options_of(type(method))}
    trust = faithfulness(task, scores) if asked["faithfulness"] else None
    record = MapRecord(method.name, parameters, method.words, seconds, trust, scores.completeness)
    return ScoredMap(
        scores.tokens.tolist(),
        scores.units.tolist(),
        record,
        engine.packs,
        engine.tokens_computed - before,
    )
