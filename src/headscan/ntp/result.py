"""What `headscan.ntp.run` found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headscan.ntp.certificate import CentredCertificate
from headscan.ntp.collapse_metrics import CollapseMetrics
from headscan.ntp.entropy import DataNumbers
from headscan.ntp.features import FeatureCheckpoint
from headscan.ntp.support_metrics import SupportMetrics
from headscan.ntp.svm import SvmCost
from headscan.ntp.uncertainty import BootstrapSpread, ThresholdNumbers
from headscan.run import Result

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "AxisEnd",
    "AxisWords",
    "HeatContexts",
    "ModelComparison",
    "NtpResult",
    "SolutionNumbers",
    "SolveCost",
    "Uncertainty",
    "WordCounts",
]


@dataclass(frozen=True)
class SolveCost(SvmCost):
    """What the certified solution costs by estimate, told before it is begun."""

    seconds: float
    iterations: float


@dataclass(frozen=True)
class SolutionNumbers:
    """The certified solution in numbers: bounds in units of ‖L‖_*, and how far the cheap proxies are from it.

    `proxy_...` are cosines of Gram matrices with (S~ᵀS~)^½, `unrooted_...` with S~ᵀS~ itself; `centred_nuclear_norm_ratio`
    is ‖S~‖_* over the primal value, None where only a part of S~'s spectrum is known.
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
    penalty: float
    violation: float
    proxy_word_gram_cosine: float | None
    proxy_context_gram_cosine: float | None
    unrooted_word_gram_cosine: float | None
    centred_nuclear_norm_ratio: float | None


@dataclass(frozen=True)
class Uncertainty:
    """How settled the data's numbers are; no bootstrap where there is too little text, or too much to count again."""

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
    """The contexts of the heat maps: their words, those of their supports, and which support (by number) each has."""

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
    collapse: CollapseMetrics
    notes: list[str]


@dataclass(frozen=True, kw_only=True, repr=False)
class NtpResult(Result):
    """The geometry that a text alone predicts, and how models compare with it.

    Attributes:
        tokens: positions that have a full context inside their document; order: K.
        contexts, supports: distinct ones; entropy_bound: nats a token; single_successor_share: in [0, 1].
        data: these and the data's other numbers; uncertainty: how settled they are.
        cost, solution, certificate: of the NTP-SVM; the last two are None where the proxy stands in (`notes` say why).
        axes, words, heat: words of the pictures.
        comparisons: one a model, in the order given; training: checkpoints of the unconstrained features.
        arrays: `words` [V, r] (predicted, at most 64 axes), `word_axes` [n, 6], `sigma`, `sigma_centred`, and for the heat
            maps `heat/predicted` and `heat/MODEL` [s, s]; `scatter/MODEL` [n, 2], predicted and observed log-odds.
    """

    kind: ClassVar[str] = "ntp"
    tokens: int
    order: int
    contexts: int
    supports: int
    entropy_bound: float
    single_successor_share: float
    data: DataNumbers
    cost: SolveCost
    certificate: CentredCertificate | None
    solution: SolutionNumbers | None
    uncertainty: Uncertainty
    axes: list[AxisWords]
    words: WordCounts
    heat: HeatContexts
    comparisons: list[ModelComparison] = field(default_factory=list)
    training: list[FeatureCheckpoint] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def frame(self) -> pd.DataFrame:
        """A pandas table: the data's own numbers, then one row a model with its distance from the prediction."""
        import pandas as pd

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
        for model in self.comparisons:
            m = model.metrics
            rows.append(
                {
                    "what": model.name,
                    "contexts": m.contexts,
                    "CE_minus_H": m.SC6.excess,
                    "in_support_distance": m.SC3,
                    "direction_cosine": m.direction,
                    "word_gram_cosine": m.SC2_words,
                    "context_gram_cosine": m.SC2_contexts,
                    "top_k_equal_support": m.SC4,
                    "same_support_cosine": None if m.SC1.after is None else m.SC1.after.same_cosine,
                }
            )
        return pd.DataFrame(rows)
