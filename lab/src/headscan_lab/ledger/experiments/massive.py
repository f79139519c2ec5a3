"""Claims about massive activations at the first token (arXiv:2510.06477).

The first token is changed at the output of every block, and what goes with it is measured.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
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
from headscan_lab.ledger.experiment import EXPERIMENTS, ExperimentOutcome, ExperimentWords
from headscan_lab.ledger.experiments.on_texts import LENGTH, ROWS, OnTexts, rank_correlation
from headscan_lab.ledger.measurement import Measurement, repeat_seeds
from headscan_lab.ledger.proxies import lens_of, prompts

# Sun et al. 2024 (arXiv:2402.17762): above 100, and a thousand times the median magnitude.
MASSIVE = 100.0
OVER_MEDIAN = 1000.0
EXTREME = 10.0  # a first token is called extreme from this multiple of the other tokens' norm on
SINK = 0.3  # share of a head's attention from which on it attends to the first token (2410.10781)

Change = Literal["nothing", "sink", "another token", "coordinates", "mean"]
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


def _replace_massive_coordinates(states: Tensor) -> Tensor:
    """Return the states with the first token's massive coordinates at the other tokens' mean."""
    first = states[:, :1]
    other_tokens = states[:, 1:]
    magnitudes = first.abs()
    medians = states.abs().flatten(1).median(dim=1).values[:, None, None]
    massive = (magnitudes > MASSIVE) & (magnitudes > OVER_MEDIAN * medians)
    replaced = torch.where(massive, other_tokens.mean(1, keepdim=True), first)
    return torch.cat([replaced, other_tokens], 1)


def _subtract_mean(states: Tensor) -> Tensor:
    return states - states[:, 1:].mean((0, 1))


CHANGES: dict[Change, Callable[[Tensor], Tensor]] = {
    "sink": _shorten_first_token,
    "another token": _shorten_middle_token,
    "coordinates": _replace_massive_coordinates,
    "mean": _subtract_mean,
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
def read_blocks(kind: str, seed: int, change: Change, times: int = 1) -> list[BlockReadings]:
    """Return the readings of each repeat of a master seed.

    A repeat takes one forward pass for the states and the loss, and one for the attention.
    """
    lens = lens_of(kind)
    readings = []
    for repeat_seed in repeat_seeds(seed, times):
        ids = prompts(kind, repeat_seed, ROWS, LENGTH)
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


@dataclass(frozen=True)
class _Effect:
    """An effect of changed blocks: its name, its unit, and the number of a repeat."""

    name: str
    unit: str
    measure: Callable[[BlockReadings, BlockReadings], float]  # of the changed and unchanged model


@EXPERIMENTS.register("massive-activations")
class MassiveActivations(OnTexts):
    """The first token's massive activation, and what goes with it.

    `together` correlates the first token's norm with compression, over blocks. `valley` and `sinks`
    hold the first token to the norm of the others in every block: they measure what the most
    compressed block gains in entropy, and the share of the attention sinks that disappears. The
    control does the same to a token in the middle. Massive coordinates and the mean vector are
    removed beside it, with the loss.
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
        unchanged = self._readings(seed, "nothing")
        largest_norm = np.mean([reading.norm for reading in unchanged], 0).max()
        if largest_norm < EXTREME:
            note = (
                f"The first token of {lens_of(self.model).name} is at most {largest_norm:.1f} "
                "times as long as the others."
            )
            return ExperimentOutcome(effect=None, note=note)
        if self.measure == "together":
            return self._norm_and_compression(unchanged)
        if self.measure == "valley":
            mean_entropy = np.mean([reading.entropy for reading in unchanged], 0)
            return self._changed(seed, unchanged, _entropy_gain(int(np.argmin(mean_entropy))))
        if not unchanged[0].sinks:
            note = f"The attention of {lens_of(self.model).name} cannot be watched."
            return ExperimentOutcome(effect=None, note=note)
        return self._changed(seed, unchanged, _SINKS_GONE)

    def _readings(self, seed: int, change: Change) -> list[BlockReadings]:
        return read_blocks(self.model, seed, change, self.times)

    def _norm_and_compression(self, readings: Sequence[BlockReadings]) -> ExperimentOutcome:
        """Correlate the first token's norm with compression and with attention to it, by block."""
        unit = "rank correlation"
        with_compression = []
        with_attention = []
        for reading in readings:
            compression = [-entropy for entropy in reading.entropy]
            with_compression.append(rank_correlation(reading.norm, compression))
            if reading.sinks:
                with_attention.append(rank_correlation(reading.norm, reading.sinks))
        beside = []
        if with_attention:
            name = "the first token's norm with attention to it, over blocks"
            beside.append(self.number(name, with_attention, unit))
        name = "the first token's norm with compression, over blocks"
        return self.outcome(name, with_compression, unit, beside=tuple(beside))

    def _changed(
        self, seed: int, unchanged: Sequence[BlockReadings], effect: _Effect
    ) -> ExperimentOutcome:
        """Return the effect of holding the first token to the others' norm, and its control."""

        def numbers(change: Change) -> list[float]:
            pairs = zip(self._readings(seed, change), unchanged, strict=True)
            return [effect.measure(changed, original) for changed, original in pairs]

        beside = [
            self.number(
                f"{effect.name}, coordinates set aside", numbers("coordinates"), effect.unit
            ),
            self.number(f"{effect.name}, mean set aside", numbers("mean"), effect.unit),
        ]
        beside += self._losses(seed, unchanged)
        control = self.number(
            f"{effect.name}, a token in the middle so held", numbers("another token"), effect.unit
        )
        return self.outcome(
            f"{effect.name}, the first token held to the others' norm",
            numbers("sink"),
            effect.unit,
            beside=tuple(beside),
            control=control,
            cause="any token so held does as much",
        )

    def _losses(self, seed: int, unchanged: Sequence[BlockReadings]) -> list[Measurement]:
        """Return what each change costs in loss; nothing for a model without a head."""
        changes: tuple[Change, ...] = ("sink", "coordinates", "mean")
        measurements = []
        for change in changes:
            costs = [
                changed.loss - original.loss
                for changed, original in zip(self._readings(seed, change), unchanged, strict=True)
                if changed.loss is not None and original.loss is not None
            ]
            if costs:
                name = f"loss with the {change} set aside less the loss without"
                measurements.append(self.number(name, costs, "nats a token"))
        return measurements


def _entropy_gain(block: int) -> _Effect:
    def gain(changed: BlockReadings, original: BlockReadings) -> float:
        return changed.entropy[block] - original.entropy[block]

    return _Effect(f"entropy gained at block {block}", "share of the most entropy", gain)


def _share_of_sinks_gone(changed: BlockReadings, original: BlockReadings) -> float:
    original_share = float(np.mean(original.sinks))
    return 1 - float(np.mean(changed.sinks)) / max(original_share, 1e-9)


_SINKS_GONE = _Effect(
    "sinks gone", "share of the heads that attended to the first token", _share_of_sinks_gone
)
