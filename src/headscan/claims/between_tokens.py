"""Claims 90-92, 98, 100, 101 and 124: attention alone, and one output alone, tried as the source tried them.

Each hidden token is looked for in three ways on a small Llama: the published descent, Adam from the embeddings' scale, and
an exact search over the vocabulary (each hidden token alone, the rest known). "Artefact" means: what was seen is seen
again, but it is the search that fails, not the information that is missing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from headscan.claims.claim import Verdict, claim
from headscan.claims.small_models import LENGTH, prompts, small
from headscan.flow import recovery, threshold, variant
from headscan.inversion import descend, preset

__all__ = ["missing", "present"]

SOURCE = "Badger, Language Modeling and Discrete Encodings, blbadger.github.io"
TRAINED = 300
FOUND = 0.5  # of the hidden tokens: found
LAST = -1
WIDE = 256  # the claims on untrained layers are about wide ones
COMMANDS = {
    90: (
        "headscan invert huggyllama/llama-7b --prompt 'Mario the idea versus Mario the man' --at 'block.0[:, "
        "1:, :]' --method indirect --preset seed --steps 2000 --loss cosine --quantize 8bit --weights fresh:0 "
        "--only attention --no-residual --no-norm --no-causal"
    ),
    91: (
        "headscan invert huggyllama/llama-7b --prompt 'Mario the idea versus Mario the man' --at 'block.0[:, "
        "1:, :]' --method indirect --preset seed --steps 2000 --loss cosine --quantize 8bit --weights fresh:0 "
        "--only attention --no-residual --no-norm --no-causal"
    ),
    92: (
        "headscan invert huggyllama/llama-7b --prompt 'The sky is blue.' --at 'block.1[:, 1:, :]' --method "
        "indirect --preset seed --steps 2000 --quantize 8bit --weights fresh:0"
    ),
    98: (
        "headscan invert huggyllama/llama-7b --prompt 'Mario the man versus Mario the idea' --at 'block.0[:, "
        "-1, :]' --method indirect --preset seed --steps 2000 --loss l2 --quantize 8bit --weights fresh:0"
    ),
    100: (
        "headscan invert huggyllama/llama-65b --prompt 'Mario the man versus Mario the idea' --at 'block.0[:, "
        "-1, :]' --method indirect --preset seed --steps 2000 --quantize 8bit"
    ),
    101: (
        "headscan invert huggyllama/llama-65b --prompt 'The sky is blue.' --at 'block.0[:, -1, :]' --method "
        "indirect --preset seed --steps 2000 --quantize 8bit"
    ),
    124: (
        "headscan invert huggyllama/llama-7b --prompt 'Mario the man versus Mario the idea' --at 'block.0[:, "
        ":, :2083]' --method indirect --preset seed --steps 2000 --quantize 8bit --only attention"
    ),
}
"""What runs the source's own case."""


@lru_cache(maxsize=16)
def measure(steps: int, first: int, blocks: int, seed: int, width: int = 64, cut: str = "whole") -> dict[str, Any]:
    """Shares of hidden tokens that are found, by each search, and the least margin of the exact one.

    Args:
        steps: of training; 0 is untrained.
        first: outputs from this position on are seen; `LAST`: the last alone.
        blocks: how many blocks the outputs come from.
        seed: of model and prompts.
        width: of the model.
        cut: of `headscan.flow.VARIANTS`.
    """
    lens, ids = small(width=width, steps=steps, seed=seed), prompts(seed)
    part = variant(cut, [f"block.{blocks - 1}"])
    seen = part.but(tokens="-1" if first == LAST else f"{first}:").on(lens)
    hidden = list(range(LENGTH))[:first]
    outputs = list(range(LENGTH))[first:]
    with torch.no_grad():
        target = seen.run(ids)
    found: dict[str, Any] = {}
    for name, settings in {"published": preset("seed", steps=300), "adam": preset("adam", steps=150)}.items():
        right = (descend(seen, target, LENGTH, settings).tokens == ids).float()
        found[f"hidden_{name}"] = round(float(right[:, hidden].mean()), 3)
    exact = recovery(lens, part, ids[:2], rows=256)
    found["hidden_exact"] = float(np.max(exact.recoverable[0][np.ix_(hidden, outputs)], axis=1).mean())
    found["margin"] = float(np.max(exact.margin[0][np.ix_(hidden, outputs)], axis=1).min())
    return found


