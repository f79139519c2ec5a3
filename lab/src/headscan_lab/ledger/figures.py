"""The figures of the documents, redrawn from runs of our own beside what was published."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

import numpy as np

import headscan.ntp as ntp
from headscan.model.slicing import Slice
from headscan.run import BadInput, Registry
from headscan_lab import theory
from headscan_lab.ledger.experiment import DocumentName
from headscan_lab.ledger.experiments.descents import Recovered
from headscan_lab.ledger.experiments.geometry import CommonestWords, ShapeOfStates
from headscan_lab.ledger.experiments.later import drift_by_site, kept_by_head, loss_by_rank, margins
from headscan_lab.ledger.experiments.massive import by_block
from headscan_lab.ledger.measurement import own_seeds
from headscan_lab.ledger.stand_ins import lens_of, prompts
from headscan_lab.theory.checks import defined
from headscan_lab.theory.features import FeatureCheckpoint, train_features


@dataclass(frozen=True)
class Curve:
    """One line (or row of bars) of a figure: its name, and numbers of the same count; `at` are
    numbers or names.
    """

    name: str
    at: list[float] | list[str]
    values: list[float]


@dataclass(frozen=True, kw_only=True)
class RedrawnFigure:
    """A figure of a document from our own runs.

    Attributes:
        id, document, place, title: which.
        published: what the document shows there: its values, or its shape.
        across, up: what the axes are; log: "", "x", "y" or "xy".
        curves: ours; none where it is not redrawn, and `why_not` says why.
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


@dataclass(frozen=True)
class FigureMaker:
    """What a figure shows, and the function that makes its curves from a master seed (None: it is
    not redrawn).
    """

    shown: RedrawnFigure
    make: Maker | None


FIGURES: Registry[FigureMaker] = Registry("figure", "headscan_lab.ledger.figures")
"""The figures of all documents, a module a document; plug-ins add their own by `figure`."""


def figure(
    id: str, place: str, title: str, published: str, **more: Any
) -> Callable[[Maker | None], Maker | None]:
    """Enter the decorated function (None: it is not redrawn, and `why_not` says why); the first
    word of `id` is its document.

    more: axes and `why_not` of the RedrawnFigure.
    """

    def enter(make: Maker | None) -> Maker | None:
        document = cast(DocumentName, id.partition("-")[0])
        shown = RedrawnFigure(
            id=id, document=document, place=place, title=title, published=published, **more
        )
        FIGURES.add(id, FigureMaker(shown, make))
        return make

    return enter


def redrawn(name: str, seed: int) -> RedrawnFigure:
    """One figure, its curves made now."""
    found = FIGURES[name]
    return found.shown if found.make is None else replace(found.shown, curves=found.make(seed))


# ---- The article's figures: two are drawings without data; the threshold of its last section is a curve in words.


FEATURES = (2, 8, 32, 64, 96, 128)


@figure(
    "article-channel",
    "Noise on a Discreet Channel",
    "Tokens found by the features that are given",
    "Llama-7b: all of 4,096 features down to 2,202, none with 2,201 or fewer.",
    across="features of 128",
    up="share of tokens found",
)
def channel(seed: int) -> list[Curve]:
    """The specimen's first block: by the published descent, and by search of the same features."""
    seen = [Recovered(at=f"block.0[:, :, :{size}]").observe(seed) for size in FEATURES]
    given = [float(size) for size in FEATURES]
    return [
        Curve(
            "published descent", given, [one.effect.value for one in seen if one.effect is not None]
        ),
        Curve("search", given, [one.control.value for one in seen if one.control is not None]),
    ]


for _name, _title in (("direct", "Direct input representation"), ("causal", "Causal attention")):
    figure(
        f"article-{_name}", _title, _title, "A drawing of the method.", why_not="It shows no data."
    )(None)


# ---- The paper's figures.


STEPS = 10_000


@lru_cache(maxsize=2)
def _course(seed: int) -> tuple[FeatureCheckpoint, ...]:
    """Gradient descent on unconstrained features: V = 10, 95 contexts, 30 supports, as in Figs. 3
    and 4.
    """
    labels = theory.random_labels(10, 95, supports=30, seed=seed)
    run = train_features(labels, 10, STEPS, seed=seed, prediction=ntp.predict(labels))
    return tuple(one for one in run.records if one.step > 0)


def _of_course(**curves: Callable[[FeatureCheckpoint], float | None]) -> Maker:
    """Curves over the steps, by their names with underscores."""

    def make(seed: int) -> list[Curve]:
        course = _course(seed)
        steps = [float(one.step) for one in _course(seed)]
        return [
            Curve(name.replace("_", " "), steps, [defined(of(one)) for one in course])
            for name, of in curves.items()
        ]

    return make


