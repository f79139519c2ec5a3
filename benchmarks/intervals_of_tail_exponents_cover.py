"""How often the 95 % interval of a tail's exponent holds the true one, and how often its p rejects
the fit.

*Independent values*: a tail of exponent 2 or 4, a tenth or half of the values, above a body that
ends at it sharply (uniform) or smoothly (a power with the tail's density at its beginning). *Heavy
matrices*: singular values of matrices [3 k, k] of Student's t entries with 2 degrees of freedom,
whose largest σ² have the exponent 1 + 2/2 as k grows (Soshnikov 2004; Auffinger, Ben Arous and
Péché 2009): eigenvalues, which repel each other. *Normal matrices* [3 k, k] have no tail: the truth
is then the mean of all fits, which is what a control's exponent is compared with. Arguments: draws
a row (300), numbers of values (128,384,1536).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from _table import show

from headscan.statistics.spectra import power_law
from headscan.statistics.uncertainty import wilson

Draw = Callable[[np.random.Generator, int], np.ndarray]


def tailed(exponent: float, share: float, smooth: bool) -> Draw:
    """Independent values with a tail above 1."""
    slope = exponent - 1
    power = share * slope / (1 - share) if smooth else 1.0  # of the body's distribution function

    def draw(generator: np.random.Generator, count: int) -> np.ndarray:
        above = generator.random(count) < share
        uniform = 1 - generator.random(count)
        return np.where(above, uniform ** (-1 / slope), np.maximum(uniform ** (1 / power), 1e-30))

    return draw


def heavy(generator: np.random.Generator, count: int) -> np.ndarray:
    """σ² of a matrix of Student's t entries."""
    values = np.linalg.svd(generator.standard_t(2, (3 * count, count)), compute_uv=False)
    return np.asarray(values**2)


def normal(generator: np.random.Generator, count: int) -> np.ndarray:
    """σ² of a matrix of normal entries."""
    return np.asarray(
        np.linalg.svd(generator.standard_normal((3 * count, count)), compute_uv=False) ** 2
    )


def row(title: str, draw: Draw, count: int, truth: float | None, draws: int) -> dict[str, object]:
    """Coverage over the draws of one law."""
    tails = [
        power_law(draw(np.random.default_rng((count, k)), count), seed=k) for k in range(draws)
    ]
    fits = [tail for tail in tails if tail is not None and tail.interval is not None]
    aim = float(np.mean([fit.exponent for fit in fits])) if truth is None else truth
    covering = sum(fit.interval[0] <= aim <= fit.interval[1] for fit in fits if fit.interval)
    low, high = wilson(covering, len(fits))
    return {
        "values": count,
        "law": title,
        "exponent": aim,
        "median_fit": float(np.median([fit.exponent for fit in fits])),
        "covers": covering / len(fits),
        "95_%": f"{low:.3f} to {high:.3f}",
        "median_width": float(
            np.median([fit.interval[1] - fit.interval[0] for fit in fits if fit.interval])
        ),
        "p_below_.05": float(np.mean([(fit.p or 0.0) < 0.05 for fit in fits])),
    }


def main() -> None:
    """Print the table, size by size."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rows = []
    counts = sys.argv[2] if len(sys.argv) > 2 else "128,384,1536"
    for count in map(int, counts.split(",")):
        for share in (0.1, 0.5):
            for exponent in (2.0, 4.0):
                for smooth in (False, True):
                    title = f"{share:g} in the tail, {'smooth' if smooth else 'sharp'}"
                    rows.append(row(title, tailed(exponent, share, smooth), count, exponent, draws))
        if count < 1000:
            rows += [
                row("heavy matrix", heavy, count, 2.0, draws),
                row("normal matrix", normal, count, None, draws),
            ]
        print(count, file=sys.stderr, flush=True)
    show(rows)


if __name__ == "__main__":
    main()