def missing(numbers: dict[str, Any]) -> Verdict:
    """The source does not find hidden tokens.

    >>> missing({"hidden_published": 0.0, "hidden_exact": 1.0}).outcome
    'artefact'
    """
    shown = f"The published descent finds {numbers['hidden_published']:.0%} of the hidden tokens"
    if numbers["hidden_published"] >= FOUND:
        return Verdict("not reproduced", f"{shown}.", numbers)
    if numbers["hidden_exact"] >= FOUND:
        why = f"{shown}, an exact search of the same outputs {numbers['hidden_exact']:.0%}: they are there."
        return Verdict("artefact", why, numbers)
    return Verdict("reproduced", f"{shown}, and no search finds most of them.", numbers)


def present(numbers: dict[str, Any]) -> Verdict:
    """The source finds hidden tokens, by gradient.

    >>> present({"hidden_published": 0.0, "hidden_adam": 0.75, "hidden_exact": 1.0}).outcome
    'reproduced'
    """
    by_gradient = max(numbers["hidden_published"], numbers["hidden_adam"])
    words = f"By gradient {by_gradient:.0%} of the hidden tokens, by exact search {numbers['hidden_exact']:.0%}."
    return Verdict("reproduced" if by_gradient >= FOUND else "not reproduced", words, numbers)


def original(verdict: Verdict, command: str) -> Verdict:
    """The verdict with the command that runs the source's own case."""
    return Verdict(verdict.outcome, f"{verdict.why} The original: {command}", verdict.measured)


@claim(90, "Untrained attention alone gives back the hidden first token among the best five.", SOURCE)
def attention_alone(seed: int) -> Verdict:
    """Untrained, attention alone, the first output hidden."""
    return original(present(measure(0, 1, 1, seed, WIDE, "attention")), COMMANDS[90])


@claim(91, "Untrained attention alone gives back up to two hidden tokens.", SOURCE)
def attention_alone_two(seed: int) -> Verdict:
    """The same with two outputs hidden."""
    return original(present(measure(0, 2, 1, seed, WIDE, "attention")), COMMANDS[91])


@claim(92, "With a second attention layer or an MLP the hidden token is lost.", SOURCE)
def second_layer(seed: int) -> Verdict:
    """Two layers of attention, and one whole block: the one of which the published descent finds more."""
    two, whole = measure(0, 1, 2, seed, WIDE, "attention"), measure(0, 1, 1, seed, WIDE)
    more = two if two["hidden_published"] >= whole["hidden_published"] else whole
    return original(missing(more), COMMANDS[92])


@claim(98, "The last output alone of such a layer gives back some words.", SOURCE)
def last_output(seed: int) -> Verdict:
    """A wide untrained layer, its last output alone: some words (at least one of the five), by the better descent."""
    found = measure(0, LAST, 1, seed, WIDE)
    some = max(found["hidden_published"], found["hidden_adam"])
    words = f"By gradient {some:.0%} of the tokens before the last, by exact search {found['hidden_exact']:.0%}."
    outcome = "reproduced" if some >= 1 / (LENGTH - 1) else "not reproduced"
    return original(Verdict(outcome, words, found), COMMANDS[98])  # type: ignore[arg-type]


@claim(100, "The last output of Llama-65b gives back few tokens.", SOURCE)
def last_output_trained(seed: int) -> Verdict:
    """A trained block, its last output alone."""
    return original(missing(measure(TRAINED, LAST, 1, seed)), COMMANDS[100])


@claim(101, "The last output of Llama-65b lacks the first token among its best five.", SOURCE)
def last_output_trained_again(seed: int) -> Verdict:
    """The same on another prompt."""
    return original(missing(measure(TRAINED, LAST, 1, seed + 1)), COMMANDS[101])


@claim(124, "For attention alone the threshold is 2083 features.", SOURCE)
def threshold_of_attention(seed: int) -> Verdict:
    """The fewest features with which attention alone gives every token back, by search and start."""
    lens, ids = small(seed=seed), prompts(seed, 2)
    searches = ("exact", "adam", "zeros", "noise")
    numbers = {f"features_{one}": threshold(lens, "block.0", ids, one, only="attention").width for one in searches}
    numbers["features_whole_block_adam"] = threshold(lens, "block.0", ids, "adam").width
    shown = ", ".join(f"{name.removeprefix('features_')} {width}" for name, width in numbers.items())
    starts = {numbers[f"features_{one}"] for one in searches}
    words = f"Features needed of {lens.width('block.0')}: {shown} (None: more than there are)."
    if len(starts) > 1:
        why = f"{words} The threshold is that of a search and its start, not of the model."
        return original(Verdict("artefact", why, numbers), COMMANDS[124])
    return original(Verdict("reproduced", words, numbers), COMMANDS[124])
