"""From a model and a prompt to maps of which tokens the prediction rests on."""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import transformers

import headscan
from headscan.attribution.engine import Engine
from headscan.attribution.faithfulness import agreement, faithfulness
from headscan.attribution.memory import plan
from headscan.attribution.methods import Map, Setting, measure, names
from headscan.attribution.result import AttributeResult
from headscan.attribution.substitutes import substitute_vector
from headscan.attribution.target import KINDS, Step, Target, kind_of, one_token
from headscan.attribution.units import find_units
from headscan.errors import BadInput
from headscan.model import Lens
from headscan.results import check_writable
from headscan.text.display import display
from headscan.text.prompts import Prompt, read_prompt

__all__ = ["attribute"]


def attribute(
    model: str | Lens, prompt: Any, *, method: str | Sequence[str] = "gradient-x-input", target: str = "next",
    token: str | int | None = None, against: str | int | None = None, continuation: str | int | None = None,
    substitute: str | int = "auto", units: str = "token", spans: Sequence[str | tuple[int, int]] | None = None,
    signed: bool = True, chat: bool = False, special: bool = True, steps: int | None = None, samples: int = 64,
    check: bool = True, memory: int | None = None, batch: int | None = None, seed: int = 0,
    out: str | os.PathLike | None = None, command: str | None = None, **loading: Any,
) -> AttributeResult:  # fmt: skip
    """Which tokens of a prompt a prediction rests on.

    Args:
        model: a `Lens`, or what `Lens.load` takes (with its options, such as `dtype` and `quantize`). Causal models
            predict what follows the prompt, masked models what stands at their mask tokens; encoder-decoders what their
            decoder says next, and the tokens of the encoder's prompt are scored.
        prompt: a text, token ids, or a chat as a list of {"role", "content"}.
        method: one of `headscan.attribution.METHODS`, or several (the first is the one that `scores` holds).
        target: "next" (the logit of the token the model predicts; also "token"), "contrast", "logprob",
            "probability", "entropy", or "all".
        token: the token that is explained, as its text, its id or "#ID"; None: what the model predicts.
        against: explain why `token` and not this one.
        continuation: explain every token of this text, or of so many tokens that the model generates greedily.
        substitute: what stands for an absent token: "auto", "mask", "pad", "eos", "unk", "mean", "zero", a token, or
            "remove"; also the baseline of integrated gradients. See `headscan.attribution.substitutes`.
        units: "token", "word", "sentence" or "span".
        spans: for "span": texts of the prompt, or pairs of token indices.
        signed: scores with signs (what speaks for the target, what against); else sizes alone.
        chat: put the text into the tokenizer's chat template.
        special: add the tokenizer's special tokens.
        steps: of integrated gradients; None cuts the path until completeness holds to 0.2 %.
        samples: pairs of orders of sampled Shapley values (above twelve units).
        check: measure faithfulness and, with several methods, their agreement.
        memory: bytes that a micro-batch may take beside the weights (default: 1 GiB, half of what is free on a GPU).
        batch: rows of a micro-batch instead.
        seed: of sampled orders.
        out: a folder to save the result in.
        command: what to record in the protocol.

    Returns:
        An `AttributeResult`.

    Raises:
        BadInput: an empty prompt, a single token, one longer than the context, a target that is no single token, a
            model without an output layer or without gradients.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> found = attribute(lens, [3, 1, 4, 1, 5], method="occlusion", substitute="mean")
    >>> len(found.scores), found.document["target"]["kind"]
    (5, 'logit')
    """
    started = time.time()
    wanted = names(method)
    kind = kind_of(target, against)
    if out is not None:
        check_writable(out)
    lens = model if isinstance(model, Lens) else Lens.load(model, **loading)
    engine = Engine(lens)
    read = read_prompt(prompt, lens.tokenizer, lens.limits, chat=chat, special=special)
    if len(read) < 2:
        raise BadInput(
            f"The prompt is the single token '{read.tokens[0]}': there is nothing to share the prediction between; "
            "give at least two tokens."
        )
    read, placed = _steps(engine, read, token, against, continuation)
    aim = Target(kind, placed)
    embeds = engine.embed(torch.tensor(read.ids))
    absent, name = substitute_vector(engine, substitute)
    filler = absent if absent is not None else substitute_vector(engine, "auto")[0]
    assert filler is not None
    setting = Setting(
        engine, read, embeds, aim, find_units(read, units, spans), absent, name, filler,
        signed, steps, samples, seed, memory, batch,
    )  # fmt: skip
    maps = [measure(setting, one) for one in wanted]
    judged = [faithfulness(setting, one) if check else {} for one in maps]
    planned = plan(lens, len(read), len(placed), grad=wanted[0] in ("gradient-x-input", "integrated-gradients"),
                   budget=memory, rows=batch)  # fmt: skip
    protocol = {
        "command": command,
        "units": "span" if spans is not None else units,
        "substitute": name,
        "signed": signed,
        "chat": chat,
        "special_tokens": special,
        "seed": seed,
        "shared_prefix": engine.shares,
        "memory": planned.document(),
        "tokens_computed": engine.tokens_computed,
        "device": str(lens.device),
        "dtype": str(embeds.dtype).removeprefix("torch."),
        "versions": {
            "headscan": headscan.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "started": datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 3),
    }
    document = _document(setting, maps, judged) | {"protocol": protocol, "model": asdict(lens.provenance())}
    arrays = {f"scores/{one.method}": one.tokens.astype(np.float32) for one in maps}
    arrays |= {f"units/{one.method}": one.units.astype(np.float32) for one in maps}
    result = AttributeResult(document, arrays)
    if out is not None:
        result.save(out)
    return result


