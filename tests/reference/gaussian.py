"""What every number of a scan is where there is nothing to find: its known value on independent
draws of N(0, I).

A measure that drifts from its value here is wrong, whatever it says of a model. `KNOWN` has an
entry for each measure and each field of each probe: the value as a function of a `Shape`, how far
from it n draws may fall, and the derivation; or the reason why no value is known.
`docs/generated/gaussian.md` is written from it, and one test holds every entry against the code.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammaln, hyp2f1, polygamma, psi

from headscan.measures.sphere import uniformity_floor

__all__ = ["KNOWN", "Known", "Shape", "chi_mean", "marchenko_pastur"]


@dataclass(frozen=True)
class Shape:
    """n vectors of d dimensions in windows of `window`; `classes` of equal size; tables of `rows`
    rows of length ~ scale·√d.
    """

    n: int = 65_536
    d: int = 24
    window: int = 32
    classes: int = 256
    rows: int = 20_000
    scale: float = 0.05
    sample: int = 2000
    near: int = 3  # dimensions of the sample whose intrinsic dimension is asked

    @property
    def of_class(self) -> int:
        """Vectors of each class."""
        return self.n // self.classes


@dataclass(frozen=True)
class Known:
    """`value` and `within` (absolute) by shape, and why; or no value, and why not."""

    formula: str
    why: str
    value: Callable[[Shape], float] | None = None
    within: Callable[[Shape], float] = lambda shape: 0.0


def chi_mean(d: float) -> float:
    """E‖x‖ of N(0, I) in d dimensions: √2·Γ((d + 1)/2)/Γ(d/2).

    >>> round(chi_mean(1), 6) == round((2 / np.pi) ** 0.5, 6)
    True
    """
    return math.sqrt(2) * math.exp(gammaln((d + 1) / 2) - gammaln(d / 2))


def marchenko_pastur(
    function: Callable[[float], float], ratio: float, *, above: float = 0.0
) -> float:
    """E f(λ) under Marchenko and Pastur's law of the second moment's eigenvalues, d/n = ratio ≤ 1;
    over λ > `above`.

    >>> means = [marchenko_pastur(f, 0.3) for f in (lambda x: 1.0, lambda x: x * x)]
    >>> round(means[0], 9), round(means[1], 9)
    (1.0, 1.3)
    """
    low = (1 - math.sqrt(ratio)) ** 2
    high = (1 + math.sqrt(ratio)) ** 2
    # λ = middle + half·cos θ takes the square-root edges out of the integral.
    middle = (low + high) / 2
    half = (high - low) / 2
    end = math.pi if above <= low else math.acos(min(1.0, (above - middle) / half))

    def inner(theta: float) -> float:
        x = middle + half * math.cos(theta)
        return function(x) * (half * math.sin(theta)) ** 2 / (2 * math.pi * ratio * x)

    return float(quad(inner, 0, end, epsabs=1e-12, limit=200)[0])


def amplitude_entropy(ratio: float) -> float:
    """log d − H(σ/Σσ) in the limit: log of the mean of √λ's, plus the mean of √λ·log √λ over it."""
    mean = marchenko_pastur(math.sqrt, ratio)
    return marchenko_pastur(lambda x: math.sqrt(x) * math.log(x) / 2, ratio) / mean - math.log(mean)


def top_energy(n: float, d: float) -> float:
    """E λ₁ of the second moment of n draws: Tracy and Widom's centre and scale with β = 1
    (Johnstone 2001).
    """
    a = math.sqrt(n - 0.5)
    b = math.sqrt(d - 0.5)
    return ((a + b) ** 2 - 1.2065 * (a + b) * (1 / a + 1 / b) ** (1 / 3)) / n


def mean_correlation(rho: float, d: int) -> float:
    """E cos(x, y) of Gaussian pairs with correlation ρ in each of d dimensions (Hotelling 1953)."""
    return rho * 2 / d * (chi_mean(d) ** 2 / 2) * float(hyp2f1(0.5, 0.5, d / 2 + 1, rho**2))


