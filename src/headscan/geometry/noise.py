"""How noisy the averages of a text are, and how far a length made of noisy averages lies above the true one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from headscan.statistics import Cloud

__all__ = ["Noise", "length_bias", "worth"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """The errors of a text's averages, as its clusters (documents, or windows with their long memory) show them.

    unit E‖ū − E ū‖² of the mean direction ū = Σx/‖x‖/n, mean E‖μ̂ − μ‖² of the mean vector; tokens: how many independent
    Gaussian tokens have a covariance as noisy (0: not known); error: the measure's own standard error.
    """

    unit: float
    mean: float
    tokens: float
    error: float


def length_bias(length: float, noise: float, along: float) -> float:
    """How far the length of a noisy average lies above that of the true one: noise across it makes it longer.

    `noise` is the average's mean squared error, `along` its standard error in its own direction, which does no harm.

    >>> rows = np.random.default_rng(0).standard_normal((4000, 50, 20)).mean(1) + 0.3      # noise 20/50, along √(1/50)
    >>> lengths = np.linalg.norm(rows, axis=1)
    >>> told = np.mean([length_bias(length, 20 / 50, (1 / 50) ** 0.5) for length in lengths])
    >>> round(float(lengths.mean() - 0.3 * 20**0.5), 2), round(float(told), 2)
    (0.14, 0.14)
    """
    across = max(0.0, noise - along**2)
    return length - float(np.sqrt(max(0.0, length**2 - across)))


def worth(cloud: Cloud, noise: float, basis: Floats) -> float:
    """How many independent Gaussian tokens have a covariance as noisy, E‖Ĉ − C‖² = `noise`, in a basis [d, k] ([d, 0]: all).

    That of n independent Gaussian tokens is ((tr C)² + ‖C‖²)/n. 0 where there is no noise.
    """
    covariance = cloud.covariance
    if basis.shape[1]:
        # torch's products, not numpy's: they obey torch.set_num_threads (see Cloud).
        turn = torch.from_numpy(basis)
        covariance = (turn.T @ torch.from_numpy(covariance) @ turn).numpy()
    square = float((covariance**2).sum())
    return (float(np.trace(covariance)) ** 2 + square) / noise if noise > 0 else 0.0
