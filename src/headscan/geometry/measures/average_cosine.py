"""Average cosine: The cosine between two tokens, averaged over all pairs."""

from __future__ import annotations

from headscan.geometry.explained import MeasureWords
from headscan.geometry.measure import measure
from headscan.geometry.moments import Gradient, Moments
from headscan.geometry.noise import Noise
from headscan.statistics import Cloud

__all__ = ["average_cosine"]


def _gradient(at: Moments) -> Gradient | None:
    """2m/(1 − z)², z the share of vectors without a direction."""
    rest = 1 - at.zeros
    if rest <= 0:
        return None
    return Gradient(unit=2 * at.unit / rest**2, zeros=2 * float(at.unit @ at.unit) / rest**3)


def _bias(cloud: Cloud, noise: Noise) -> float | None:
    """E‖ū − Eū‖², less what pairs of a token with itself make of it, which are left out already."""
    n = cloud.count - cloud.zeros
    if n < 2:
        return None
    return noise.unit - (1 - float(cloud.unit_sum @ cloud.unit_sum) / n**2) / (n - 1)


@measure(
    MeasureWords(
        title="Average cosine",
        group="cones",
        sentence="The cosine between two tokens, averaged over all pairs: 0 for a round cloud, 1 for a needle.",
        formula="(‖Σû‖² − n) / (n(n − 1)),  û = x/‖x‖",
        range=(-1.0, 1.0),
        source="Ethayarajh 2019, arXiv:1909.00512; exact form: Godey et al. 2024, arXiv:2401.12143",
        undefined="fewer than two vectors that are not zero",
        column="average cosine",
        order=1,
        docs="cones.md",
    ),
    gradient=_gradient,
    bias=_bias,
)
def average_cosine(cloud: Cloud) -> float | None:
    """Mean cosine over all ordered pairs of distinct vectors, exact.

    The double sum Σᵢⱼ ûᵢ·ûⱼ is ‖Σû‖², and its n diagonal terms are 1 each; so one vector sum replaces n² cosines.
    In [−1/(n−1), 1]. Vectors of norm zero have no direction and are left out. Cost O(nd) in place of O(n²d).

    >>> round(average_cosine(Cloud.of_rows([[1, 0], [0, 2], [1, 1]])), 6)
    0.471405
    """
    n = cloud.count - cloud.zeros
    if n < 2:
        return None
    return float((cloud.unit_sum @ cloud.unit_sum - n) / (n * (n - 1)))
