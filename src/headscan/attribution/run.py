"""The verb `attribute`: maps of the tokens of a prompt that a prediction depends on."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Unpack

import numpy as np
import torch

from headscan.attribution.engine import Engine
from headscan.attribution.faithfulness import faithfulness as measure_faithfulness
from headscan.attribution.findings import findings
from headscan.attribution.method import METHODS, AttributionMap, AttributionMethod, AttributionTask
from headscan.attribution.result import (
    AttributeResult,
    AttributionCost,
    AttributionOf,
    MapRecord,
    ScoredSpan,
    explained,
)
from headscan.attribution.steps import TargetRequest, asks_for_sentence, find_steps, sentence_target
from headscan.attribution.target import AttributionTarget, TargetKind, substitute_vector
from headscan.attribution.units import UnitKind, find_units
from headscan.model import Lens
from headscan.model.lens import ModelLike, open_model
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.run import BadInput, Run, options_of, verb
from headscan.run.settings import (
    FindingOptions,
    Option,
    Seed,
)
from headscan.text.prompts import PromptLike, read_prompt

MethodLike = str | AttributionMethod
DEFAULT_METHOD = "gradient-x-input"
DEFAULT_METHOD_OF_FLAT_TARGET = "occlusion"


@dataclass(frozen=True)
class PromptInputs:
    """A prompt, the units it is cut into, and what stands for an absent token."""

    prompt: PromptLike
    chat: bool = False
    units: UnitKind = "token"
    substitute: str | int = "auto"


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
    seed: Seed = 0,
    **_run_options: Unpack[FindingOptions],
) -> AttributeResult:
    """Colour a prompt by the tokens that its prediction depends on, with a test of faithfulness.

    Causal models predict what follows the prompt, masked models what is at their mask tokens. Of
    encoders without a head, and where it is asked for, the sentence vector is explained:
    `headscan.attribution.steps`.

    Args:
        model: a name, a folder, a live model or a `Lens`.
        prompt: a text, token ids (a list, tensor or array), or a chat as a list of {"role",
            "content"}.
        method: one of `headscan.attribution.METHODS` by name or as an object with its own
            parameters, or several; the first is the one that `scores` holds.

    Raises:
        BadInput: for an empty prompt, a single token, one longer than the context, a target that is
            no single token, an option that no method uses, and a model without an output layer or
            without gradients.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
    >>> lens = Lens(GPT2LMHeadModel(config))
    >>> result = attribute(lens, [3, 1, 4, 1, 5], method="occlusion", substitute="mean")
    >>> len(result.scores), result.target.kind
    (5, 'logit')
    """
    request = TargetRequest(target, token, against, continuation, generate)
    inputs = PromptInputs(prompt, chat, units, substitute)
    methods = _methods(method)
    if not faithfulness:
        _refuse_substitute(run, substitute, methods)
    lens = open_model(model, Loading(tokenizer=tokenizer, dtype=dtype, device=device))
    is_sentence = asks_for_sentence(lens, request)
    task = read_task(lens, inputs, request, sentence=is_sentence, signed=signed, seed=seed)
    lens.identify(run)
    run.identify("the prompt", list(task.prompt.ids))
    if method is None and task.target.flat:
        methods = [METHODS[DEFAULT_METHOD_OF_FLAT_TARGET]()]
    _check_slopes(task.target, methods)

    tokens_before = task.engine.tokens_computed
    maps: dict[str, ScoredMap] = {}
    for index, item in enumerate(methods):
        run.progress(f"attribution · {item.name}", index, len(methods), "methods")
        maps[item.name] = run.unit(item.name, ScoredMap, partial(score, item, task, faithfulness))
    run.progress("attribution", len(methods), len(methods), "methods")
    return _result(run, task, inputs, maps, tokens_before)


def _methods(method: MethodLike | Sequence[MethodLike] | None) -> list[AttributionMethod]:
    """Return the methods that a user named, without repeats, or the default one."""
    if method is None:
        return [METHODS[DEFAULT_METHOD]()]
    methods: list[AttributionMethod] = METHODS.build_each(method)
    if not methods:
        raise BadInput(f"Name at least one attribution method: {', '.join(METHODS)}, or all.")
    return methods


def _refuse_substitute(
    run: Run, substitute: str | int, methods: Sequence[AttributionMethod]
) -> None:
    """Raise BadInput for a substitute that no method uses."""
    if any(method.substitutes for method in methods):
        return
    names = " or ".join(method.name for method in methods)
    users = ", ".join(sorted(name for name, method in METHODS.items() if method.substitutes))
    run.refuse_changed(
        f"by the attribution method {names} without --faithfulness; it belongs to {users}",
        substitute=substitute,
    )


def _check_slopes(target: AttributionTarget, methods: Sequence[AttributionMethod]) -> None:
    """Raise BadInput for methods that need a slope where there is none.

    A cosine with its own vector is at its largest.
    """
    local = [method.name for method in methods if method.local]
    if not local or not target.flat:
        return
    alternatives = ", ".join(name for name, method in METHODS.items() if not method.local)
    raise BadInput(
        f"The cosine of a sentence vector with itself has no slope, so {' and '.join(local)} would "
        f"score every token 0: choose --method {alternatives}, or another text with --against."
    )


def read_task(
    lens: Lens,
    inputs: PromptInputs,
    request: TargetRequest,
    *,
    sentence: bool = False,
    signed: bool = True,
    seed: int = 0,
) -> AttributionTask:
    """Return the prompt, its predictions and the substitute's embedding, as methods need them.

    `sentence`: whether the sentence vector is explained.
    """
    engine = Engine(lens, sentence=sentence)
    prompt = read_prompt(inputs.prompt, lens.tokenizer, lens.limits, chat=inputs.chat)
    if len(prompt) < 2:
        raise BadInput(
            f"The prompt is the single token '{prompt.tokens[0]}': there is nothing to share the "
            "prediction between; give at least two tokens."
        )
    if sentence:
        target = sentence_target(engine, prompt.ids, request.against)
    else:
        prompt, steps = find_steps(engine, prompt, request)
        target = AttributionTarget(request.kind, steps)
    embeds = engine.embed(torch.tensor(prompt.ids))
    substitute, substitute_name = substitute_vector(engine, inputs.substitute)
    filler = substitute
    if filler is None:
        filler, _ = substitute_vector(engine, "auto")
    assert filler is not None
    return AttributionTask(
        engine=engine,
        prompt=prompt,
        embeds=embeds,
        target=target,
        units=find_units(prompt, inputs.units),
        substitute=substitute,
        substitute_name=substitute_name,
        filler=filler,
        signed=signed,
        seed=seed,
    )


@dataclass(frozen=True)
class ScoredMap:
    """A finished map as a run stores it.

    Attributes:
        tokens, units: the scores as plain numbers.
        packs: whether rows shared the prompt's keys and values.
        computed: the tokens that passed the model.
    """

    tokens: list[list[float]]
    units: list[list[float]]
    record: MapRecord
    packs: bool
    computed: int


def score(method: AttributionMethod, task: AttributionTask, with_faithfulness: bool) -> ScoredMap:
    """Return the map of one method."""
    engine = task.engine
    engine.packed = None  # each method costs the same, whatever came before it
    tokens_before = engine.tokens_computed
    start = time.perf_counter()
    scores = method.explain(task)
    seconds = round(time.perf_counter() - start, 4)
    record = MapRecord(
        method=method.name,
        parameters={field.name: getattr(method, field.name) for field in options_of(type(method))},
        words=method.words,
        seconds=seconds,
        faithfulness=measure_faithfulness(task, scores) if with_faithfulness else None,
        completeness=scores.completeness,
    )
    return ScoredMap(
        tokens=scores.tokens.tolist(),
        units=scores.units.tolist(),
        record=record,
        packs=engine.packs,
        computed=engine.tokens_computed - tokens_before,
    )


def _result(
    run: Run,
    task: AttributionTask,
    inputs: PromptInputs,
    scored_maps: dict[str, ScoredMap],
    tokens_before: int,
) -> AttributeResult:
    """Return the result of finished maps, of which the first is the main one."""
    lens = task.engine.lens
    prompt = task.prompt
    target = task.target
    maps = {
        name: AttributionMap(np.array(scored.tokens), np.array(scored.units))
        for name, scored in scored_maps.items()
    }
    records = [scored.record for scored in scored_maps.values()]
    main_name, main_map = next(iter(maps.items()))
    steps = explained(task, main_map)
    spans = [
        ScoredSpan(unit.text, list(unit.tokens), value)
        for unit, value in zip(task.units, main_map.units.mean(0).tolist(), strict=True)
    ]
    arrays = {f"scores/{name}": item.tokens.astype(np.float32) for name, item in maps.items()}
    arrays |= {f"units/{name}": item.units.astype(np.float32) for name, item in maps.items()}
    tokens_computed = sum(scored.computed for scored in scored_maps.values())
    return AttributeResult(
        prompt=prompt.text,
        tokens=list(prompt.tokens),
        ids=list(prompt.ids),
        special=list(prompt.special),
        roles=list(prompt.roles),
        spans=spans,
        units=inputs.units,
        scores=main_map.tokens.mean(0).tolist(),
        method=main_name,
        signed=task.signed,
        substitute=task.substitute_name,
        target=AttributionOf(
            kind=target.kind,
            sentence=target.sentence,
            tokens=[step.token for step in steps],
            ids=[step.id for step in steps if step.id is not None],
            judged=target.judged,
        ),
        steps=steps,
        maps=records,
        faithfulness=records[0].faithfulness,
        cost=AttributionCost(
            shared_prefix=any(scored.packs for scored in scored_maps.values()),
            tokens_computed=tokens_before + tokens_computed,
        ),
        findings=findings(records, target.judged),
        protocol=run.protocol(
            device=str(lens.device), dtype=str(task.embeds.dtype).removeprefix("torch.")
        ),
        models=[lens.provenance()],
        arrays=arrays,
    )
