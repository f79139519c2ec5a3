"""How cone are you? Measures of direction: do the vectors of a cloud point the same way."""

from __future__ import annotations

import numpy as np

from headscan.geometry.measure import measure
from headscan.statistics import Cloud

__all__ = ["average_cosine", "mean_norm", "mean_vector_norm"]

ETHAYARAJH = "Ethayarajh 2019, arXiv:1909.00512"


@measure(
    title="Average cosine",
    group="cones",
    sentence="The cosine between two tokens, averaged over all pairs: 0 for a round cloud, 1 for a needle.",
    formula="(‖Σû‖² − n) / (n(n − 1)),  û = x/‖x‖",
    range=(-1.0, 1.0),
    source=ETHAYARAJH + "; exact form: Godey et al. 2024, arXiv:2401.12143",
    undefined="fewer than two vectors that are not zero",
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


@measure(
    title="Mean norm",
    group="norms",
    sentence="The average length of a token's vector.",
    formula="Σ‖x‖ / n",
    range=(0.0, None),
    source="definition",
    undefined="no vectors",
)
def mean_norm(cloud: Cloud) -> float | None:
    """Average Euclidean norm; in the units of the activations.

    >>> mean_norm(Cloud.of_rows([[3, 4], [0, 1]]))
    3.0
    """
    return cloud.norm_sum / cloud.count if cloud.count else None


@measure(
    title="Norm of the mean vector",
    group="norms",
    sentence="The length of the average of all tokens' vectors: how far the cloud has drifted from the origin.",
    formula="‖Σx‖ / n",
    range=(0.0, None),
    source="Godey et al. 2024, arXiv:2401.12143 (drift)",
    undefined="no vectors",
)
def mean_vector_norm(cloud: Cloud) -> float | None:
    """‖μ‖, at most the mean norm, which it equals when all vectors point the same way.

    >>> mean_vector_norm(Cloud.of_rows([[3, 4], [-3, -4]]))
    0.0
    """
    return float(np.linalg.norm(cloud.mean)) if cloud.count else None
