"""What `headscan.ntp.run` found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from headscan.ntp.entropy import BootstrapSpread, DataNumbers, ThresholdNumbers
from headscan.ntp.labels import Floats, Ints
from headscan.ntp.prediction import Prediction, axes, unit_rows
from headscan.ntp.support_metrics import SupportMetrics
from headscan.ntp.svm import CentredCertificate, SvmCost
from headscan.run import DataFrame, Finding, Result, dataframe


@dataclass(frozen=True)
class SolveCost(SvmCost):
    """What the certified solution costs by estimate, told before it is begun."""

    seconds: float


@dataclass(frozen=True)
class SolutionNumbers:
    """The certified solution in numbers: bounds in units of ‖L‖_*, and the cosine of the Gram
    matrix of its words with that of the cheap proxy, (S~ᵀS~)^½.
    """

    contexts: int
    supports: int
    primal: float
    dual: float
    gap: float
    rank: int
    iterations: int
    converged: bool
    seconds: float
    proxy_word_gram_cosine: float | None


@dataclass(frozen=True)
class Uncertainty:
    """How settled the data's numbers are; no bootstrap where there is too little text, or too much
    to count again.
    """

    thresholds: list[ThresholdNumbers]
    bootstrap: BootstrapSpread | None


@dataclass(frozen=True)
class AxisEnd:
    """A token at one end of an axis, and where it stands on it."""

    token: str
    at: float


@dataclass(frozen=True)
class AxisWords:
    """A semantic axis in words: its strength, and the tokens at its two ends, outermost first."""

    index: int
    strength: float
    positive: list[AxisEnd]
    negative: list[AxisEnd]


@dataclass(frozen=True)
class WordCounts:
    """The most frequent next tokens: ids, spelling, and how often each followed."""

    id: list[int]
    tokens: list[str]
    counts: list[float]


@dataclass(frozen=True)
class HeatContexts:
    """The contexts of the heat maps: their words, those of their supports, and which support (by
    number) each has.
    """

    contexts: list[str]
    supports: list[list[str]]
    group: list[int]


@dataclass(frozen=True)
class ModelComparison:
    """A model held against the prediction; `before` are the tokens put in front of what it reads."""

    name: str
    compared_contexts: int
    reading: str
    before: list[int]
    metrics: SupportMetrics
    notes: list[str]


@dataclass(frozen=True, kw_only=True, repr=False)
class NtpResult(Result):
    """The geometry that a text alone predicts, and how models compare with it.

    `arrays` holds `words` [V, r] (predicted, at most 64 axes), `word_axes` [n, 6], `sigma`,
    `sigma_centred`, and for the heat maps `heat/predicted` and `heat/MODEL` [s, s].
    """

    kind: ClassVar[str] = "ntp"
    tokens: int  # positions that have a full context inside their document
    order: int  # K
    contexts: int  # distinct ones
    supports: int  # distinct ones
    entropy_bound: float  # nats a token
    single_successor_share: float  # in [0, 1]
    data: DataNumbers  # these and the data's other numbers
    cost: SolveCost  # of the NTP-SVM
    # None, as the solution, where the proxy stands in (`notes` say why)
    certificate: CentredCertificate | None
    solution: SolutionNumbers | None
    uncertainty: Uncertainty  # how settled the data's numbers are
    axes: list[AxisWords]  # words of the pictures, as the next two
    words: WordCounts
    heat: HeatContexts
    # one a model, in the order given
    comparisons: list[ModelComparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def frame(self) -> DataFrame:
        """A pandas table: the data's own numbers, then one row a model with its distance from the
        prediction.
        """
        rows: list[dict[str, str | float | None]] = [
            {
                "what": "data",
                "CE_minus_H": 0.0,
                "contexts": self.contexts,
                "supports": self.supports,
                "entropy_bound": self.entropy_bound,
                "rank": None if self.solution is None else self.solution.rank,
            }
        ]
        for name, m in ((model.name, model.metrics) for model in self.comparisons):
            rows.append(
                {
                    "what": name,
                    "contexts": m.contexts,
                    "CE_minus_H": m.SC6,
                    "in_support_distance": m.SC3,
                    "direction_cosine": m.direction,
                    "word_gram_cosine": m.SC2_words,
                    "context_gram_cosine": m.SC2_contexts,
                    "top_k_equal_support": m.SC4,
                    "same_support_cosine": m.SC1.after.same_cosine if m.SC1.after else None,
                }
            )
        return dataframe(rows)


# ---- What the page needs: a few contexts ordered by support for heat maps, words on axes, and a sample of logits.

Spell = Callable[[Sequence[int]], list[str]]
"""Tokens as people can see them."""


def cosines(X: Floats) -> npt.NDArray[np.float32]:
    """Cosines of all pairs of rows, float32 [n, n]."""
    unit = unit_rows(np.asarray(X, dtype=np.float64))
    return (unit @ unit.T).astype(np.float32)


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Contexts `rows` int64 [s], ordered so that those of equal support stand together; `group` [s]
    numbers the supports.
    """

    rows: Ints
    group: Ints
    prediction: Prediction

    def in_words(self, contexts: npt.NDArray[np.integer[Any]], spell: Spell) -> HeatContexts:
        """The words of the contexts and of their supports."""
        supports = self.prediction.labels.supports
        followers = []
        for row in self.rows:
            of_row = supports.indices[supports.indptr[row] : supports.indptr[row + 1]]
            followers.append(spell(of_row[:12].tolist()) + (["…"] if len(of_row) > 12 else []))
        return HeatContexts(
            [" ".join(spell(contexts[row].tolist())) for row in self.rows],
            followers,
            self.group.tolist(),
        )


