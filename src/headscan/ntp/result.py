"""The result of `headscan.ntp.run`."""

from dataclasses import dataclass, field
from typing import ClassVar

from headscan.ntp.entropy import BootstrapSpread, DataNumbers, ThresholdNumbers
from headscan.ntp.support_metrics import SupportMetrics
from headscan.ntp.svm import CentredCertificate, SvmCost
from headscan.run import DataFrame, Result, dataframe


@dataclass(frozen=True)
class SolveCost(SvmCost):
    """The estimated cost of the certified solution, told before it is begun."""

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
    """The uncertainty of the data's numbers; no bootstrap where there is too little text, or too
    much to count again.
    """

    thresholds: list[ThresholdNumbers]
    bootstrap: BootstrapSpread | None


@dataclass(frozen=True)
class AxisEnd:
    """A token at one end of an axis, and its coordinate."""

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
    """The contexts of the heat maps: their words, those of their supports, and the number of each
    context's support.
    """

    contexts: list[str]
    supports: list[list[str]]
    group: list[int]


@dataclass(frozen=True)
class ModelComparison:
    """A model compared with the prediction; `before` are the tokens in front of what it reads."""

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
    contexts: int  # distinct contexts
    supports: int  # distinct supports
    entropy_bound: float  # nats a token
    single_successor_share: float  # in [0, 1]
    data: DataNumbers  # these and the data's other numbers
    cost: SolveCost  # of the NTP-SVM
    # None, as the solution, where the proxy is used (`notes` say why)
    certificate: CentredCertificate | None
    solution: SolutionNumbers | None
    uncertainty: Uncertainty  # of the data's numbers
    axes: list[AxisWords]  # words of the pictures, as the next two
    words: WordCounts
    heat: HeatContexts
    # one entry a model, in the order of the models
    comparisons: list[ModelComparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def frame(self) -> DataFrame:
        """Return a pandas table: the data's own numbers, then one row a model with its distance
        from the prediction.
        """
        data_row: dict[str, str | float | None] = {
            "what": "data",
            "CE_minus_H": 0.0,
            "contexts": self.contexts,
            "supports": self.supports,
            "entropy_bound": self.entropy_bound,
            "rank": None if self.solution is None else self.solution.rank,
        }
        return dataframe([data_row, *(_model_row(model) for model in self.comparisons)])


def _model_row(model: ModelComparison) -> dict[str, str | float | None]:
    metrics = model.metrics
    projected = metrics.SC1.after
    return {
        "what": model.name,
        "contexts": metrics.contexts,
        "CE_minus_H": metrics.SC6,
        "in_support_distance": metrics.SC3,
        "direction_cosine": metrics.direction,
        "word_gram_cosine": metrics.SC2_words,
        "context_gram_cosine": metrics.SC2_contexts,
        "top_k_equal_support": metrics.SC4,
        "same_support_cosine": None if projected is None else projected.same_cosine,
    }
