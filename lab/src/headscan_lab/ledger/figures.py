"""The figures of the documents, redrawn from runs of our own beside what was published."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

import headscan.ntp as ntp
from headscan.model.slicing import Slice
from headscan.run import Registry
from headscan_lab import theory
from headscan_lab.ledger.experiment import DocumentName
from headscan_lab.ledger.experiments.descents import Recovered
from headscan_lab.ledger.experiments.geometry import ShapeOfStates
from headscan_lab.ledger.experiments.words import CommonestWords
from headscan_lab.ledger.measurement import Measurement
from headscan_lab.ledger.proxies import lens_of, prompts
from headscan_lab.theory.checks import defined
from headscan_lab.theory.features import FeatureCheckpoint, train_features


@dataclass(frozen=True)
class Curve:
    """One line (or row of bars) of a figure.

    Attributes:
        at: where the values stand: numbers or names, as many as there are values.
    """

    name: str
    at: list[float] | list[str]
    values: list[float]


@dataclass(frozen=True, kw_only=True)
class RedrawnFigure:
    """A figure of a document from our own runs.

    Attributes:
        id, document, place, title: which figure it is.
        published: what the document shows there: its values, or its shape.
        across, up: what the axes are.
        log: the logarithmic axes: "", "x", "y" or "xy".
        curves: ours; none where the figure is not redrawn, and `why_not` says why.
    """

    id: str
    document: DocumentName
    place: str
    title: str
    published: str
    across: str = ""
    up: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    curves: list[Curve] = field(default_factory=list)
    why_not: str = ""


Maker: TypeAlias = Callable[[int], list[Curve]]
"""Makes the curves of a figure from a master seed."""


@dataclass(frozen=True)
class FigureMaker:
    """A figure, and the function that makes its curves; None: it is not redrawn."""

    shown: RedrawnFigure
    make: Maker | None


FIGURES: Registry[FigureMaker] = Registry("figure", "headscan_lab.ledger.figures")
"""The figures of all documents; plug-ins add their own by `figure`."""


def figure(shown: RedrawnFigure) -> Callable[[Maker], Maker]:
    """Decorate the function that makes a figure's curves, and enter the figure."""

    def enter(make: Maker) -> Maker:
        FIGURES.add(shown.id, FigureMaker(shown, make))
        return make

    return enter


def enter_without_curves(shown: RedrawnFigure) -> None:
    """Enter a figure that is not redrawn; its `why_not` says why."""
    FIGURES.add(shown.id, FigureMaker(shown, None))


def redraw(name: str, seed: int) -> RedrawnFigure:
    """Return a figure with its curves, made now."""
    maker = FIGURES[name]
    if maker.make is None:
        return maker.shown
    return replace(maker.shown, curves=maker.make(seed))


FEATURES = (2, 8, 32, 64, 96, 128)  # of the specimen's 128


@figure(
    RedrawnFigure(
        id="article-channel",
        document="article",
        place="Noise on a Discreet Channel",
        title="Tokens found by the features that are given",
        published="Llama-7b: all of 4,096 features down to 2,202, none with 2,201 or fewer.",
        across="features of 128",
        up="share of tokens found",
    )
)
def channel(seed: int) -> list[Curve]:
    """Return the shares that descent and search find from features of the first block."""
    outcomes = [Recovered(at=f"block.0[:, :, :{size}]").observe(seed) for size in FEATURES]
    sizes = [float(size) for size in FEATURES]
    return [
        Curve("published descent", sizes, _values([outcome.effect for outcome in outcomes])),
        Curve("search", sizes, _values([outcome.control for outcome in outcomes])),
    ]


def _values(measurements: Sequence[Measurement | None]) -> list[float]:
    return [measurement.value for measurement in measurements if measurement is not None]


for _name, _title in {
    "direct": "Direct input representation",
    "causal": "Causal attention",
}.items():
    enter_without_curves(
        RedrawnFigure(
            id=f"article-{_name}",
            document="article",
            place=_title,
            title=_title,
            published="A drawing of the method.",
            why_not="It shows no data.",
        )
    )


STEPS = 10_000
CurveValue: TypeAlias = Callable[[FeatureCheckpoint], float | None]


@lru_cache(maxsize=2)
def _checkpoints(seed: int) -> tuple[FeatureCheckpoint, ...]:
    """Return the course of gradient descent on unconstrained features, without its start.

    As in Figs. 3 and 4 of the paper, V = 10, with 95 contexts and 30 supports.
    """
    labels = theory.random_labels(10, 95, supports=30, seed=seed)
    run = train_features(labels, 10, STEPS, seed=seed, prediction=ntp.predict(labels))
    return tuple(checkpoint for checkpoint in run.records if checkpoint.step > 0)


def _enter_course(shown: RedrawnFigure, curves: dict[str, CurveValue]) -> None:
    """Enter a figure whose curves are numbers of the checkpoints, over the steps."""

    def make(seed: int) -> list[Curve]:
        checkpoints = _checkpoints(seed)
        steps = [float(checkpoint.step) for checkpoint in checkpoints]
        drawn = []
        for name, value in curves.items():
            drawn.append(Curve(name, steps, [defined(value(point)) for point in checkpoints]))
        return drawn

    FIGURES.add(shown.id, FigureMaker(shown, make))


def _sparse_distance(checkpoint: FeatureCheckpoint) -> float | None:
    return None if checkpoint.metrics is None else checkpoint.metrics.SC3