def choose_heat(
    prediction: Prediction, *, supports: int = 10, each: int = 10, seed: int = 0
) -> HeatMap:
    """Up to `supports` supports of two tokens or more that most contexts share, and up to `each`
    contexts of each; where no such support is shared, the most frequent contexts stand in, each for
    itself.
    """
    labels, prior = prediction.labels, prediction.labels.prior
    inverse = labels.supports.unique()[1]
    sizes = labels.supports.sizes
    eligible = np.bincount(inverse, weights=(sizes >= 2) & (sizes < labels.vocabulary))
    best = [kind for kind in np.argsort(-eligible, kind="stable")[:supports] if eligible[kind] >= 2]
    everyone = [np.flatnonzero(inverse == kind) for kind in best]
    rows = [members[np.argsort(-prior[members], kind="stable")[:each]] for members in everyone]
    if not rows:
        frequent = np.argsort(-prior, kind="stable")[: supports * 4]
        return HeatMap(frequent, np.arange(len(frequent)), prediction)
    group = np.concatenate([np.full(len(members), index) for index, members in enumerate(rows)])
    return HeatMap(np.concatenate(rows), group, prediction)


def word_picture(prediction: Prediction, spell: Spell, *, most: int = 500) -> WordCounts:
    """The most frequent next tokens with their spelling and counts, for the plane of two axes."""
    labels = prediction.labels
    counts = np.bincount(
        labels.supports.indices, weights=labels.counts, minlength=labels.vocabulary
    )
    order = np.argsort(-counts, kind="stable")[:most]
    order = order[counts[order] > 0]
    return WordCounts(order.tolist(), spell(order.tolist()), [float(c) for c in counts[order]])


def axis_words(words: Floats, spell: Spell, *, count: int = 8, ends: int = 10) -> list[AxisWords]:
    """The first axes of predicted words [V, r], with the spelling of the tokens at their ends."""

    def spelt(side: tuple[tuple[int, float], ...]) -> list[AxisEnd]:
        return [
            AxisEnd(token, at)
            for token, (_, at) in zip(spell([i for i, _ in side]), side, strict=True)
        ]

    found = axes(words, count=count, ends=ends)
    return [
        AxisWords(axis.index, axis.strength, spelt(axis.positive), spelt(axis.negative))
        for axis in found
    ]


# ---- What the numbers of a prediction say, in sentences.

LOW = 0.5
"""A rank below this share of what the distinct supports allow is called low: a convention."""


def findings(
    order: int,
    data: DataNumbers,
    solution: SolutionNumbers | None,
    comparisons: Sequence[ModelComparison],
) -> list[Finding]:
    """Coded sentences, most important first: of the data, then of each model."""
    sentences: list[Finding] = []
    name: str | None = None

    def say(
        code: str, level: Literal["alert", "notice", "good"], value: float, sentence: str
    ) -> None:
        sentences.append(
            Finding(code=code, level=level, sentence=sentence, value=value, model=name)
        )

    bound = data.entropy_bound
    single = data.single_successor_share
    unseen = data.unseen_mass
    say(
        "BOUND",
        "notice",
        bound,
        f"no model that sees {order} tokens gets below {bound:.4g} nats a token on this text",
    )
    if single > 0.5:
        text = (
            f"{single:.0%} of the contexts were followed by one token only: their logits have no "
            "finite part"
        )
        say("ONE SUCCESSOR", "notice", single, text)
    if unseen > 0.1:
        text = f"about {unseen:.0%} of next occurrences would bring a successor not yet seen"
        say("UNSETTLED", "alert", unseen, f"{text}: the supports are not settled")
    if solution is not None:
        most = min(data.vocabulary - 1, solution.supports)
        text = (
            f"the growing part has rank {solution.rank} of the {most:,} that "
            f"{solution.supports:,} distinct supports of "
        )
        text += (
            f"{data.vocabulary:,} tokens allow, certified to a relative gap of {solution.gap:.0e}"
        )
        low = solution.rank < LOW * most
        say(
            "LOW RANK" if low else "RANK",
            "good" if low and solution.converged else "notice",
            solution.rank,
            text,
        )
    for model in comparisons:
        name = model.name
        m = model.metrics
        if m.direction is not None:
            text = (
                f"the growing part of the logits has cosine {m.direction:.3f} with the prediction"
            )
            say("DIRECTION", "good" if m.direction > 0.9 else "notice", m.direction, text)
        if m.SC1.after is not None:
            same = m.SC1.after.same_cosine
            different = m.SC1.after.other_cosine
            text = (
                f"contexts with equal supports: cosine {same:.3f} after projection, "
                f"{different:.3f} between different supports"
            )
            say("COLLAPSE", "good" if same > 0.9 else "notice", same, text)
        if m.outside_mass > 0.05:
            text = (
                f"{m.outside_mass:.1%} of the probability lies outside the supports: it "
                "generalises, or has not fitted"
            )
            say("OUTSIDE", "notice", m.outside_mass, text)
    return sentences
