"""The Gaussian null: what every measure gives on a round cloud of the same size, width and energy."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from headscan.statistics import Cloud

__all__ = ["gaussian_cloud"]


def gaussian_cloud(count: int, width: int, *, mean_square_norm: float, generator: np.random.Generator) -> Cloud:
    """The sums of `count` independent draws from N(0, s²I) in `width` dimensions, without drawing them all.

    s² = mean_square_norm/width. With many draws the sums are sampled from their own laws: the scatter around the mean
    is Wishart with n − 1 degrees of freedom (Bartlett's decomposition: a triangle of normals with χ on its diagonal),
    independent of the mean N(0, s²I/n). Σx/‖x‖ has covariance n·I/d and is normal to O(1/n); Σ‖x‖ is set to its
    expectation n·s·√2·Γ((d+1)/2)/Γ(d/2). With fewer than 2·width + 1000 draws, they are simply drawn.
    Cost O(min(n, d)·d²).

    >>> cloud = gaussian_cloud(10_000, 8, mean_square_norm=2.0, generator=np.random.default_rng(0))
    >>> round(float(np.trace(cloud.second_moment)), 1)
    2.0
    """
    scale = (mean_square_norm / width) ** 0.5
    if count < 2 * width + 1000:
        return Cloud.of_rows(scale * generator.standard_normal((count, width)))
    triangle = np.tril(generator.standard_normal((width, width)), -1)
    triangle[np.diag_indices(width)] = np.sqrt(generator.chisquare(count - 1 - np.arange(width)))
    mean = generator.standard_normal(width) / count**0.5
    scatter = scale**2 * (triangle @ triangle.T)
    expected_norm = scale * 2**0.5 * float(np.exp(gammaln((width + 1) / 2) - gammaln(width / 2)))
    return Cloud(
        count=count,
        zeros=0,
        unit_sum=generator.standard_normal(width) * (count / width) ** 0.5,
        vector_sum=scale * count * mean,
        norm_sum=count * expected_norm,
        square_sum=float(np.trace(scatter)) + scale**2 * count * float(mean @ mean),
        scatter=scatter,
    )