def agreement(d: int, k: int) -> float:
    """r² of all cosines with those of the other d − k dimensions: (E‖x'‖/‖x‖)⁴·d/(d − k),
    ‖x'‖²/‖x‖² being Beta.
    """
    log = gammaln((d - k + 1) / 2) + gammaln(d / 2) - gammaln((d - k) / 2) - gammaln((d + 1) / 2)
    return math.exp(4 * log) * d / (d - k)


def error_rank(share: float, ratio: float, d: int) -> float:
    """The k at which W-error falls to `share`: the strongest directions hold 1 − share² of the
    energy.
    """
    low = (1 - math.sqrt(ratio)) ** 2
    high = (1 + math.sqrt(ratio)) ** 2
    cut = brentq(
        lambda x: marchenko_pastur(lambda y: y, ratio, above=x) - (1 - share**2), low, high - 1e-9
    )
    return d * marchenko_pastur(lambda x: 1.0, ratio, above=cut)


def _median(ratio: float) -> float:
    low = (1 - math.sqrt(ratio)) ** 2
    high = (1 + math.sqrt(ratio)) ** 2
    return float(
        brentq(lambda x: marchenko_pastur(lambda y: 1.0, ratio, above=x) - 0.5, low, high - 1e-9)
    )


def _ratio(s: Shape) -> float:
    return s.d / s.n


def _table(s: Shape) -> float:
    return s.d / s.rows


def _second(s: Shape) -> float:
    """Partition isotropy to second order, for a table with ‖Σw‖ and extreme eigenvalues at their
    expectation.
    """
    drift = s.scale * chi_mean(s.d) / s.rows**0.5
    low, high = ((1 + sign * math.sqrt(_table(s))) ** 2 * s.scale**2 / 2 for sign in (-1, 1))
    return (1 - drift + low) / (1 + drift + high)


def _pr(n: float, d: int) -> float:
    return (n * d + 2) / (n + d + 1)


def _zero(value: Shape) -> float:
    return 0.0


def _constant(value: float) -> Callable[[Shape], float]:
    return lambda shape: value


def _agreement(k: int) -> Callable[[Shape], float]:
    return lambda shape: agreement(shape.d, k)


PAIRS = "the directions of independent vectors are independent and even on the sphere"
COUNTS = "counts of tokens, no vectors"
GIVEN = "given, not measured"
A_COUNT = "a count"


def _pairs_spread(s: Shape) -> float:
    return 4 * math.sqrt(2 / s.d) / s.n