figure(
    "paper-loss",
    "Figs. 2 (a) and 3",
    "Distance of the loss from the entropy bound",
    "CE - H falls to 1e-4.",
    across="step",
    up="CE - H (nats)",
    log="xy",
)(_of_course(gradient_descent=lambda one: one.excess))
figure(
    "paper-norms",
    "Fig. 2 (b)",
    "Norms of words and contexts",
    "‖W‖ grows as log k; ‖H‖ of a transformer flattens, since its last norm holds it.",
    across="step",
    up="norm",
    log="x",
)(_of_course(words_W=lambda one: one.words, contexts_H=lambda one: one.contexts))
figure(
    "paper-sparse",
    "Fig. 2 (c)",
    "Distance of the in-support part from the log-odds",
    "It falls to 0.",
    across="step",
    up="relative distance",
    log="xy",
)(_of_course(gradient_descent=lambda one: one.metrics.SC3 if one.metrics else None))
figure(
    "paper-geometry",
    "Fig. 2 (d, e); Fig. 4",
    "Nearness to the predicted geometry",
    "All similarities rise towards 1; the patterns show early.",
    across="step",
    up="similarity",
    log="x",
)(
    _of_course(
        direction_of_the_logits=lambda one: one.metrics.direction if one.metrics else None,
        words=lambda one: one.pattern_words,
        contexts=lambda one: one.pattern_contexts,
    )
)


figure(
    "paper-tinystories",
    "Fig. 1; TinyStories heat maps",
    "Contexts of ten supports on TinyStories",
    "Blocks of equal supports are bright after training.",
    why_not="The text is not shipped; the benchmark "
    "a_transformer_on_tinystories_turns_towards_the_prediction does it.",
)(None)


# ---- The slides' figures.


@figure(
    "slides-svd",
    "Singular Value Decomposition: expectation, reality",
    "Singular values of the last states",
    "Expected: an even spread. Reality: a few directions carry all.",
    across="direction",
    up="singular value over the largest",
    log="y",
)
def spectrum(seed: int) -> list[Curve]:
    """The specimen's last states beside normal vectors of the same number and width."""
    states = (
        Slice(sites=("final_norm",))
        .on(lens_of("specimen"))
        .states(prompts("specimen", seed, 16, 32))
        .flatten(0, 1)
    )
    drawn = np.random.default_rng(seed).normal(size=tuple(states.shape))
    found = {
        "gpt-vanilla": np.linalg.svd(states.double().numpy())[1],
        "normal vectors": np.linalg.svd(drawn)[1],
    }
    places = [float(k + 1) for k in range(states.shape[1])]
    return [Curve(name, places, (values / values[0]).tolist()) for name, values in found.items()]


@figure(
    "slides-cosine",
    "Average cosine-similarity",
    "Average cosine-similarity",
    "BERT .4, GPT-2 .97; a headless model's is low.",
    across="model",
    up="average cosine",
)
def cosines(seed: int) -> list[Curve]:
    """The shipped specimen, and small models trained here with and without a head."""
    seen = {
        kind: ShapeOfStates(model=kind).observe(seed).effect
        for kind in ("specimen", "taught", "headless")
    }
    return [
        Curve("last states", list(seen), [one.value for one in seen.values() if one is not None])
    ]


@figure(
    "slides-zipf",
    "Zipf's law and limitations",
    "Shares of the commonest words",
    "the 5 %, of 3 %, and 2 %.",
    across="rank",
    up="share of words",
    log="xy",
)
def zipf(seed: int) -> list[Curve]:
    """Of the shipped stories."""
    seen = CommonestWords().observe(seed)
    values = [one.value for one in (seen.effect, *seen.beside) if one is not None]
    return [
        Curve("stories", [1.0, 2.0, 3.0], values),
        Curve("published", [1.0, 2.0, 3.0], [0.05, 0.03, 0.02]),
    ]


figure(
    "slides-cost",
    "Faster and more memory-friendly",
    "What a head costs by vocabulary",
    "BERT-small: 2 times the time at V = 20,000, 3.5 at 200,000.",
    why_not="Whole steps by vocabulary: benchmarks/headless_step_of_a_small_bert_is_cheaper.py.",
)(None)
for _name, _title in (
    ("bert", "English BERT"),
    ("gpt", "English GPT"),
    ("multilingual", "Multilingual BERT-small"),
):
    figure(
        f"slides-{_name}",
        _title,
        _title,
        "The headless model is ahead of the one with a head at every time of training.",
        why_not="It takes days of several GPUs; `headscan tournament` draws the same curves at "
        "the size that is asked.",
    )(None)


