"""Claims 71 to 104: what outputs tell of tokens whose own output is hidden (Badger, information between tokens).

The published search is gradient descent from noise; what it misses may still be there. So each claim is measured three
ways on a small Llama: the published descent, Adam from the embeddings' scale, and exact search over the vocabulary
(each hidden token alone, the rest known). "artefact" means: what was seen is seen again, but it is the search that
fails, not the information that is missing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from headscan.claims.claim import Verdict, claim
from headscan.claims.small_models import LENGTH, prompts, small
from headscan.flow import leak, recovery, variant
from headscan.inversion import descend, preset

SOURCE = "Badger, Language Modeling and Discrete Encodings, information between tokens"
TRAINED = 300
FOUND = 0.5  # a token "is found" if at least half of the hidden tokens are


@lru_cache(maxsize=64)
def measure(
    steps: int, first: int, blocks: int, seed: int, width: int = 64, cut: str = "whole", loss: str = "l1"
) -> dict[str, Any]:
    """Shares of tokens found: own (their output is seen), hidden (it is not), by each search.

    Args:
        steps: of training; 0 is untrained.
        first: outputs from this position on are seen; -1: the last alone.
        blocks: how many blocks the outputs come from.
        seed: of model and prompts.
        width: of the model.
        cut: of `headscan.flow.VARIANTS`.
        loss: of the descent.
    """
    lens = small(width=width, steps=steps, seed=seed)
    ids = prompts(seed)
    part = variant(cut, [f"block.{blocks - 1}"])
    seen = part.but(tokens=f"{first}:" if first >= 0 else "-1").on(lens)
    hidden = list(range(LENGTH))[:first]
    own = [k for k in range(LENGTH) if k not in hidden]
    with torch.no_grad():
        target = seen.run(ids)
    found: dict[str, Any] = {}
    searches = {"published": preset("seed", steps=300, loss=loss), "adam": preset("adam", steps=150, loss=loss)}
    for name, settings in searches.items():
        right = (descend(seen, target, LENGTH, settings).tokens == ids).float()
        found[f"own_{name}"] = float(right[:, own].mean())
        found[f"hidden_{name}"] = float(right[:, hidden].mean()) if hidden else None
    if hidden:
        exact = recovery(lens, part, ids[:2], rows=VOCABULARY_ROWS)
        outputs = own if first >= 0 else [LENGTH - 1]
        found["hidden_exact"] = float(np.max(exact.recoverable[0][np.ix_(hidden, outputs)], axis=1).mean())
        found["margin"] = float(np.max(exact.margin[0][np.ix_(hidden, outputs)], axis=1).min())
    return found


VOCABULARY_ROWS = 256


def missing(numbers: dict[str, Any]) -> Verdict:
    """The claim says that hidden tokens are not found."""
    if numbers["hidden_published"] >= FOUND:
        return Verdict("not reproduced", "The published search finds most hidden tokens here.", numbers)
    if numbers["hidden_exact"] >= FOUND:
        return Verdict(
            "artefact", "The published search misses them, exact search over the vocabulary finds them: they are there.",
            numbers,
        )  # fmt: skip
    return Verdict("reproduced", "No search finds them.", numbers)


def present(numbers: dict[str, Any]) -> Verdict:
    """The claim says that hidden tokens are found."""
    if max(numbers["hidden_published"], numbers["hidden_adam"]) >= FOUND:
        return Verdict("reproduced", "Gradients find most hidden tokens.", numbers)
    if numbers["hidden_exact"] >= FOUND:
        return Verdict("reproduced", "Exact search finds the hidden tokens; gradients do not here.", numbers)
    return Verdict("not reproduced", "No search finds most of the hidden tokens.", numbers)


def larger(model: str, numbers: dict[str, Any]) -> Verdict:
    """The claim is about one large model; the numbers are of the small stand-in."""
    why = (
        "On a small stand-in the hidden tokens are "
        + ("in the outputs by exact search" if numbers.get("hidden_exact", 0) >= FOUND else "not found by any search")
        + f"; there: headscan flow {model} --prompt 'The sky is blue.' --at block.0 --candidates 4096."
    )
    return Verdict("needs a larger model", why, numbers)


@claim(71, "From all outputs of the first block of a trained model all tokens are found but the last.", SOURCE)
def all_outputs(seed: int) -> Verdict:
    """All outputs seen."""
    found = measure(TRAINED, 0, 1, seed)
    outcome = "reproduced" if max(found["own_published"], found["own_adam"]) >= FOUND else "not reproduced"
    return Verdict(outcome, "The share of tokens found from all outputs, by search.", found)  # type: ignore[arg-type]


@claim(72, "The first two outputs tell nothing about the tokens behind them.", SOURCE)
def causal_prefix(seed: int) -> Verdict:
    """Leak from later tokens to earlier outputs."""
    lens = small(steps=TRAINED, seed=seed)
    found = leak(lens, variant("whole", ["block.0", "block.1"]), prompts(seed))
    most = float(found[:, np.tril_indices(LENGTH, -1)[0], np.tril_indices(LENGTH, -1)[1]].max())
    outcome = "reproduced" if most == 0 else "not reproduced"
    return Verdict(outcome, "A causal mask lets nothing through.", {"largest_leak": most})  # type: ignore[arg-type]


def _trained_missing(number: int, first: int, statement: str, loss: str = "l1") -> None:
    claim(number, statement, SOURCE)(lambda seed: missing(measure(TRAINED, first, 1, seed, loss=loss)))


_trained_missing(73, 2, "With the first two outputs of a trained first block hidden, their tokens are not found.")
_trained_missing(74, 2, "The same for 'This is a prompt sentence'.")
_trained_missing(
    75, 1, "With the first output hidden, the first token of 'Four score and seven years ago' is not found."
)
_trained_missing(76, 3, "With three outputs hidden and the cosine as loss, their three tokens are not found.", "cosine")
_trained_missing(77, 3, "Cosine and L1 together change nothing.", "linear")
_trained_missing(103, 1, "With a vocabulary of a few words, the hidden first token is still not found.")


def _large(number: int, model: str, first: int, blocks: int, statement: str) -> None:
    claim(number, statement, SOURCE)(lambda seed: larger(model, measure(TRAINED, first, blocks, seed)))


for _number, _model, _first, _blocks, _statement in (
    (78, "mistralai/Mistral-7B-v0.1", 1, 1, "In Mistral 7B the hidden first token is not found."),
    (79, "mistralai/Mistral-7B-v0.1", 1, 1, "In Mistral 7B 'The sky is blue' comes back without its first token."),
    (
        80,
        "huggyllama/llama-13b",
        1,
        1,
        "In Llama 13B the hidden first token of 'This is a prompt sentence' is not found.",
    ),
    (81, "huggyllama/llama-13b", 0, 1, "In Llama 13B nearly all tokens are found from all outputs by the cosine."),
    (82, "huggyllama/llama-13b", 1, 2, "In Llama 13B the hidden token is not found, and more blocks are worse."),
    (83, "huggyllama/llama-30b", 1, 1, "In Llama 30B the hidden first token is not found, and others are."),
    (84, "huggyllama/llama-30b", 1, 1, "In Llama 30B the same for 'This is a prompt sentence'."),
    (
        85,
        "huggyllama/llama-30b",
        1,
        1,
        "In Llama 30B by cosine, a wrong token stands for the hidden one of 'The sky is blue.'.",
    ),
    (
        86,
        "huggyllama/llama-30b",
        1,
        1,
        "In Llama 30B the same wrong token stands for the hidden one of another prompt.",
    ),
    (87, "huggyllama/llama-30b", 1, 2, "At block 8 of Llama 30B fewer tokens are found."),
    (88, "huggyllama/llama-30b", 0, 2, "At block 8 of Llama 30B some tokens are wrong even from all outputs."),
    (89, "huggyllama/llama-30b", 1, 2, "At block 8 of Llama 30B with the first output hidden, its token is not found."),
    (99, "huggyllama/llama-65b", 1, 1, "In Llama 65B the hidden first token is not found."),
    (100, "huggyllama/llama-65b", -1, 1, "From the last output of Llama 65B some earlier tokens are found."),
    (
        101,
        "huggyllama/llama-65b",
        -1,
        1,
        "From the last output of Llama 65B the first token is in none of the best five.",
    ),
    (102, "meta-llama/Llama-2-70b-hf", 1, 1, "In Llama 2 70B the hidden first token is not found."),
):
    _large(_number, _model, _first, _blocks, _statement)


@claim(90, "In an untrained model with attention alone, the hidden first token is found.", SOURCE)
def attention_untrained(seed: int) -> Verdict:
    """Attention alone, untrained, one output hidden."""
    return present(measure(0, 1, 1, seed, cut="attention"))


@claim(91, "The same holds for other prompts and for two hidden outputs.", SOURCE)
def attention_untrained_two(seed: int) -> Verdict:
    """Two outputs hidden."""
    return present(measure(0, 2, 1, seed, cut="attention"))


@claim(92, "A second layer of attention, or the feed-forward part, makes hidden tokens unfindable.", SOURCE)
def second_layer(seed: int) -> Verdict:
    """The better of two attention layers and a whole block."""
    two, whole = measure(0, 1, 2, seed, cut="attention"), measure(0, 1, 1, seed)
    return missing(two if two["hidden_published"] >= whole["hidden_published"] else whole)


@claim(93, "Without a causal mask later tokens reach earlier outputs.", SOURCE)
def no_mask(seed: int) -> Verdict:
    """Leak of later tokens with the mask lifted and imposed."""
    lens, lower = small(seed=seed), np.tril_indices(LENGTH, -1)
    found = {
        name: float(leak(lens, variant(name, ["block.0"]), prompts(seed, 1))[0][lower].mean())
        for name in ("no-mask", "causal")
    }
    numbers = {"leak_without_mask": found["no-mask"], "leak_with_mask": found["causal"]}
    leaks = found["no-mask"] > 0 and found["causal"] == 0
    return Verdict(
        "reproduced" if leaks else "not reproduced",
        "Whether later tokens leak is a matter of the mask, so each result names its mask.",
        numbers,
    )


@claim(94, "In a trained model with attention alone, the hidden first token is not found.", SOURCE)
def attention_trained(seed: int) -> Verdict:
    """Attention alone, trained."""
    return missing(measure(TRAINED, 1, 1, seed, cut="attention"))


@claim(95, "In a trained model with attention alone and no residual, not even visible tokens are found.", SOURCE)
def no_residual_trained(seed: int) -> Verdict:
    """Own tokens by each search; by exact search from their own output."""
    found = dict(measure(TRAINED, 1, 1, seed, cut="attention-no-residual"))
    lens, cut = small(steps=TRAINED, seed=seed), variant("attention-no-residual", ["block.0"])
    found["own_exact"] = float(np.diag(recovery(lens, cut, prompts(seed, 1)).recoverable[0]).mean())
    if found["own_published"] >= FOUND:
        return Verdict("not reproduced", "The published search finds most visible tokens here.", found)
    if found["own_exact"] >= FOUND:
        return Verdict("artefact", "The search fails; exact search finds visible tokens in their own output.", found)
    return Verdict("reproduced", "No search finds them.", found)


@claim(96, "In an untrained model tokens are found with the residual and without it alike.", SOURCE)
def residual_untrained(seed: int) -> Verdict:
    """Attention alone, with and without residual."""
    kept, cut = measure(0, 1, 1, seed, cut="attention"), measure(0, 1, 1, seed, cut="attention-no-residual")
    numbers = {f"with_{k}": v for k, v in kept.items()} | {f"without_{k}": v for k, v in cut.items()}
    alike = min(max(one["own_published"], one["own_adam"]) for one in (kept, cut)) >= FOUND
    return Verdict(
        "reproduced" if alike else "not reproduced", "Own tokens found by the better search, in both.", numbers
    )


def _wider(seed: int, first: int) -> Verdict:
    """Hidden tokens found by width, by gradients and by exact search."""
    found = {width: measure(0, first, 1, seed, width=width, cut="attention") for width in (32, 128)}
    numbers = {f"{k}_width_{width}": v for width, one in found.items() for k, v in one.items()}
    narrow, wide = (max(one["hidden_published"], one["hidden_adam"]) for one in found.values())
    if wide > narrow + 0.2:  # less is one or two of the few hidden tokens
        return Verdict("reproduced", "A wider untrained model gives more hidden tokens to gradients.", numbers)
    return Verdict("not reproduced", "Width does not help gradients here; exact search needs no width.", numbers)


claim(97, "In a wider untrained layer more hidden tokens are found, with three outputs hidden.", SOURCE)(
    lambda seed: _wider(seed, 3)
)
claim(98, "In a wider untrained layer some tokens are found from the last output alone.", SOURCE)(
    lambda seed: _wider(seed, -1)
)
claim(104, "The share of hidden tokens found grows from 1/5 to 4/5 as an untrained layer's width doubles.", SOURCE)(
    lambda seed: _wider(seed, 1)
)