KNOWN: dict[str, Known] = {
    # measures of a cloud
    "average_cosine": Known(
        "0", PAIRS + "; its standard deviation is √(2/d)/n", _zero, _pairs_spread
    ),
    "mean_norm": Known(
        "√2·Γ((d+1)/2)/Γ(d/2)",
        "mean of χ_d",
        lambda s: chi_mean(s.d),
        lambda s: 4 * (0.5 / s.n) ** 0.5,
    ),
    "mean_vector_norm": Known(
        "E χ_d/√n",
        "the mean is N(0, I/n)",
        lambda s: chi_mean(s.d) / s.n**0.5,
        lambda s: 4 * (0.5 / s.n) ** 0.5,
    ),
    "drift": Known(
        "1/√n", "E χ_d/√n over E χ_d", lambda s: s.n**-0.5, lambda s: 4 * (0.5 / s.n / s.d) ** 0.5
    ),
    "top_direction_share": Known(
        "E λ₁/d",
        "Tracy and Widom's mean of the largest eigenvalue",
        lambda s: top_energy(s.n, s.d) / s.d,
        lambda s: 0.02 / s.d,
    ),
    "effective_rank": Known(
        "d·exp(−d/2n)",
        "∫λ log λ under Marchenko and Pastur's law is d/2n",
        lambda s: s.d * math.exp(-_ratio(s) / 2),
        lambda s: 2 * _ratio(s),
    ),
    "rankme": Known(
        "d·exp(−KL)",
        "the same with √λ, by quadrature",
        lambda s: s.d * math.exp(-amplitude_entropy(_ratio(s))),
        lambda s: 2 * _ratio(s),
    ),
    "participation_ratio": Known(
        "((n−1)d + 2)/(n + d)",
        "E tr(S)²/E‖S‖² of a Wishart matrix with n − 1 degrees of freedom",
        lambda s: _pr(s.n - 1, s.d),
        lambda s: 2 * _ratio(s),
    ),
    "isoscore": Known(
        "(PR − 1)/(d − 1)",
        "the same",
        lambda s: (_pr(s.n - 1, s.d) - 1) / (s.d - 1),
        lambda s: 2 * _ratio(s) / s.d,
    ),
    # cones
    **{
        f"axis.{name}": Known(
            "0",
            "axes of independent balls are even on the sphere: 1/√d is one standard deviation",
            _zero,
            lambda s: 4 / s.d**0.5,
        )
        for name in ("to_previous", "to_first", "to_last")
    },
    **{
        f"rogue.{name}": Known(
            "not defined", "a share of an average cosine that is 0", lambda s: math.nan
        )
        for name in ("rogue_share_1", "rogue_share_3", "rogue_share_5", "rogue_half")
    },
    **{
        f"rogue.agreement_{k}": Known(
            "(E‖x'‖/‖x‖)⁴·d/(d − k)",
            "norms are independent of directions; about (d − k)/d",
            _agreement(k),
            lambda s: 0.01,
        )
        for k in (1, 3, 5)
    },
    # words
    **{
        f"words.{name}": Known("0", PAIRS, _zero, lambda s: 4 * math.sqrt(2 / s.d / s.n / s.window))
        for name in ("within_cosine", "within_adjusted")
    },
    "words.between_cosine": Known("0", PAIRS, _zero, _pairs_spread),
    **{
        f"words.{name}": Known(
            "Hotelling's E r at ρ = 1/√T",
            "a token has correlation 1/√T with the sum of its T tokens",
            lambda s: mean_correlation(s.window**-0.5, s.d),
            lambda s: 4 * (1 / s.d / s.n) ** 0.5,
        )
        for name in ("intra_similarity", "intra_adjusted")
    },
    **{
        f"words.{name}": Known(
            "0", PAIRS, _zero, lambda s: 4 * math.sqrt(2 / s.d / s.n / s.of_class)
        )
        for name in ("self_similarity", "self_adjusted")
    },
    "words.mev": Known(
        "—", "the largest eigenvalue of small Wishart matrices, a mixture over the words' counts"
    ),
    "words.mev_adjusted": Known(
        "0", "occurrences of a word are draws like all others", _zero, lambda s: 0.02
    ),
    "words.words": Known("—", A_COUNT),
    "words.mev_words": Known("—", A_COUNT),
    # shape
    **{
        f"dimension.{name}": Known(
            "d",
            "within a tenth for d ≤ 4 and 2,000 points: density falls off between neighbours; far "
            "lower for large d",
            lambda s: float(s.near),
            lambda s: 0.1 * s.near,
        )
        for name in ("twonn", "mle_dimension")
    },
    "dimension.distinct_points": Known("—", A_COUNT),
    "sphere.uniformity": Known(
        "−2t + log ₀F₁(; d/2; t²)",
        "E exp(2t·cos θ) of an even direction",
        lambda s: uniformity_floor(s.d),
        lambda s: 0.01,
    ),
    "sphere.uniformity_floor": Known(
        "the same", "it is that formula", lambda s: uniformity_floor(s.d), lambda s: 1e-12
    ),
    "sphere.next_alignment": Known(
        "2", PAIRS, lambda s: 2.0, lambda s: 4 * 2 * (1 / s.d / s.n) ** 0.5
    ),
    "sphere.next_unrelated": Known("2", PAIRS, lambda s: 2.0, lambda s: 4 * 2 / (s.d * s.n) ** 0.5),
    "sphere.next_relative": Known(
        "1", "2 over 2", lambda s: 1.0, lambda s: 4 * 2 * (1 / s.d / s.n) ** 0.5
    ),
    "alignment.set": Known("—", GIVEN),
    "alignment.pairs": Known("—", A_COUNT),
    "alignment.alignment": Known(
        "2",
        "partners that know nothing of each other",
        lambda s: 2.0,
        lambda s: 4 * 2 * (1 / s.d / s.sample) ** 0.5,
    ),
    "alignment.unrelated": Known("2", PAIRS, lambda s: 2.0, lambda s: 4 * 2 / s.d**0.5 / s.sample),
    "alignment.relative": Known(
        "1", "2 over 2", lambda s: 1.0, lambda s: 4 * 2 * (1 / s.d / s.sample) ** 0.5
    ),
    # text
    **{
        f"zipf.{name}": Known("—", COUNTS)
        for name in (
            "tokens",
            "types",
            "zipf_exponent",
            "mandelbrot_exponent",
            "mandelbrot_shift",
            "zipf_distance",
        )
    },
    # tables of weights
    **{
        f"partition.{name}": Known(
            f"{end} as V grows",
            "Z(c) → V·exp(s²/2) for every c; at V rows no farther than the second order says",
            _constant(float(end)),
            lambda s: 1 - _second(s),
        )
        for name, end in (
            ("partition", "1"),
            ("log_partition_range", "0"),
            ("partition_spread", "0"),
        )
    },
    **{f"frequency.{name}": Known("—", COUNTS) for name in ("from", "to", "tokens", "share")},
    "frequency.mean_norm": Known(
        "s·E χ_d",
        "mean of χ_d",
        lambda s: s.scale * chi_mean(s.d),
        lambda s: 4 * s.scale * (0.5 / s.rows) ** 0.5,
    ),
    "frequency.drift": Known(
        "1/√V",
        "E χ_d/√V over E χ_d",
        lambda s: s.rows**-0.5,
        lambda s: 4 * (0.5 / s.rows / s.d) ** 0.5,
    ),
    "frequency.cosine_to_state": Known("0", PAIRS, _zero, lambda s: 4 / (s.d * s.rows) ** 0.5),
    "frequency.average_cosine": Known("0", PAIRS, _zero, lambda s: 4 * math.sqrt(2 / s.d) / s.rows),
    "frequency.log_partition_range": Known(
        "0 as V grows", "see partition", _zero, lambda s: 1 - _second(s)
    ),
    # the head
    "head.singular_entropy": Known(
        "KL(√λ ‖ even)",
        "as for a cloud of V vectors",
        lambda s: amplitude_entropy(_table(s)),
        lambda s: 2 * _table(s) / s.d,
    ),
    "head.effective_rank": Known(
        "d·exp(−d/2V)",
        "as for a cloud",
        lambda s: s.d * math.exp(-_table(s) / 2),
        lambda s: 2 * _table(s),
    ),
    "head.stable_rank": Known(
        "d/E λ₁", "as for a cloud", lambda s: s.d / top_energy(s.rows, s.d), lambda s: 0.03 * s.d
    ),
    "head.top_ratio": Known(
        "√(E λ₁/median λ)",
        "the median of Marchenko and Pastur's law",
        lambda s: math.sqrt(top_energy(s.rows, s.d) / _median(_table(s))),
        lambda s: 0.02,
    ),
    "head.half_error_rank": Known(
        "k with ∫_{λ > λ_k} λ = ¾",
        "Marchenko and Pastur",
        lambda s: error_rank(0.5, _table(s), s.d),
        lambda s: 1.5,
    ),
    "head.tenth_error_rank": Known(
        "k with ∫_{λ > λ_k} λ = 0.99",
        "Marchenko and Pastur",
        lambda s: error_rank(0.1, _table(s), s.d),
        lambda s: 1.5,
    ),
    "loss.loss": Known("—", "depends on the head and the text"),
    "loss.unigram_entropy": Known("—", COUNTS),
    "loss.counting_loss": Known("—", COUNTS),
    "loss.best_loss": Known("—", "depends on the head and the text"),
    "loss.predicted": Known("—", A_COUNT),
    "collapse.classes": Known("—", A_COUNT),
    "collapse.cdnv": Known(
        "d(m − 1)/(2(d − 2))",
        "classes of m: scatter d(1 − 1/m), ‖μ − μ'‖² = (2/m)χ²_d, E 1/χ²_d = 1/(d − 2)",
        lambda s: s.d * (s.of_class - 1) / (2 * (s.d - 2)),
        lambda s: 0.1 * s.of_class / 2,
    ),
    "collapse.equinorm": Known(
        "√(d − (E χ_d)²)/E χ_d",
        "norms are χ_d, scaled",
        lambda s: math.sqrt(s.d - chi_mean(s.d) ** 2) / chi_mean(s.d),
        lambda s: 4 * (0.5 / s.classes) ** 0.5 / chi_mean(s.d),
    ),
    "collapse.interference": Known(
        "Hotelling's E r at ρ = −1/(C − 1)",
        "centred on their own mean",
        lambda s: mean_correlation(-1 / (s.classes - 1), s.d),
        lambda s: 4 * math.sqrt(2 / s.d) / s.classes,
    ),
    "collapse.spread": Known(
        "√(ψ₁(a) − ψ₁(2a))/|log 4 + ψ(a) − ψ(2a)|, a = (d − 1)/2",
        "(1 − cos)/2 is Beta(a, a)",
        lambda s: (
            math.sqrt(float(polygamma(1, (s.d - 1) / 2) - polygamma(1, s.d - 1)))
            / abs(math.log(4) + float(psi((s.d - 1) / 2) - psi(s.d - 1)))
        ),
        lambda s: 0.02,
    ),
    "collapse.duality": Known(
        "0", "rows that know nothing of the classes", _zero, lambda s: 4 / (s.d * s.classes) ** 0.5
    ),
    "collapse.duality_spread": Known("—", "a mean of 0 is divided by"),
    "collapse.agreement": Known(
        "—", "depends on how even the predictions are; 1/C for predictions at random"
    ),
    # attention
    "attention.head": Known("—", GIVEN),
    **{
        f"attention.{name}": Known(
            "1/√n",
            "E χ_e/√n over E χ_e",
            lambda s: s.n**-0.5,
            lambda s: 4 * (0.5 / s.n / s.d) ** 0.5,
        )
        for name in ("query_drift", "key_drift")
    },
    **{
        f"attention.{name}": Known(
            "E χ_e/√n",
            "the mean is N(0, I/n)",
            lambda s: chi_mean(s.d) / s.n**0.5,
            lambda s: 4 * (0.5 / s.n) ** 0.5,
        )
        for name in ("query_norm", "key_norm")
    },
    "attention.drift_cosine": Known(
        "0", "means of independent draws", _zero, lambda s: 4 / s.d**0.5
    ),
    "attention.attention_entropy": Known("—", "of a softmax of dependent scores; no closed form"),
    "attention.sharpness": Known("—", "the same"),
    "attention.first_share": Known(
        "mean of 1/t over t = 2 ... T",
        "keys are exchangeable: each of t visible ones gets 1/t",
        lambda s: float((1 / np.arange(2, s.window + 1)).mean()),
        lambda s: 4 * (0.1 / s.n) ** 0.5,
    ),
    "attention.added_share": Known("0", "nothing is added around these keys", _zero),
}