def _direction(checkpoint: FeatureCheckpoint) -> float | None:
    return None if checkpoint.metrics is None else checkpoint.metrics.direction


_enter_course(
    RedrawnFigure(
        id="paper-loss",
        document="paper",
        place="Figs. 2 (a) and 3",
        title="Distance of the loss from the entropy bound",
        published="CE - H falls to 1e-4.",
        across="step",
        up="CE - H (nats)",
        log="xy",
    ),
    {"gradient descent": lambda checkpoint: checkpoint.excess},
)
_enter_course(
    RedrawnFigure(
        id="paper-norms",
        document="paper",
        place="Fig. 2 (b)",
        title="Norms of words and contexts",
        published="‖W‖ grows as log k; ‖H‖ of a transformer flattens, since its last norm holds "
        "it.",
        across="step",
        up="norm",
        log="x",
    ),
    {
        "words W": lambda checkpoint: checkpoint.words,
        "contexts H": lambda checkpoint: checkpoint.contexts,
    },
)
_enter_course(
    RedrawnFigure(
        id="paper-sparse",
        document="paper",
        place="Fig. 2 (c)",
        title="Distance of the in-support part from the log-odds",
        published="It falls to 0.",
        across="step",
        up="relative distance",
        log="xy",
    ),
    {"gradient descent": _sparse_distance},
)
_enter_course(
    RedrawnFigure(
        id="paper-geometry",
        document="paper",
        place="Fig. 2 (d, e); Fig. 4",
        title="Nearness to the predicted geometry",
        published="All similarities rise towards 1; the patterns show early.",
        across="step",
        up="similarity",
        log="x",
    ),
    {
        "direction of the logits": _direction,
        "words": lambda checkpoint: checkpoint.pattern_words,
        "contexts": lambda checkpoint: checkpoint.pattern_contexts,
    },
)
enter_without_curves(
    RedrawnFigure(
        id="paper-tinystories",
        document="paper",
        place="Fig. 1; TinyStories heat maps",
        title="Contexts of ten supports on TinyStories",
        published="Blocks of equal supports are bright after training.",
        why_not="The text is not shipped; the benchmark "
        "a_transformer_on_tinystories_turns_towards_the_prediction does it.",
    )
)


@figure(
    RedrawnFigure(
        id="slides-svd",
        document="slides",
        place="Singular Value Decomposition: expectation, reality",
        title="Singular values of the last states",
        published="Expected: an even spread. Reality: a few directions carry all.",
        across="direction",
        up="singular value over the largest",
        log="y",
    )
)
def spectrum(seed: int) -> list[Curve]:
    """Return the spectrum of the specimen's last states, and of as many normal vectors."""
    ids = prompts("specimen", seed, 16, 32)
    final_norm = Slice(sites=("final_norm",)).on(lens_of("specimen"))
    states = final_norm.states(ids).flatten(0, 1)
    normal_vectors = np.random.default_rng(seed).normal(size=tuple(states.shape))
    spectra = {
        "gpt-vanilla": np.linalg.svd(states.double().numpy())[1],
        "normal vectors": np.linalg.svd(normal_vectors)[1],
    }
    directions = [float(number + 1) for number in range(states.shape[1])]
    return [
        Curve(name, directions, (values / values[0]).tolist()) for name, values in spectra.items()
    ]


@figure(
    RedrawnFigure(
        id="slides-cosine",
        document="slides",
        place="Average cosine-similarity",
        title="Average cosine-similarity",
        published="BERT .4, GPT-2 .97; a headless model's is low.",
        across="model",
        up="average cosine",
    )
)
def cosines(seed: int) -> list[Curve]:
    """Return the average cosine of the specimen, and of small models with and without a head."""
    kinds = ("specimen", "taught", "headless")
    effects = [ShapeOfStates(model=kind).observe(seed).effect for kind in kinds]
    return [Curve("last states", list(kinds), _values(effects))]


@figure(
    RedrawnFigure(
        id="slides-zipf",
        document="slides",
        place="Zipf's law and limitations",
        title="Shares of the commonest words",
        published="the 5 %, of 3 %, and 2 %.",
        across="rank",
        up="share of words",
        log="xy",
    )
)
def zipf(seed: int) -> list[Curve]:
    """Return the shares of the three commonest words of a text, and the published ones."""
    outcome = CommonestWords().observe(seed)
    ranks = [1.0, 2.0, 3.0]
    return [
        Curve("stories", ranks, _values([outcome.effect, *outcome.beside])),
        Curve("published", ranks, [0.05, 0.03, 0.02]),
    ]


enter_without_curves(
    RedrawnFigure(
        id="slides-cost",
        document="slides",
        place="Faster and more memory-friendly",
        title="What a head costs by vocabulary",
        published="BERT-small: 2 times the time at V = 20,000, 3.5 at 200,000.",
        why_not="Whole steps by vocabulary: "
        "benchmarks/headless_step_of_a_small_bert_is_cheaper.py.",
    )
)
for _name, _title in {
    "bert": "English BERT",
    "gpt": "English GPT",
    "multilingual": "Multilingual BERT-small",
}.items():
    enter_without_curves(
        RedrawnFigure(
            id=f"slides-{_name}",
            document="slides",
            place=_title,
            title=_title,
            published="The headless model is ahead of the one with a head at every time of "
            "training.",
            why_not="It takes days of several GPUs; `headscan tournament` draws the same curves "
            "at the size that is asked.",
        )
    )
