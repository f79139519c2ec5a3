"""Massive activations at the first token, set aside at the output of every block: what goes with
them (arXiv:2510.06477).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headscan.measures.attention import head_rows, watched
from headscan.model import Lens
from headscan.run import BadInput
from headscan_lab.ledger.experiment import EXPERIMENTS, ExperimentOutcome, ExperimentWords
from headscan_lab.ledger.experiments.later import LENGTH, ROWS, OnTexts, together
from headscan_lab.ledger.measurement import own_seeds
from headscan_lab.ledger.stand_ins import lens_of, prompts

# Sun et al. 2024 (arXiv:2402.17762): above 100, and a thousand times the median magnitude
MASSIVE = 100.0
OVER_MEDIAN = 1000.0
EXTREME = 10.0  # below so many times the other tokens' norm a first token is not called extreme
# a head attends to the first token where that has so much of its attention (arXiv:2410.10781)
SINK = 0.3

Aside = Literal["nothing", "sink", "another token", "coordinates", "mean"]


def _as_long_as_others(states: Tensor, position: int) -> Tensor:
    """A token's vector shortened to the median norm of the tokens of its text."""
    norms = states.norm(dim=-1)
    factor = (norms.median(dim=1).values / norms[:, position]).clamp(max=1.0)
    changed = states.clone()
    changed[:, position] *= factor[:, None]
    return changed


def _without_massive(states: Tensor) -> Tensor:
    """Massive coordinates of the first token, at their mean over the other tokens."""
    size = states[:, :1].abs()
    massive = (size > MASSIVE) & (
        size > OVER_MEDIAN * states.abs().flatten(1).median(dim=1).values[:, None, None]
    )
    return torch.cat(
        [torch.where(massive, states[:, 1:].mean(1, keepdim=True), states[:, :1]), states[:, 1:]], 1
    )


