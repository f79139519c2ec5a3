"""From a model and a prompt to maps of which tokens the prediction rests on."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch

from headscan.attribution.engine import Engine
from headscan.attribution.faithfulness import faithfulness
from headscan.attribution.method import METHODS, AttributionMap, AttributionMethod, AttributionTask
from headscan.attribution.result import (
    AttributeResult,
    AttributionCost,
    AttributionOf,
    MapRecord,
    ScoredSpan,
    explained,
    findings,
)
from headscan.attribution.steps import asks_for_sentence, check, check_slopes, find_steps, methods_of, sentence_target
from headscan.attribution.target import AttributionTarget, TargetKind, UnitKind, find_units, kind_of, substitute_vector
from headscan.model import Lens
from headscan.model.lens import ModelLike, open_model
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.run import BadInput, Given, options_of, running, verb
from headscan.run.settings import Baseline, CommandLine, Ignore, Option, Out, Progressing, Resume, Seed
from headscan.text.prompts import PromptLike, read_prompt


@verb("attribute")
def attribute(
    model: ModelLike, prompt: Annotated[PromptLike, Option("The prompt; - reads it from standard input.", content=True)],
    *,
    method: Annotated[str | AttributionMethod | Sequence[str | AttributionMethod] | None, Option(
        "Methods, comma-separated (the first colours the page), or all. Default: gradient-x-input; occlusion for a sentence "
        "vector compared with itself.", choices=METHODS,
    )] = None,
    target: Annotated[TargetKind, Option(
        "What is explained: next or logit (the token's), contrast, logprob (nats), all logits; "
        "sentence, the cosine of the sentence vector (next, of encoders without a head)."
    )] = "next",
    token: Annotated[str | int | None, Option(
        "The token to explain: its text or #ID. Default: the model's prediction."
    )] = None,
    against: Annotated[str | int | None, Option(
        "Token to contrast with: its text or #ID; for a sentence vector, another text to compare with."
    )] = None,
    continuation: Annotated[str | None, Option("Explain every token of this continuation.")] = None,
    generate: Annotated[int | None, Option("Explain every token of a greedy continuation of this many tokens.", low=1)] = None,
    substitute: Annotated[str | int, Option(
        "Substitute for a removed token: auto, mask, pad, eos, bos, unk, mean, zero, remove, or a token (text or #ID)."
    )] = "auto",
    units: Annotated[UnitKind, Option("Unit that gets one score.")] = "token",
    signed: Annotated[bool, Option("Signed scores; otherwise their absolute values.")] = True,
    chat: Annotated[bool, Option("Put the prompt into the model's chat template.")] = False,
    faithfulness: Annotated[bool, Option("Measure how faithful each map is, by deletion and insertion curves.")] = True,
    tokenizer: TokenizerName = None, dtype: Dtype = "auto", device: Device = "auto",
    ignore: Ignore = None, baseline: Baseline = None,
    out: Out = None, resume: Resume = False, seed: Seed = 0, progress: Progressing = None, command: CommandLine = None,
) -> AttributeResult:  # fmt: skip
    """Colour a prompt by the tokens that its prediction depends on, and measure how faithful the map is.

    Causal models predict what follows the prompt, masked models what stands at their mask tokens. Of encoders without a
    head, and where it is asked for, the sentence vector is explained: `headscan.attribution.steps`.

    Args:
        model: a name, a folder, a live model or a `Lens`.
        prompt: a text, token ids (a list, tensor or array), or a chat as a list of {"role", "content"}.
        method: one of `headscan.attribution.METHODS` by name or as an object with its own parameters, or several; the
            first is the one that `scores` holds.

    Raises BadInput: an empty prompt, a single token, one longer than the context, a target that is no single token, an option
    that no method uses, a model without an output layer or without gradients.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> found = attribute(lens, [3, 1, 4, 1, 5], method="occlusion", substitute="mean")
    >>> len(found.scores), found.target.kind
    (5, 'logit')
    """
    asked, run = running()
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
    maps = {name: AttributionMap(np.array(item.tokens), np.array(item.units)) for name, item in scored.items()}
    records = [item.record for item in scored.values()]
    first = maps[methods[0].name]
    steps = explained(task, first)
    prompt, goal = task.prompt, task.target
    cost = AttributionCost(any(item.packs for item in scored.values()), base + sum(item.computed for item in scored.values()))
    values = zip(task.units, first.units.mean(0).tolist(), strict=True)
    words, ids = [step.token for step in steps], [step.id for step in steps if step.id is not None]
    return AttributeResult(
        prompt=prompt.text, tokens=list(prompt.tokens), ids=list(prompt.ids), special=list(prompt.special),
        roles=list(prompt.roles), spans=[ScoredSpan(unit.text, list(unit.tokens), value) for unit, value in values],
        units=asked["units"], scores=first.tokens.mean(0).tolist(), method=methods[0].name, signed=asked["signed"],
        substitute=task.substitute_name, target=AttributionOf(goal.kind, goal.sentence, words, ids, goal.judged),
        steps=steps, maps=records, faithfulness=records[0].faithfulness,
        cost=cost, findings=findings(records, goal.judged),
        protocol=run.protocol(device=str(lens.device), dtype=str(task.embeds.dtype).removeprefix("torch.")), models=[record],
        arrays={f"scores/{name}": item.tokens.astype(np.float32) for name, item in maps.items()}
        | {f"units/{name}": item.units.astype(np.float32) for name, item in maps.items()},
    )  # fmt: skip


def read_task(lens: Lens, asked: Given, *, sentence: bool = False) -> AttributionTask:
    """The prompt, its predictions (or sentence vector) and the substitute's embedding, as the methods need them."""
    engine = Engine(lens, sentence=sentence)
    prompt = read_prompt(asked["prompt"], lens.tokenizer, lens.limits, chat=asked["chat"])
    if len(prompt) < 2:
        nothing = f"The prompt is the single token '{prompt.tokens[0]}': there is nothing to share the prediction between"
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
        engine, prompt, embeds, target,
        find_units(prompt, asked["units"]), substitute, name, filler, asked["signed"], asked["seed"],
    )  # fmt: skip


@dataclass(frozen=True)
class ScoredMap:
    """A finished map as a run stores it: its scores as plain numbers, its record, and what it cost."""

    tokens: list[list[float]]
    units: list[list[float]]
    record: MapRecord
    packs: bool
    computed: int


def score(method: AttributionMethod, task: AttributionTask, asked: Given) -> ScoredMap:
    start, before, engine = time.perf_counter(), task.engine.tokens_computed, task.engine
    engine.packed = None  # each method costs the same, whatever came before it
    scores = method.explain(task)
    seconds = round(time.perf_counter() - start, 4)
    parameters = {field.name: getattr(method, field.name) for field in options_of(type(method))}
    trust = faithfulness(task, scores) if asked["faithfulness"] else None
    record = MapRecord(method.name, parameters, method.words, seconds, trust, scores.completeness)
    return ScoredMap(scores.tokens.tolist(), scores.units.tolist(), record, engine.packs, engine.tokens_computed - before)