# ---- Five later papers: their claims stand in data/later.tsv, and each has one figure, drawn for every model that is tried.


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A later paper: its title, what its figure shows, and the function that makes a model's curves
    under a master seed.
    """

    title: str
    figure: str
    published: str
    across: str
    up: str
    curves: Callable[[str, str, int], list[Curve]]


def _mean(name: str, rows: list[list[float]]) -> Curve:
    values = np.mean(rows, 0)
    return Curve(name, [float(place) for place in range(len(values))], values.tolist())


def _massive(name: str, kind: str, seed: int) -> list[Curve]:
    rows = by_block(kind, seed, "nothing")
    found = [
        _mean(f"{name}: matrix entropy", [one.entropy for one in rows]),
        _mean(
            f"{name}: first token's norm over the median, log10",
            [np.log10(one.norm).tolist() for one in rows],
        ),
        _mean(
            f"{name}: matrix entropy, first token held to the others' norm",
            [one.entropy for one in by_block(kind, seed, "sink")],
        ),
    ]
    return found + (
        [_mean(f"{name}: share of heads at the first token", [one.sinks for one in rows])]
        if rows[0].sinks
        else []
    )


def _drift(name: str, kind: str, seed: int) -> list[Curve]:
    rows = [drift_by_site(kind, own) for own in own_seeds(seed)]
    return [_mean(f"{name}: average cosine", [[cosine for _, cosine in one] for one in rows])]


def _kept(name: str, kind: str, seed: int) -> list[Curve]:
    if "head" not in lens_of(kind).sites:
        return []
    rows = [kept_by_head(kind, own) for own in own_seeds(seed)]
    words = {"kept": "the head", "random": "a random subspace", "leverage": "random signs"}
    return [
        Curve(
            name,
            list(words.values()),
            [float(np.mean([one[key] for one in rows])) for key in words],
        )
    ]


def _ranks(name: str, kind: str, seed: int) -> list[Curve]:
    table = lens_of(kind).output_embeddings
    if table is None or "head" not in lens_of(kind).sites:
        return []
    ranks = [rank for rank in (16, 32, 64, 128, 256, 512, 1024) if rank < table.shape[1]]
    first = own_seeds(seed)[0]
    return [
        Curve(
            name,
            [float(rank) for rank in ranks],
            [loss_by_rank(kind, first, rank) for rank in ranks],
        )
    ]


def _margins(name: str, kind: str, seed: int) -> list[Curve]:
    first = own_seeds(seed)[0]
    blocks = lens_of(kind).match("block.*")
    return [
        Curve(
            f"{name}: {bits or 'all'} bits",
            [float(place) for place in range(len(blocks))],
            [margins(kind, first, bits, block)[1] for block in blocks],
        )
        for bits in (0, 8, 4)
    ]


PAPERS: dict[str, Paper] = {
    "2404.07647": Paper(
        title="Godey, de la Clergerie, Sagot: Why do small language models underperform?",
        figure="Loss of a head of low rank",
        published="The loss rises below a rank of some 1,000, whatever the model.",
        across="rank of the head",
        up="loss less that of the whole head (nats a token)",
        curves=_ranks,
    ),
    "2401.12143": Paper(
        title="Godey, de la Clergerie, Sagot: Anisotropy is inherent to self-attention",
        figure="Average cosine by layer",
        published="It rises over the layers, also where there are no words.",
        across="site",
        up="average cosine",
        curves=_drift,
    ),
    "2603.10145": Paper(
        title="Godey, Artzi: the gradient bottleneck of the head",
        figure="Share of the gradient's norm that is handed on",
        published="95 to 99 % of the norm is lost: .14 to .31 of it is handed on.",
        across="by",
        up="share of the norm",
        curves=_kept,
    ),
    "2510.06477": Paper(
        title="Queipo-de-Llano et al.: Attention sinks and compression valleys",
        figure="Compression, norms and sinks by block",
        published="Where the first token's norm leaps, entropy falls and heads attend to it.",
        across="block",
        up="share, or log10",
        curves=_massive,
    ),
    "2511.14808": Paper(
        title="von Strauss: Transformer injectivity and geometric robustness",
        figure="Smallest distance of two prompts",
        published="Above 0 as computed and in 8 bits; smaller, at times 0, in 4.",
        across="block",
        up="distance a token",
        curves=_margins,
    ),
}


def paper_of(name: str) -> Paper:
    """The paper of that arXiv number; BadInput where its claims are not among those that are tried."""
    if name not in PAPERS:
        raise BadInput(f"No claims of arXiv:{name} are tried here; there are: {', '.join(PAPERS)}.")
    return PAPERS[name]


def paper_figure(name: str, kinds: list[str], seed: int) -> RedrawnFigure:
    """The paper's figure over models: names of stand-ins, or models as any verb takes them."""
    paper = paper_of(name)
    curves = [curve for kind in kinds for curve in paper.curves(lens_of(kind).name, kind, seed)]
    return RedrawnFigure(
        id=f"later-{name}",
        document="later",
        place=f"arXiv:{name}",
        title=f"{paper.figure} ({paper.title})",
        published=paper.published,
        across=paper.across,
        up=paper.up,
        curves=curves,
    )