def _steps(
    engine: Engine, prompt: Prompt, token: str | int | None, against: str | int | None, continuation: str | int | None
) -> tuple[Prompt, tuple[Step, ...]]:
    """The predictions to explain, and the prompt with as much of the continuation as they rest on."""
    lens = engine.lens
    other = one_token(lens, against) if against is not None else None
    if engine.translates:
        return _decoded(engine, prompt, token, other, continuation)
    if not engine.causal:
        if continuation is not None:
            raise BadInput(f"'{lens.name}' fills masks; it continues no text.")
        mask = getattr(lens.tokenizer, "mask_token_id", None)
        positions = [i for i, one in enumerate(prompt.ids) if one == mask and mask is not None]
        if not positions:
            word = getattr(lens.tokenizer, "mask_token", None) or "the mask token"
            raise BadInput(f"'{lens.name}' fills masks: put {word} where the prompt is to be completed.")
    elif continuation is not None:
        if token is not None or against is not None:
            raise BadInput("A continuation names its own tokens: leave --token and --against out.")
        ids = _continuation(engine, prompt, continuation)
        longest = lens.context_length
        if longest is not None and len(prompt) + len(ids) - 1 > longest:
            raise BadInput(
                f"Prompt and continuation have {len(prompt) + len(ids)} tokens, but '{lens.name}' takes at most {longest}."
            )
        steps = tuple(Step(len(prompt) - 1 + k, one) for k, one in enumerate(ids))
        return prompt.extended(lens.tokenizer, ids[:-1]), steps
    else:
        positions = [len(prompt) - 1]
    if token is not None:
        chosen = [one_token(lens, token)] * len(positions)
    else:
        with torch.no_grad():
            logits = engine.logits(engine.embed(torch.tensor([prompt.ids])), positions)[0]
        chosen = logits.argmax(-1).tolist()
    if other is not None and other in chosen:
        raise BadInput("A token cannot be put against itself: choose another --against, or name the --token.")
    return prompt, tuple(Step(p, one, other) for p, one in zip(positions, chosen, strict=True))


def _decoded(
    engine: Engine, prompt: Prompt, token: str | int | None, against: int | None, continuation: str | int | None
) -> tuple[Prompt, tuple[Step, ...]]:
    """The decoder's predictions; what it has said so far is put into the engine, and stays as it is."""
    lens, embeds = engine.lens, engine.embed(torch.tensor([prompt.ids]))
    if continuation is not None and (token is not None or against is not None):
        raise BadInput("A continuation names its own tokens: leave --token and --against out.")
    if isinstance(continuation, int) and continuation < 1:
        raise BadInput(f"A continuation has at least one token, not {continuation}.")
    if isinstance(continuation, str):
        ids = [int(i) for i in lens.require_tokenizer().encode(continuation, add_special_tokens=False)]
        if not ids:
            raise BadInput("The continuation is empty.")
        engine.decoder_ids = engine.decoder_ids[:1] + ids[:-1]
    else:
        ids = [one_token(lens, token)] if token is not None else []
        while len(ids) < (continuation or 1):
            said = len(engine.decoder_ids)
            with torch.no_grad():
                ids.append(int(engine.logits(embeds, [said - 1]).argmax()))
            if len(ids) < (continuation or 1):
                engine.decoder_ids.append(ids[-1])
    if against is not None and against in ids:
        raise BadInput("A token cannot be put against itself: choose another --against, or name the --token.")
    return prompt, tuple(Step(k, one, against) for k, one in enumerate(ids))


