"""How a descent goes: its settings, and the named ones, among them the published method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from headscan.inversion.decoders import Decoding, Mask
from headscan.inversion.losses import Loss
from headscan.run import BadInput, Option, Settings

__all__ = ["PRESETS", "Descent", "Start", "preset"]

Start = Literal["embedding", "zeros", "noise"]


@dataclass(frozen=True, kw_only=True)
class Descent(Settings):
    """How to descend: by which vectors, loss, steps and start, and how to decode.

    Rates: None is 0.15 of the embeddings' standard deviation for Adam (0.05 for direct), 0.2 for SGD, 1 for L-BFGS. The
    start "embedding" has the mean and spread of the table, "noise" is standard normal.

    >>> Descent(steps=0)
    Traceback (most recent call last):
    headscan.BadInput: --steps must be at least 1, not 0.
    """

    method: Annotated[Literal["indirect", "direct"], Option("Move embeddings, or vectors over the vocabulary.")] = (
        "indirect"
    )
    loss: Annotated[Loss, Option("Distance that is made small; linear is alpha (1 - cos) + beta L1.")] = "l1"
    optimiser: Annotated[Literal["sgd", "adam", "lbfgs"], Option("SGD as published, Adam, or L-BFGS.")] = "adam"
    steps: Annotated[int, Option("Gradient steps; with sequential, a token.", low=1)] = 300
    rate: Annotated[float | None, Option("First learning rate.", above=0)] = None
    last: Annotated[float, Option("Last rate as a share of the first; it falls linearly.", low=0)] = 0.1
    init: Annotated[Start, Option("Where the vectors begin.")] = "embedding"
    null_space: Annotated[bool, Option("Direct: keep what lies in the null space of W^T when decoding.")] = False
    decoder: Annotated[Decoding, Option("From vectors to tokens.")] = "nearest"
    restarts: Annotated[int, Option("Starts per prompt, run in one batch; the best is kept.", low=1)] = 1
    keep_best: Annotated[bool, Option("Decode the best iterate rather than the last.")] = True
    check_every: Annotated[int, Option("Steps between runs of the decoded tokens, to end early; 0: never.", low=0)] = 25
    mask: Annotated[Mask, Option("How a restricted vocabulary is imposed; 'zero' is the published way.")] = "-inf"
    alpha: Annotated[float, Option("Weight of the cosine in the loss linear.", low=0)] = 1.0
    beta: Annotated[float, Option("Weight of L1 in the loss linear.", low=0)] = 1.0
    seed: Annotated[int, Option("Seed of the start.", low=0)] = 0
    sequential: Annotated[bool, Option("One token after another, those found committed (causal slices).")] = False


_PUBLISHED = Descent(
    optimiser="sgd",
    steps=2000,
    rate=0.2,
    init="noise",
    decoder="pinv",
    keep_best=False,
    check_every=0,
    mask="zero",
    seed=999,
)
PRESETS = {
    "adam": Descent(),
    "lbfgs": Descent(optimiser="lbfgs", loss="l2", steps=150),
    "seed": _PUBLISHED,
    "seed-direct": replace(_PUBLISHED, method="direct", steps=500, rate=0.01, null_space=True),
}


def preset(name: str, **changes: object) -> Descent:
    """Named settings, with some changed.

    >>> preset("seed", steps=500).optimiser
    'sgd'
    """
    if name not in PRESETS:
        raise BadInput(f"There is no preset '{name}'; choose one of {', '.join(PRESETS)}.")
    return replace(PRESETS[name], **changes)  # type: ignore[arg-type]
