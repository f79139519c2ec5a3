"""The spectrum of one matrix of weights: its energies, the power law of its tail, and what a random
matrix of its shape has.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from scipy.linalg import eigvalsh_tridiagonal
from torch import Tensor

from headscan.statistics.uncertainty import Floats, bounded

EXACT = 1024  # short sides up to which products and eigenvalues are float64 throughout
# rows whose products are summed in float32 beyond it; panels of a symmetric product
PIECE = 4096
PANELS = 8


def energies(matrix: Tensor | Iterable[Tensor]) -> Floats:
    """The squared singular values of a matrix [n, m] of any float type, ascending, float64 [min(n,
    m)].

    They are the eigenvalues of the Gram matrix of the short side, which pieces [k, m] of a tall
    matrix add up to: n m²·9/16 multiplications and O(m³). Up to a short side of 1,024 all is
    float64, and an energy errs by about 10⁻¹⁵ of the largest; beyond it all is float32, and an
    energy errs by about 10⁻⁶ of the largest. NaN where an entry is not finite.
    """
    if isinstance(matrix, Tensor):
        matrix = (matrix if len(matrix) >= matrix.shape[1] else matrix.T).split(PIECE)
    gram = torch.zeros(0)
    kind = torch.float64
    for piece in matrix:
        width = piece.shape[1]
        kind = torch.float64 if width <= EXACT else torch.float32
        rows = piece.detach().to(kind)
        gram = (
            gram
            if len(gram)
            else torch.zeros(width, width, dtype=torch.float64, device=rows.device)
        )
        for a, b in pairwise(width * i // PANELS for i in range(PANELS + 1)):
            gram[a:b, a:] += rows[:, a:b].T @ rows[:, a:]
    if not bool(torch.isfinite(gram).all()):
        return np.full(len(gram), np.nan)
    found: Floats = (
        torch.linalg.eigvalsh(gram.to(kind), UPLO="U").clamp(min=0.0).double().cpu().numpy()
    )
    return found


def stable_rank(values: Floats) -> float:
    """‖W‖²_F/‖W‖²₂ of the energies of a matrix that is not 0; 1 to the short side."""
    return float(values.sum() / values.max())


@dataclass(frozen=True)
class PowerLawTail:
    """A density that falls as x^(−exponent) from `least` on, fitted to the `count` largest values.

    distance: of Kolmogorov and Smirnov. interval: 95 %, of the exponent; p: the share of samples of
    the fitted law that lie as far from their own fit (+1 of +1), small where the tail is no power
    law. Both None where nothing was drawn.
    """

    exponent: float
    least: float
    count: int
    distance: float
    interval: tuple[float, float] | None = None
    p: float | None = None


# values; tails that a drawn sample is fitted from
FEWEST = 8
CANDIDATES = 32


def power_law(values: Floats, *, draws: int = 100, seed: int = 0) -> PowerLawTail | None:
    """The power law of the tail of positive values: every value is tried as its beginning, the
    nearest fit is kept.

    With k values from x₀ on, the exponent is 1 + k/Σ log(x/x₀) (Hill 1975), and x₀ minimises the
    distance (Clauset, Shalizi and Newman 2009). A drawn sample has values below x₀ from the data
    and values above it from the law, in their proportion, and is fitted itself, from fewer
    beginnings; the interval is the fit less the quantiles of their errors. Draws are independent,
    which eigenvalues are not: they repel each other. docs/weights.md has the coverage. None of
    fewer than eight different values.
    """
    logs = np.log(np.unique(values[values > 0]))
    n = len(logs)
    if n < FEWEST:
        return None
    found = _nearest(logs[None], range(n, 1, -1))
    slope = float(found[1][0])
    count = int(found[2][0])
    fitted = PowerLawTail(1 + slope, float(np.exp(logs[n - count])), count, float(found[0][0]))
    if not draws:
        return fitted
    generator = np.random.default_rng(seed)
    samples = np.tile(logs, (draws + 1, 1))
    for sample, above in zip(samples[1:], generator.binomial(n, count / n, draws), strict=True):
        sample[above:] = generator.choice(logs[: n - count] if count < n else logs, n - above)
        sample[:above] = logs[n - count] + generator.exponential(1 / slope, above)
    samples.sort(axis=1)
    distances, slopes, _ = _nearest(
        samples, np.unique(np.geomspace(FEWEST, n, CANDIDATES).round().astype(int))
    )
    low, high = 1 + np.quantile(slopes[1:], (0.025, 0.975))
    interval = bounded(2 * fitted.exponent - high, 2 * fitted.exponent - low, (1.0, None))
    p = float((distances >= distances[0]).mean())
    return PowerLawTail(fitted.exponent, fitted.least, count, fitted.distance, interval, p)


def _nearest(samples: Floats, sizes: Iterable[int]) -> tuple[Floats, Floats, Floats]:
    """Of each sample [B, n] of sorted logarithms the tail nearest to its power law: distance,
    slope, size, [B] each.
    """
    best = np.full((3, len(samples)), np.inf)
    for size in sizes:
        tails = samples[:, -size:] - samples[:, -size, None]
        slopes = size / np.maximum(tails.sum(1), 1e-300)
        shares = np.exp(-slopes[:, None] * tails) + (np.arange(size) / size - 1)
        distances = np.abs(shares, out=shares).max(1)
        best = np.where(distances < best[0], [distances, slopes, np.full(len(samples), size)], best)
    return best[0], best[1], best[2]


DRAWS = 8


@cache
def random_energies(long: int, short: int) -> Floats:
    """The energies of random matrices of unit mean square, [8, short], ascending: exact draws that
    need no matrix.

    Householder's reflections make a normal matrix bidiagonal, with entries that are roots of χ² of
    known freedoms (Dumitriu and Edelman 2002): O(short²). The draws are the same at every call.
    """
    generator = np.random.default_rng((long, short))
    found = list[Floats]()
    for _ in range(DRAWS):
        main = generator.chisquare(long - np.arange(short))
        side = generator.chisquare(np.arange(short - 1, 0, -1))
        found.append(
            eigvalsh_tridiagonal(main + np.concatenate([[0.0], side]), np.sqrt(main[:-1] * side))
        )
    return np.maximum(found, 0.0)


def largest_energy(long: int, short: int) -> float:
    """What the largest energy of a normal matrix of unit mean square exceeds in 1 of 100, by Tracy
    and Widom's law. 2.0234 times its scale above (√(n − 1) + √m)² (Johnstone 2001): Marchenko and
    Pastur's edge at finite size.
    """
    root = (long - 1) ** 0.5
    side = short**0.5
    return float((root + side) ** 2 + 2.0234 * (root + side) * (1 / root + 1 / side) ** (1 / 3))


def distance_between(values: Floats, others: Floats) -> float:
    """The greatest difference between the shares of two sets of numbers below any point (Kolmogorov
    and Smirnov), 0 to 1.
    """
    at = np.concatenate([values, others])
    below = [np.searchsorted(np.sort(each), at, "right") / len(each) for each in (values, others)]
    return float(np.abs(below[0] - below[1]).max())