def _continuation(engine: Engine, prompt: Prompt, wanted: str | int) -> list[int]:
    tokenizer = engine.lens.require_tokenizer()
    if isinstance(wanted, str):
        whole = tokenizer.encode(prompt.text + wanted, add_special_tokens=False)
        plain = [i for i, special in zip(prompt.ids, prompt.special, strict=True) if not special]
        joined = whole[: len(plain)] == plain
        found = whole[len(plain) :] if joined else tokenizer.encode(wanted, add_special_tokens=False)
        if not found:
            raise BadInput("The continuation is empty.")
        return list(found)
    if wanted < 1:
        raise BadInput(f"A continuation has at least one token, not {wanted}.")
    ids = list(prompt.ids)
    for _ in range(wanted):
        if engine.lens.context_length is not None and len(ids) > engine.lens.context_length:
            raise BadInput(
                f"The prompt of {len(prompt)} tokens and {wanted} more exceed the context of '{engine.lens.name}', "
                f"{engine.lens.context_length} tokens."
            )
        with torch.no_grad():
            ids.append(int(engine.logits(engine.embed(torch.tensor([ids])), [len(ids) - 1]).argmax()))
    return ids[len(prompt) :]


def _document(setting: Setting, maps: list[Map], judged: list[dict[str, Any]]) -> dict[str, Any]:
    lens, prompt, target, first = setting.engine.lens, setting.prompt, setting.target, maps[0]
    with torch.no_grad():
        logits = setting.engine.logits(setting.embeds[None], target.positions)[0].float()
        values = target.value(logits[None])[0].tolist()
        probabilities = logits.softmax(-1)
    spell = (lambda i: display(lens.tokenizer, i)) if lens.tokenizer is not None else (lambda i: f"<id {i}>")
    steps = []
    for k, step in enumerate(target.steps):
        top = probabilities[k].topk(min(5, probabilities.shape[-1]))
        steps.append(
            {
                "position": step.position,
                "id": step.token,
                "token": spell(step.token),
                "against": None if step.against is None else {"id": step.against, "token": spell(step.against)},
                "value": values[k],
                "probability": float(probabilities[k, step.token]),
                "predictions": [
                    {"id": int(i), "token": spell(int(i)), "probability": float(p)}
                    for p, i in zip(top.values, top.indices, strict=True)
                ],
                "scores": first.tokens[k].tolist(),
            }
        )
    means = first.units.mean(0)
    said = setting.engine.decoder_ids
    return {
        "headscan": headscan.__version__,
        "decoder": {"ids": said, "tokens": [spell(i) for i in said]} if said else None,
        "prompt": prompt.text,
        "tokens": list(prompt.tokens),
        "ids": list(prompt.ids),
        "special": list(prompt.special),
        "roles": list(prompt.roles),
        "spans": [
            {"text": unit.text, "tokens": list(unit.tokens), "score": float(score)}
            for unit, score in zip(setting.units, means, strict=True)
        ],
        "scores": first.tokens.mean(0).tolist(),
        "method": first.method,
        "signed": setting.signed,
        "target": {
            "kind": target.kind,
            "sentence": KINDS[target.kind],
            "tokens": [step["token"] for step in steps],
            "ids": [step["id"] for step in steps],
        },
        "steps": steps,
        "maps": [
            {"method": one.method, "seconds": round(one.seconds, 4), "faithfulness": found} | one.extra
            for one, found in zip(maps, judged, strict=True)
        ],
        "agreement": agreement(maps),
        "faithfulness": judged[0],
    }
