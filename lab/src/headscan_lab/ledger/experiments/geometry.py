"""Claims about the shape of last states: cosines, spectra, uniformity, alignment with words."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from headscan.measures.cone import average_cosine, top_direction_share
from headscan.measures.sphere import uniformity
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import BadInput, Interval
from headscan_lab.ledger.experiment import (
    EXPERIMENTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    StandIn,
)
from headscan_lab.ledger.measurement import SEEDS, Measurement, mean_of, repeat_seeds
from headscan_lab.ledger.named_models import RANDOM_TWIN
from headscan_lab.ledger.proxies import ABOUT, about, lens_of, prompts

Numbers = npt.NDArray[np.float64]
ROWS = 12  # texts of a repeat
LENGTH = 32  # tokens of a text
SAMPLE_PROMPTS = SEEDS * ROWS
SAMPLE_TOKENS = SEEDS * ROWS * (LENGTH - 1)
UNBOUNDED = (-np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class _Sample:
    """States [n, d] that precede targets [n], and the embeddings [V, d] of the words."""

    states: Numbers
    embeddings: Tensor
    targets: npt.NDArray[np.int64]

    @property
    def table(self) -> Numbers:
        """Return the embeddings in float64, made anew: a large table is not held."""
        return self.embeddings.detach().double().numpy()


def _average_cosine(sample: _Sample) -> float:
    return float(average_cosine(sample.states) or 0.0)


def _uniformity(sample: _Sample) -> float:
    return float(uniformity(sample.states) or 0.0)


def _top_share_over_gaussian(sample: _Sample) -> float:
    """Return the share of the first direction over that of normal vectors (five draws)."""
    shares = []
    for seed in range(5):
        vectors = np.random.default_rng(seed).standard_normal(sample.states.shape)
        shares.append(float(top_direction_share(vectors) or 0.0))
    return float(top_direction_share(sample.states) or 0.0) / float(np.mean(shares))


def _target_cosine(sample: _Sample) -> float:
    """Return the mean cosine of a state with the embedding of the token that follows."""
    states = sample.states
    embeddings = sample.table[sample.targets]
    norms = np.linalg.norm(states, axis=1) * np.linalg.norm(embeddings, axis=1)
    return float(((states * embeddings).sum(1) / norms).mean())


def _words_pushed_away(sample: _Sample) -> float:
    return _share_pushed_away(sample.states, sample.table)


def _share_pushed_away(states: Numbers, table: Numbers) -> float:
    """Return the share of rows with which more than half of the states have a negative product."""
    return float(((table @ states.T < 0).mean(1) > 0.5).mean())


PUSHED_AWAY = "share of words pushed away by most states"
RANDOM_HEAD = f"{PUSHED_AWAY}, of a random head"
MEASURES: dict[str, Callable[[_Sample], float]] = {
    "average cosine": _average_cosine,
    "share of energy on the first direction over that of a Gaussian cloud": (
        _top_share_over_gaussian
    ),
    "uniformity": _uniformity,
    "cosine with the next token's embedding": _target_cosine,
    PUSHED_AWAY: _words_pushed_away,
}


@dataclass(frozen=True)
class _Control:
    """A second difference of two models, in words, and the cause that it would show."""

    models: tuple[str, str]
    where: str
    cause: str


@EXPERIMENTS.register("shape")
class ShapeOfStates(Experiment):
    """A measure of the states after the final norm, of five texts or of five trainings.

    With `less`, the same measure of another proxy on the same texts is subtracted, seed by seed.
    `control` names what the effect is compared with: the same difference on the language without
    Zipf's law (`flat`), the difference from a tied head (`tied`) or from one whose bias starts at
    the log frequencies (`bias`), or the measure less that of a random head on the same states
    (`random head`).
    """

    controlled = True
    words = ExperimentWords(
        quantity="the measure named by the effect, a seed",
        test="interval of the mean over five seeds (pieces of text, or trainings)",
        scope="the stand-in at the size it has",
        range=(-4.0, 4.0),
    )

    measure: str = "average cosine"
    model: str = "specimen"
    less: str | None = None
    control: Literal["", "flat", "tied", "bias", "random head"] = ""

    def on(self, model: str) -> Self | None:
        general = self.model == "specimen" and self.less is None
        if not general or model.startswith(RANDOM_TWIN):
            return None
        return replace(self, model=model)

    def stand_ins(self) -> tuple[StandIn, ...]:
        return tuple(about(kind) for kind in self._kinds())

    def observe(self, seed: int) -> ExperimentOutcome:
        by_measure = measures_by_seed(self.model, seed)
        if self.measure not in by_measure:
            raise BadInput(f"{lens_of(self.model).name} has no head, of whose words this is.")
        name = f"{self.measure} of {_name_of(self.model)}"
        values = by_measure[self.measure]
        if self.less is not None:
            name = f"{name} less {self.less}"
            values = _differences(values, measures_by_seed(self.less, seed)[self.measure])
        control, cause = self._controlled(seed)
        return ExperimentOutcome(
            effect=self._number(name, values, self._bounds()),
            control=control,
            cause=cause,
            beside=self._each_model(seed),
            models=tuple(
                dict.fromkeys(
                    lens_of(kind, repeat_seed).name
                    for kind in self._kinds()
                    for repeat_seed in repeat_seeds(seed)
                )
            ),
        )

    def _kinds(self) -> tuple[str, ...]:
        return (self.model,) if self.less is None else (self.model, self.less)

    def _number(self, name: str, values: list[float], bounds: Interval = UNBOUNDED) -> Measurement:
        return mean_of(
            name,
            values,
            unit=self.measure,
            tokens=SAMPLE_TOKENS,
            prompts=SAMPLE_PROMPTS,
            bounds=bounds,
        )

    def _bounds(self) -> Interval:
        """Return the bounds of the effect."""
        if self.less is not None:
            return UNBOUNDED
        if self.measure.startswith("share of words"):
            return (0.0, 1.0)
        return (-1.0, 1.0) if "cosine" in self.measure else UNBOUNDED

    def _each_model(self, seed: int) -> tuple[Measurement, ...]:
        """Return the measure of each model behind a difference, and of models with other heads."""
        if self.less is None:
            return ()
        kinds = [self.model, self.less]
        if "zipf" in kinds:
            kinds += ["zipf-tied", "zipf-bias"]
        return tuple(
            self._number(f"{self.measure} of {kind}", measures_by_seed(kind, seed)[self.measure])
            for kind in kinds
        )

    def _controlled(self, seed: int) -> tuple[Measurement | None, str]:
        """Return the control, and the cause that it would show."""
        if not self.control:
            return None, ""
        if self.control == "random head":
            by_measure = measures_by_seed(self.model, seed)
            values = _differences(by_measure[self.measure], by_measure[RANDOM_HEAD])
            name = "the same less that of a random head"
            return self._number(name, values), "a random head does it as well"
        control = self._control_pair()
        first, second = (measures_by_seed(kind, seed)[self.measure] for kind in control.models)
        name = f"the difference {control.where}"
        return self._number(name, _differences(first, second)), control.cause

    def _control_pair(self) -> _Control:
        """Return the two models whose difference is the control."""
        if self.control == "flat":
            first = "headless" if self.model == "zipf-headless" else "taught"
            second = "taught" if self.less == "zipf" else "headless"
            return _Control(
                (first, second), "without Zipf's law", "it is so without Zipf's law as well"
            )
        if self.control == "tied":
            return _Control(
                (self.model, "zipf-tied"), "against a tied head", "tying the head alone does it"
            )
        return _Control(
            (self.model, "zipf-bias"),
            "against a head whose bias starts at the log frequencies",
            "it goes with a head, too, where a bias holds the frequencies",
        )


def _differences(first: list[float], second: list[float]) -> list[float]:
    return [value - subtracted for value, subtracted in zip(first, second, strict=True)]


def _name_of(kind: str) -> str:
    return kind if kind in ABOUT else lens_of(kind).name


@cache
def measures_by_seed(kind: str, seed: int) -> dict[str, list[float]]:
    """Return every measure, a number a seed, from one pass for them all.

    A model without a head has none of its words.
    """
    by_measure: dict[str, list[float]] = {name: [] for name in (*MEASURES, RANDOM_HEAD)}
    for repeat_seed in repeat_seeds(seed):
        lens = lens_of(kind, repeat_seed)
        sample = _sample(lens, kind, repeat_seed)
        for name, measure in MEASURES.items():
            if name == PUSHED_AWAY and not kind.endswith("headless"):
                head = lens.model.get_output_embeddings()
                if head is None:
                    by_measure.pop(name, None)
                    continue
                by_measure[name].append(measure(replace(sample, embeddings=head.weight)))
            else:
                by_measure[name].append(measure(sample))
        size = (lens.input_embeddings.shape[0], sample.states.shape[1])
        random_table = np.random.default_rng(repeat_seed).standard_normal(size)
        by_measure[RANDOM_HEAD].append(_share_pushed_away(sample.states, random_table))
    return by_measure


def _sample(lens: Lens, kind: str, seed: int) -> _Sample:
    """Return the last states of a repeat's texts, with the table of input embeddings."""
    ids = prompts(kind, seed, ROWS, LENGTH)
    states = Slice(sites=(lens.default_sites[-1],)).on(lens).states(ids)
    return _Sample(
        states=states[:, :-1].flatten(0, 1).double().numpy(),
        embeddings=lens.input_embeddings,
        targets=ids[:, 1:].flatten().numpy(),
    )
