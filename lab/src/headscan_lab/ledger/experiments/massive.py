"""Statements on massive activations at the first token (arXiv:2510.06477).

The first token is changed at the output of every block, and what goes with it is measured.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.measures.attention import head_rows, watched
from headscan.model import Lens
from headscan.run import BadInput
from headscan_lab.ledger.measurement import Measurement, mean_of
from headscan_lab.ledger.models import DEFAULT_MODEL, lens_of, prompts
from headscan_lab.ledger.statement import Observation, enter_experiment, text_of

REPEATS = 8
ROWS = 1  # texts of a repeat
LENGTH = 48  # tokens of a text
EXTREME = 10.0  # a first token is called extreme from this multiple of the other tokens' norm on
SINK = 0.3  # share of a head's attention from which on it attends to the first token (2410.10781)

Change = Literal["nothing", "sink", "another token"]
"""A change of the states at the output of every block."""


def _shortened_to_median(states: Tensor, position: int) -> Tensor:
    """Return states [n, T, d] with one token shortened to the median norm of its text's tokens."""
    norms = states.norm(dim=-1)
    factor = (norms.median(dim=1).values / norms[:, position]).clamp(max=1.0)
    changed = states.clone()
    changed[:, position] *= factor[:, None]
    return changed


def _shorten_first_token(states: Tensor) -> Tensor:
    return _shortened_to_median(states, 0)


def _shorten_middle_token(states: Tensor) -> Tensor:
    return _shortened_to_median(states, LENGTH // 2)


CHANGES: dict[Change, Callable[[Tensor], Tensor]] = {
    "sink": _shorten_first_token,
    "another token": _shorten_middle_token,
}


@contextmanager
def changed_blocks(lens: Lens, change: Change) -> Iterator[None]:
    """Change the output of every block while the context lasts."""
    if change == "nothing":
        yield
        return
    blocks = lens.match("block.*")
    with lens.patch(dict.fromkeys(blocks, CHANGES[change])):
        yield


@dataclass(frozen=True)
class BlockReadings:
    """The readings of one repeat, by block.

    Attributes:
        entropy: matrix entropy over its largest possible value, 0 to 1.
        norm: the first token's norm over the median of its text.
        sinks: share of heads that attend to the first token; empty where attention cannot be read.
        loss: nats a token; None without a head.
    """

    entropy: list[float]
    norm: list[float]
    sinks: list[float]
    loss: float | None


def matrix_entropy(states: Tensor) -> float:
    """Return the entropy of the eigenvalues of Z Zᵀ over its trace, divided by log min(T, d).

    Z are states [T, d]. The entropy is 0 for one direction, 1 for even eigenvalues.

    >>> round(matrix_entropy(torch.eye(4, 6)), 6), round(matrix_entropy(torch.ones(4, 6)), 6)
    (1.0, 0.0)
    """
    energies = torch.linalg.svdvals(states.double()).square()
    shares = energies[energies > 0] / energies.sum()
    return float(-(shares * shares.log()).sum() / np.log(min(states.shape)))


@cache
def read_blocks(kind: str, seed: int, change: Change) -> list[BlockReadings]:
    """Return the readings of each repeat of a master seed.

    A repeat takes one forward pass for the states and the loss, and one for the attention.
    """
    lens = lens_of(kind)
    readings = []
    for repeat in range(REPEATS):
        ids = prompts(kind, 1000 * seed + repeat, ROWS, LENGTH)
        with changed_blocks(lens, change), torch.no_grad():
            readings.append(_read_blocks(lens, ids))
    return readings


def _read_blocks(lens: Lens, ids: Tensor) -> BlockReadings:
    sites = lens.match("block.*")
    head = ("head",) if "head" in lens.sites else ()
    states = lens.run(ids, sites=(*sites, *head))
    entropy = []
    norm = []
    for site in sites:
        entropy.append(float(np.mean([matrix_entropy(text) for text in states[site]])))
        norms = states[site].norm(dim=-1)
        ratios = norms[:, 0] / norms.median(dim=1).values
        norm.append(float(ratios.median()))
    loss = None
    if head:
        logits = states["head"][:, :-1].flatten(0, 1).float()
        loss = float(F.cross_entropy(logits, ids[:, 1:].flatten()))
    return BlockReadings(entropy, norm, _sink_shares(lens, ids), loss)


def _sink_shares(lens: Lens, ids: Tensor) -> list[float]:
    """Return the share of heads that attend to the first token, by layer."""
    try:
        rows = head_rows(watched(lens, [ids])[0])
    except BadInput:  # the model's attention cannot be read
        return []
    attention: dict[object, list[float]] = defaultdict(list)  # the rows are in the layers' order
    for row in rows:
        attention[row["site"]].append(float(row["first_share"] or 0.0))  # type: ignore[arg-type]
    return [float(np.mean([share > SINK for share in heads])) for heads in attention.values()]


def _number(name: str, values: list[float]) -> Measurement:
    tokens = len(values) * ROWS * LENGTH
    return mean_of(
        name, values, unit="share", tokens=tokens, prompts=len(values), bounds=(-1.0, 1.0)
    )


def _entropy_gained(kind: str, seed: int, change: Change) -> list[float]:
    """Return what the most compressed block gains in matrix entropy by a change, a repeat."""
    unchanged = read_blocks(kind, seed, "nothing")
    block = int(np.argmin(np.mean([reading.entropy for reading in unchanged], 0)))
    changed = read_blocks(kind, seed, change)
    return [
        after.entropy[block] - before.entropy[block]
        for after, before in zip(changed, unchanged, strict=True)
    ]


def _sinks_gone(kind: str, seed: int, change: Change) -> list[float]:
    """Return the share of the attention sinks that a change removes, a repeat."""
    unchanged = read_blocks(kind, seed, "nothing")
    if not unchanged[0].sinks:
        raise BadInput(f"The attention of {lens_of(kind).name} cannot be watched.")
    changed = read_blocks(kind, seed, change)
    return [
        1 - float(np.mean(after.sinks)) / max(float(np.mean(before.sinks)), 1e-9)
        for after, before in zip(changed, unchanged, strict=True)
    ]


def _ablated(
    measure: Callable[[str, int, Change], list[float]], what: str
) -> Callable[[str, int], Observation]:
    def observe(kind: str, seed: int) -> Observation:
        unchanged = read_blocks(kind, seed, "nothing")
        largest = float(np.mean([reading.norm for reading in unchanged], 0).max())
        if largest < EXTREME:
            raise BadInput(
                f"The first token of {lens_of(kind).name} is at most {largest:.1f} times as long "
                "as the others."
            )
        values = measure(kind, seed, "sink")
        middle = measure(kind, seed, "another token")
        halves = (("first", values[::2]), ("second", values[1::2]))
        return Observation(
            values=[_number(f"{what}, {name} half of the texts", part) for name, part in halves],
            controls=[_number(f"{what}, a token in the middle held so", middle)],
        )

    return observe


def _middle_token(seed: int) -> Measurement:
    gained = _entropy_gained(DEFAULT_MODEL, seed, "another token")
    return _number("a token in the middle of gpt-vanilla held so", gained)


for _id, _measure in (("L3", _entropy_gained), ("L4", _sinks_gone)):
    enter_experiment(_id, _ablated(_measure, text_of(_id)["measured"].split(",")[0]), _middle_token)