CHANGES: dict[Aside, Callable[[Tensor], Tensor]] = {
    "sink": lambda states: _as_long_as_others(states, 0),
    "another token": lambda states: _as_long_as_others(states, LENGTH // 2),
    "coordinates": _without_massive,
    "mean": lambda states: states - states[:, 1:].mean((0, 1)),
}


@contextmanager
def set_aside(lens: Lens, aside: Aside) -> Iterator[None]:
    """A context in which every block hands on its output so changed."""

    def after(_: torch.nn.Module, __: Any, output: Any) -> Any:
        changed = CHANGES[aside](output[0] if isinstance(output, tuple) else output)
        return (changed, *output[1:]) if isinstance(output, tuple) else changed

    with ExitStack() as hooks:
        for site in () if aside == "nothing" else lens.match("block.*"):
            # First of all hooks, so that whoever reads the site sees the changed states.
            hooks.callback(lens.tap(site).module.register_forward_hook(after, prepend=True).remove)
        yield


@dataclass(frozen=True)
class ByBlock:
    """Of one repeat, by block: matrix entropy over its most (0 to 1), the first token's norm over
    the median of its text, the share of heads that attend to it; the loss in nats (None without a
    head).
    """

    entropy: list[float]
    norm: list[float]
    sinks: list[float]
    loss: float | None


def matrix_entropy(states: Tensor) -> float:
    """Entropy of the eigenvalues of Z Zᵀ over its trace, over log min(T, d), of Z [T, d]: 0 for one
    direction, 1 for even ones.

    >>> round(matrix_entropy(torch.eye(4, 6)), 6), round(matrix_entropy(torch.ones(4, 6)), 6)
    (1.0, 0.0)
    """
    shares = torch.linalg.svdvals(states.double()).square()
    shares = shares[shares > 0] / shares.sum()
    return float(-(shares * shares.log()).sum() / np.log(min(states.shape)))


@cache
def by_block(kind: str, seed: int, aside: Aside, times: int = 1) -> list[ByBlock]:
    """Each repeat of a master seed; one forward pass for the states and the loss, one for the
    attention.
    """
    lens = lens_of(kind)
    sites = lens.match("block.*")
    head = ("head",) if "head" in lens.sites else ()
    rows = []
    for own in own_seeds(seed, times):
        ids = prompts(kind, own, ROWS, LENGTH)
        with set_aside(lens, aside), torch.no_grad():
            seen = lens.run(ids, sites=(*sites, *head))
            try:
                heads = head_rows(watched(lens, [ids])[0])
            except BadInput:  # its attention cannot be watched
                heads = []
        shares: dict[object, list[float]] = {}  # rows stand in the order of the layers
        for row in heads:
            shares.setdefault(row["site"], []).append(float(row["first_share"] or 0.0))  # type: ignore[arg-type]
        norms = [seen[site].norm(dim=-1) for site in sites]
        loss = (
            F.cross_entropy(seen["head"][:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
            if head
            else None
        )
        rows.append(
            ByBlock(
                entropy=[
                    float(np.mean([matrix_entropy(text) for text in seen[site]])) for site in sites
                ],
                norm=[float((norm[:, 0] / norm.median(dim=1).values).median()) for norm in norms],
                sinks=[float(np.mean([share > SINK for share in one])) for one in shares.values()],
                loss=None if loss is None else float(loss),
            )
        )
    return rows


@EXPERIMENTS.register("massive-activations")
class MassiveActivations(OnTexts):
    """`together`: the first token's norm and compression by block. `valley`, `sinks`: what the most
    compressed block gains in entropy, and the share of the sinks that goes, when the first token is
    held to the norm of the others in every block; the control does the same to a token in the
    middle. Massive coordinates and the mean are set aside beside it, with the loss.
    """

    controlled = True
    words = ExperimentWords(
        quantity="rank correlation over blocks; gain of matrix entropy (share of its most); share "
        "of the sinks that goes",
        test="interval of the mean over five repeats of four texts",
        scope="this model, windows of 48 tokens of stories, first token included",
        range=(-1.0, 1.0),
    )

    measure: Literal["together", "valley", "sinks"] = "together"

    def observe(self, seed: int) -> ExperimentOutcome:
        before = by_block(self.model, seed, "nothing", self.times)
        norms = np.mean([one.norm for one in before], 0)
        if norms.max() < EXTREME:
            note = (
                f"The first token of {lens_of(self.model).name} is at most {norms.max():.1f} "
                "times as long as the others."
            )
            return ExperimentOutcome(effect=None, note=note)
        if self.measure == "together":
            values = [together(one.norm, [-value for value in one.entropy]) for one in before]
            sinks = [together(one.norm, one.sinks) for one in before if one.sinks]
            name = "the first token's norm with attention to it, over blocks"
            return self.outcome(
                "the first token's norm with compression, over blocks",
                values,
                "rank correlation",
                beside=(self.number(name, sinks, "rank correlation"),) if sinks else (),
            )
        if self.measure == "sinks" and not before[0].sinks:
            return ExperimentOutcome(
                effect=None, note=f"The attention of {lens_of(self.model).name} cannot be watched."
            )
        valley = int(np.argmin(np.mean([one.entropy for one in before], 0)))

        def change(aside: Aside) -> list[float]:
            after = by_block(self.model, seed, aside, self.times)
            if self.measure == "valley":
                return [
                    now.entropy[valley] - then.entropy[valley]
                    for now, then in zip(after, before, strict=True)
                ]
            return [
                1 - float(np.mean(now.sinks)) / max(float(np.mean(then.sinks)), 1e-9)
                for now, then in zip(after, before, strict=True)
            ]

        unit = (
            "share of the most entropy"
            if self.measure == "valley"
            else "share of the heads that attended to the first token"
        )
        what = f"entropy gained at block {valley}" if self.measure == "valley" else "sinks gone"
        beside = [
            self.number(f"{what}, {one} set aside", change(one), unit)
            for one in ("coordinates", "mean")
        ]
        for one in ("sink", "coordinates", "mean"):
            lost = [
                now.loss - then.loss
                for now, then in zip(
                    by_block(self.model, seed, one, self.times), before, strict=True
                )
                if now.loss is not None and then.loss is not None
            ]
            if lost:
                beside.append(
                    self.number(
                        f"loss with the {one} set aside less the loss without", lost, "nats a token"
                    )
                )
        return self.outcome(
            f"{what}, the first token held to the others' norm",
            change("sink"),
            unit,
            beside=tuple(beside),
            control=self.number(
                f"{what}, a token in the middle so held", change("another token"), unit
            ),
            cause="any token so held does as much",
        )
