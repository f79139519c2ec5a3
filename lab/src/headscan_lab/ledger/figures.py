"""The figures of the documents, redrawn from runs of our own beside what was published."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from headscan.run import Registry
from headscan_lab.ledger.experiments.codebook import FEWER_CODES, codes, told_apart
from headscan_lab.ledger.experiments.counting import (
    BATCHES,
    rank_shares,
    step_bytes,
    story_labels,
    words_of,
)
from headscan_lab.ledger.experiments.pretraining import STEPS, reading
from headscan_lab.ledger.experiments.shape import mean_cosine, states_of
from headscan_lab.ledger.experiments.story_geometry import (
    TransformerPoint,
    transformer_course,
)
from headscan_lab.ledger.models import DEFAULT_MODEL, lens_of
from headscan_lab.ledger.statement import DocumentName


@dataclass(frozen=True)
class Curve:
    """One line (or row of bars, or row of a heat map) of a figure.

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
        heat: whether the curves are the rows of a heat map.
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
    heat: bool = False
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
"""The figures of all documents; plug-ins add their own by `enter_figure`."""


def enter_figure(shown: RedrawnFigure, make: Maker | None = None) -> None:
    """Enter a figure; without a function that makes it, its `why_not` says why."""
    FIGURES.add(shown.id, FigureMaker(shown, make))


def redraw(name: str, seed: int) -> RedrawnFigure:
    """Return a figure with its curves, made now."""
    maker = FIGURES[name]
    if maker.make is None:
        return maker.shown
    return replace(maker.shown, curves=maker.make(seed))


def _spectra(seed: int) -> list[Curve]:
    states = np.concatenate([repeat["last state"] for repeat in states_of(DEFAULT_MODEL, seed)])
    rows = states.reshape(-1, states.shape[-1])
    normal_vectors = np.random.default_rng(seed).normal(size=rows.shape)
    curves = []
    for name, matrix in ((DEFAULT_MODEL, rows), ("normal vectors", normal_vectors)):
        values = np.linalg.svd(matrix, compute_uv=False)
        directions = [float(index + 1) for index in range(len(values))]
        curves.append(Curve(name, directions, (values / values[0]).tolist()))
    return curves


def _cosines(seed: int) -> list[Curve]:
    """Return the average cosine over training with Zipf's law, with a head and without."""
    curves = []
    for kind, name in (("zipf", "with a head"), ("zipf-headless", "headless")):
        values = [reading(kind, seed, steps)["average cosine"] for steps in STEPS]
        curves.append(Curve(name, [float(steps) for steps in STEPS], values))
    return curves


def _common_words(seed: int) -> list[Curve]:
    ranks = [1.0, 2.0, 3.0]
    curves = []
    for text in ("stories", "reference"):
        words = words_of(text)
        shares = [float(np.mean(rank_shares(words, seed, int(rank)))) for rank in ranks]
        curves.append(Curve(f"words of the {text}", ranks, shares))
    return [*curves, Curve("published", ranks, [0.05, 0.03, 0.02])]


def _memory(_seed: int) -> list[Curve]:
    batches = [float(batch) for batch in BATCHES]
    curves = []
    for head, name in (("all", "with a head"), ("none", "headless")):
        values = [step_bytes(head, batch) / 2**30 for batch in BATCHES]
        curves.append(Curve(name, batches, values))
    return curves


def _text_cosines(_seed: int) -> list[Curve]:
    curves = []
    for place in ("first block", "middle block", "last block", "last state"):
        values = []
        for kind in ("gpt-vanilla", "gpt-headless"):
            values.append(mean_cosine(kind, 0, place))
        curves.append(Curve(place, ["with a head", "headless"], values))
    return curves


LOGARITHMIC: dict[str, Literal["x", "y", "xy"]] = {"svd": "y", "zipf": "xy", "memory": "xy"}
"""The logarithmic axes of figures of the slides."""

for _id, _place, _title, _published, _across, _up, _make in (
    (
        "svd",
        "Singular Value Decomposition: expectation, reality",
        "Singular values of the last states",
        "Expected: an even spread. Reality: a few directions carry all.",
        "direction",
        "singular value over the largest",
        _spectra,
    ),
    (
        "cosine",
        "Average cosine-similarity",
        "Average cosine of two small Llamas, trained on one seed of a language with Zipf's law",
        "BERT 0.4, GPT-2 0.97.",
        "steps of training",
        "average cosine",
        _cosines,
    ),
    (
        "closing",
        "Average cosine-similarity (closing figure)",
        "Average cosine of the shipped GPTs on stories, by layer",
        "The headless models are far below BERT and GPT.",
        "model",
        "average cosine",
        _text_cosines,
    ),
    (
        "zipf",
        "Zipf's law and limitations",
        "Shares of the commonest words",
        "the 5 %, of 3 %, and 2 %.",
        "rank",
        "share of words",
        _common_words,
    ),
    (
        "memory",
        "Faster and more memory-friendly",
        "Memory of a step of BERT base by batch (computed, float32)",
        "13 % and 12 % of 48 GB at batch 4, 100 % and 75 % at 64; 1.2 to 1.4 times the time.",
        "texts of 512 tokens",
        "GiB",
        _memory,
    ),
):
    enter_figure(
        RedrawnFigure(
            id=f"slides-{_id}",
            document="slides",
            place=_place,
            title=_title,
            published=_published,
            across=_across,
            up=_up,
            log=LOGARITHMIC.get(_id, ""),
        ),
        _make,
    )
