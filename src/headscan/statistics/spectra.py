"""The spectrum of one matrix of weights: its energies, the power law of its tail, and the energies
of a random matrix of its shape.
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

EXACT = 1024
"""Short sides up to which products and eigenvalues are float64 throughout."""

PIECE = 4096
"""Rows whose products are summed in float32 where the short side is longer than `EXACT`."""

PANELS = 8
"""Panels of a symmetric product; the part below the diagonal is left out."""

FEWEST = 8
"""Values that a power law needs."""

CANDIDATES = 32
"""Beginnings of the tail that are tried on a drawn sample."""

DRAWS = 8
"""Random matrices that `random_energies` draws."""


def energies(matrix: Tensor | Iterable[Tensor]) -> Floats:
    """Return the squared singular values of a matrix [n, m], ascending, float64 [min(n, m)].

    They are the eigenvalues of the Gram matrix of the short side, which is the sum over pieces [k,
    m] of a tall matrix: n m²·9/16 multiplications and O(m³). Up to a short side of 1,024 all is
    float64, and an energy errs by about 10⁻¹⁵ of the largest; beyond it all is float32, and an
    energy errs by about 10⁻⁶ of the largest. NaN where an entry is not finite.
    """
    pieces: Iterable[Tensor]
    if isinstance(matrix, Tensor):
        tall = matrix if len(matrix) >= matrix.shape[1] else matrix.T
        pieces = tall.split(PIECE)
    else:
        pieces = matrix

    gram = torch.zeros(0)
    dtype = torch.float64
    for piece in pieces:
        width = piece.shape[1]
        dtype = torch.float64 if width <= EXACT else torch.float32
        rows = piece.detach().to(dtype)
        if not len(gram):
            gram = torch.zeros(width, width, dtype=torch.float64, device=rows.device)
        cuts = [width * i // PANELS for i in range(PANELS + 1)]
        for start, end in pairwise(cuts):
            gram[start:end, start:] += rows[:, start:end].T @ rows[:, start:]

    if not bool(torch.isfinite(gram).all()):
        return np.full(len(gram), np.nan)
    eigenvalues = torch.linalg.eigvalsh(gram.to(dtype), UPLO="U").clamp(min=0.0)
    values: Floats = eigenvalues.double().cpu().numpy()
    return values


def stable_rank(values: Floats) -> float:
    """Return ‖W‖²_F/‖W‖²₂ from the energies of a matrix that is not 0; 1 to the short side."""
    return float(values.sum() / values.max())


@dataclass(frozen=True)
class PowerLawTail:
    """A density that falls as x^(−exponent) from `least` on, fitted to the `count` largest values.

    distance: of Kolmogorov and Smirnov. interval: 95 %, of the exponent; p: the share of samples of
    the fitted law that lie as far from their own fit (+1 of +1), small where the tail is no power
    law. Both are None where nothing was drawn.
    """

    exponent: float
    least: float
    count: int
    distance: float
    interval: tuple[float, float] | None = None
    p: float | None = None


def power_law(values: Floats, *, draws: int = 100, seed: int = 0) -> PowerLawTail | None:
    """Return the power law of the tail of positive values; None for fewer than eight different
    ones.

    Every value is tried as the beginning x₀ of the tail. With k values from x₀ on, the exponent is
    1 + k/Σ log(x/x₀) (Hill 1975), and x₀ minimises the distance (Clauset, Shalizi and Newman 2009).

    A drawn sample has values below x₀ from the data and values above it from the law, in their
    proportion, and is fitted itself, from fewer beginnings; the interval is the fit less the
    quantiles of their errors. Draws are independent, which eigenvalues are not: they repel each
    other. docs/weights.md has the coverage.
    """
    logs = np.log(np.unique(values[values > 0]))
    n = len(logs)
    if n < FEWEST:
        return None
    distances, slopes, sizes = _nearest_tails(logs[None], range(n, 1, -1))
    slope = float(slopes[0])
    count = int(sizes[0])
    least = float(np.exp(logs[n - count]))
    tail = PowerLawTail(1 + slope, least, count, float(distances[0]))
    if not draws:
        return tail

    samples = _drawn_samples(logs, count, slope, draws, seed)
    candidates = np.unique(np.geomspace(FEWEST, n, CANDIDATES).round().astype(int))
    distances, slopes, _ = _nearest_tails(samples, candidates)
    low, high = 1 + np.quantile(slopes[1:], (0.025, 0.975))
    interval = bounded(2 * tail.exponent - high, 2 * tail.exponent - low, (1.0, None))
    p = float((distances >= distances[0]).mean())
    return PowerLawTail(tail.exponent, tail.least, count, tail.distance, interval, p)


def _drawn_samples(logs: Floats, count: int, slope: float, draws: int, seed: int) -> Floats:
    """Return the sorted logarithms, then those of drawn samples [draws + 1, n].

    `count` of the `logs` [n] are the tail, whose logarithms fall exponentially with `slope`.
    """
    n = len(logs)
    start = logs[n - count]
    below = logs[: n - count] if count < n else logs
    generator = np.random.default_rng(seed)
    samples = np.tile(logs, (draws + 1, 1))
    tail_sizes = generator.binomial(n, count / n, draws)
    for sample, tail_size in zip(samples[1:], tail_sizes, strict=True):
        sample[tail_size:] = generator.choice(below, n - tail_size)
        sample[:tail_size] = start + generator.exponential(1 / slope, tail_size)
    samples.sort(axis=1)
    return samples


def _nearest_tails(samples: Floats, sizes: Iterable[int]) -> tuple[Floats, Floats, Floats]:
    """Return distance, slope and size [B] of the tail of each sample nearest to its power law.

    Samples [B, n] are sorted logarithms; the tails of these `sizes` are tried.
    """
    best = np.full((3, len(samples)), np.inf)
    for size in sizes:
        tails = samples[:, -size:] - samples[:, -size, None]
        slopes = size / np.maximum(tails.sum(1), 1e-300)
        differences = np.exp(-slopes[:, None] * tails) + (np.arange(size) / size - 1)
        distances = np.abs(differences, out=differences).max(1)
        fit = [distances, slopes, np.full(len(samples), size)]
        best = np.where(distances < best[0], fit, best)
    return best[0], best[1], best[2]


@cache
def random_energies(long: int, short: int) -> Floats:
    """Return the energies of random matrices of unit mean square, [8, short], ascending.

    They are exact draws that need no matrix: Householder's reflections make a normal matrix
    bidiagonal, with entries that are roots of χ² of known degrees of freedom (Dumitriu and Edelman
    2002): O(short²). The draws are the same at every call.
    """
    generator = np.random.default_rng((long, short))
    draws: list[Floats] = []
    for _ in range(DRAWS):
        main = generator.chisquare(long - np.arange(short))
        side = generator.chisquare(np.arange(short - 1, 0, -1))
        diagonal = main + np.concatenate([[0.0], side])
        off_diagonal = np.sqrt(main[:-1] * side)
        draws.append(eigvalsh_tridiagonal(diagonal, off_diagonal))
    return np.maximum(draws, 0.0)


def largest_energy(long: int, short: int) -> float:
    """Return what the largest energy of a normal matrix of unit mean square exceeds in 1 of 100.

    By Tracy and Widom's law it is 2.0234 times its scale above (√(n − 1) + √m)² (Johnstone 2001):
    Marchenko and Pastur's edge at finite size.
    """
    root = (long - 1) ** 0.5
    side = short**0.5
    edge = (root + side) ** 2
    return float(edge + 2.0234 * (root + side) * (1 / root + 1 / side) ** (1 / 3))


def distance_between(a: Floats, b: Floats) -> float:
    """Return the greatest difference between the shares of two sets of numbers below any point
    (Kolmogorov and Smirnov), 0 to 1.
    """
    points = np.concatenate([a, b])
    a_below = np.searchsorted(np.sort(a), points, "right") / len(a)
    b_below = np.searchsorted(np.sort(b), points, "right") / len(b)
    return float(np.abs(a_below - b_below).max())
