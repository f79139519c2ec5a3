"""The shape of the last states of a stand-in, or of one stand-in less another's: cosines, spectra, uniformity, alignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from headscan.claims.experiment import EXPERIMENTS, SEEDS, Experiment, ExperimentOutcome, ExperimentWords, own_seeds
from headscan.claims.measurement import mean_of
from headscan.claims.protocol import StandIn
from headscan.claims.stand_ins import ABOUT, ModelKind, about, lens_of, prompts
from headscan.geometry import average_cosine, top_direction_share
from headscan.geometry.uniformity import uniformity
from headscan.model.slicing import Slice
from headscan.run import BadInput

__all__ = ["ShapeOfStates"]

Numbers = npt.NDArray[np.float64]
ROWS, LENGTH = 12, 32


def _target_cosine(states: Numbers, table: Numbers, targets: npt.NDArray[np.int64]) -> float:
    """Mean cosine of a state with the input embedding of the token that follows."""
    own = table[targets]
    return float(((states * own).sum(1) / (np.linalg.norm(states, axis=1) * np.linalg.norm(own, axis=1))).mean())


def _pushed_away(states: Numbers, table: Numbers, targets: npt.NDArray[np.int64]) -> float:
    """Share of the vocabulary whose rows have a negative product with more than half of the states."""
    return float(((table @ states.T < 0).mean(1) > 0.5).mean())


MEASURES: dict[str, Callable[[Numbers, Numbers, npt.NDArray[np.int64]], float]] = {
    "average cosine": lambda states, table, targets: float(average_cosine(states) or 0.0),
    "share of energy on the first direction": lambda states, table, targets: float(top_direction_share(states) or 0.0),
    "uniformity": lambda states, table, targets: float(uniformity(states) or 0.0),
    "cosine with the next token's embedding": _target_cosine,
    "share of words pushed away by most states": _pushed_away,
}
Shown = Literal[
    "average cosine", "share of energy on the first direction", "uniformity", "cosine with the next token's embedding",
    "share of words pushed away by most states",
]  # fmt: skip


@EXPERIMENTS.register("shape")
@dataclass(frozen=True, kw_only=True)
class ShapeOfStates(Experiment):
    """A measure of the states after the final norm of five texts (`specimen`) or five trainings (`taught`, `headless`); with
    `less`, seed by seed less that of another stand-in on the same texts.
    """

    words: ClassVar[ExperimentWords] = ExperimentWords(
        quantity="the measure named by the effect, a seed",
        test="Student's interval over five seeds (pieces of text, or trainings)",
        scope="the stand-in at the size it has",
        range=(-4.0, 4.0),
    )

    measure: Shown = "average cosine"
    model: str = "specimen"
    less: ModelKind | None = None

    def on(self, model: str) -> Self | None:
        """Where a trained one is examined alone."""
        return replace(self, model=model) if (self.model, self.less) == ("specimen", None) else None

    def stand_ins(self) -> tuple[StandIn, ...]:
        """One model, or both."""
        return (about(self.model),) if self.less is None else (about(self.model), about(self.less))

    def observe(self, seed: int) -> ExperimentOutcome:
        """See the class."""
        if self.measure not in _by_seed(self.model, seed):
            raise BadInput(f"{lens_of(self.model).name} has no head, of whose words this is.")
        mine = _by_seed(self.model, seed)[self.measure]
        others = [0.0] * SEEDS if self.less is None else _by_seed(self.less, seed)[self.measure]
        tokens, name = SEEDS * ROWS * (LENGTH - 1), f"{self.measure} of {_named(self.model)}"
        apart = [one - other for one, other in zip(mine, others, strict=True)]
        said = name if self.less is None else f"{name} less {self.less}"
        return ExperimentOutcome(
            effect=mean_of(said, apart, unit=self.measure, tokens=tokens, prompts=SEEDS * ROWS),
            beside=() if self.less is None else tuple(
                mean_of(f"{self.measure} of {kind}", values, unit=self.measure, tokens=tokens, prompts=SEEDS * ROWS)
                for kind, values in ((self.model, mine), (self.less, others))
            ),
            models=tuple(dict.fromkeys(
                lens_of(kind, own).name for kind in (self.model, self.less) if kind for own in own_seeds(seed)
            )),
        )  # fmt: skip


def _named(kind: str) -> str:
    return kind if kind in ABOUT else lens_of(kind).name


@cache
def _by_seed(kind: str, seed: int) -> dict[str, list[float]]:
    """Every measure, a number a seed: one pass serves them all. Without a head there is nothing of words."""
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    for own in own_seeds(seed):
        lens = lens_of(kind, own)
        ids = prompts(kind, own, ROWS, LENGTH)
        states = Slice(sites=(lens.default_sites[-1],)).on(lens).states(ids)[:, :-1].flatten(0, 1).double().numpy()
        targets = ids[:, 1:].flatten().numpy()
        for name, measure in MEASURES.items():
            words = kind != "headless" and name.startswith("share of words")
            head = lens.model.get_output_embeddings() if words else None
            if words and head is None:
                found.pop(name, None)
                continue
            table = lens.input_embeddings if head is None else head.weight
            found[name].append(measure(states, table.detach().double().numpy(), targets))
    return found