for _name, _title in {
    "bert": "English BERT (GLUE)",
    "gpt": "English GPT (LAMBADA)",
    "multilingual": "Multilingual BERT-small (XNLI)",
}.items():
    enter_figure(
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


def _course(read: dict[str, Callable[[TransformerPoint], float]]) -> Maker:
    """Return the maker of a figure whose curves are numbers of a transformer over its steps."""

    def make(seed: int) -> list[Curve]:
        points = [point for point in transformer_course(seed, 64) if point.step > 0]
        steps = [float(point.step) for point in points]
        return [
            Curve(name, steps, [value(point) for point in points]) for name, value in read.items()
        ]

    return make


def _heat(seed: int) -> list[Curve]:
    """Return the cosines of the contexts of the ten commonest supports of two words and more."""
    _, labels = story_labels(seed, order=2)
    point = transformer_course(seed, 64)[-1]
    classes = np.asarray(labels.supports.unique()[1])
    several = np.flatnonzero(labels.supports.sizes >= 2)
    supports, counts = np.unique(classes[several], return_counts=True)
    commonest = supports[np.argsort(-counts)][:10]
    rows = np.concatenate([several[classes[several] == support] for support in commonest])
    unit = point.states[rows] / np.linalg.norm(point.states[rows], axis=1, keepdims=True)
    positions = [float(index) for index in range(len(rows))]
    return [Curve(str(row), positions, line.tolist()) for row, line in enumerate(unit @ unit.T)]


OF_TRANSFORMER = "of a two-block Llama, 64 wide, on contexts of two words of stories"
for _id, _place, _title, _published, _up, _read in (
    (
        "loss",
        "Figs. 2 (a) and 3",
        "Distance of the loss from the entropy bound",
        "CE - H falls to 1e-4.",
        "CE - H (nats)",
        {"CE - H": lambda point: point.excess},
    ),
    (
        "norms",
        "Fig. 2 (b)",
        "Norms of words and contexts",
        "‖W‖ grows as log k; ‖H‖ of a transformer flattens.",
        "norm",
        {
            "words W": lambda point: float(np.linalg.norm(point.word_rows)),
            "contexts H": lambda point: float(np.linalg.norm(point.states)),
        },
    ),
    (
        "sparse",
        "Fig. 2 (c)",
        "Distance of the in-support part from the log-odds",
        "It falls to 0.",
        "relative distance",
        {"distance": lambda point: point.sparse},
    ),
    (
        "geometry",
        "Fig. 2 (d, e); Fig. 4",
        "Nearness to the predicted geometry",
        "All similarities rise towards 1; the patterns show early.",
        "similarity",
        {
            "words": lambda point: point.words,
            "contexts": lambda point: point.contexts,
            "direction of the logits": lambda point: point.direction,
        },
    ),
):
    enter_figure(
        RedrawnFigure(
            id=f"paper-{_id}",
            document="paper",
            place=_place,
            title=f"{_title}, {OF_TRANSFORMER}",
            published=_published,
            across="step",
            up=_up,
            log="x" if _id in ("norms", "geometry") else "xy",
        ),
        _course(_read),
    )
enter_figure(
    RedrawnFigure(
        id="paper-heat",
        document="paper",
        place="Fig. 1; heat maps of TinyStories",
        title=f"Cosines of contexts of ten supports, {OF_TRANSFORMER}",
        published="Blocks of equal supports are bright after training.",
        across="context, by support",
        up="context, by support",
        heat=True,
    ),
    _heat,
)


def _channel(seed: int) -> list[Curve]:
    width = lens_of(DEFAULT_MODEL).width("block.0")
    sizes = [max(1, width * part // 16) for part in range(1, 17)]
    book = codes(DEFAULT_MODEL, seed)[:FEWER_CODES]
    curves = []
    for noise in (0.0, 0.5, 1.0, 2.0):
        shares = [float(told_apart(book, noise, size, seed).mean()) for size in sizes]
        curves.append(Curve(f"noise of {noise:g} spreads", [float(size) for size in sizes], shares))
    return curves


def _wipers(_seed: int) -> list[Curve]:
    """Return the attribution of gpt-vanilla's next token, by three methods of one scale."""
    from headscan import attribute

    prompt = "The wipers on the bus go swish swish"
    curves = []
    for method in ("gradient-x-input", "occlusion", "combined"):
        result = attribute(DEFAULT_MODEL, prompt, method=method)
        names = [f"{index} {token}" for index, token in enumerate(result.tokens)]
        scores = np.array(result.scores)
        curves.append(Curve(method, names, (scores / np.abs(scores).max()).tolist()))
    return curves


enter_figure(
    RedrawnFigure(
        id="article-channel",
        document="article",
        place="Noise on a Discreet Channel",
        title="Tokens found by the features that are given, first block of gpt-vanilla",
        published="Llama-7b: all of 4,096 features down to 2,202, none with 2,201 or fewer.",
        across="features of 128",
        up="share of tokens found",
    ),
    _channel,
)
enter_figure(
    RedrawnFigure(
        id="article-attribution",
        document="article",
        place="Model Interpretability",
        title="Attribution of the next token of gpt-vanilla",
        published="A highlighted prompt, 'The wipers on the bus go swish swish', of GPT-2.",
        across="token",
        up="score over the largest of its method",
    ),
    _wipers,
)
for _name, _title in {
    "direct": "Direct input representation",
    "causal": "Causal attention",
}.items():
    enter_figure(
        RedrawnFigure(
            id=f"article-{_name}",
            document="article",
            place=_title,
            title=_title,
            published="A drawing of the method.",
            why_not="It shows no data.",
        )
    )
