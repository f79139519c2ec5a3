"""What a noisy release of one of many candidates tells of which it was: proved bounds in bits, and the truth by Monte Carlo.

These modules know points and probabilities, and no language model.
"""

from __future__ import annotations

from headscan.leaks.bounds.code import Code
from headscan.leaks.bounds.law import GAUSSIAN, LAPLACE, UNIFORM, Law
from headscan.leaks.bounds.mixture import pairwise_bits, pairwise_curve, union_accuracy
from headscan.leaks.bounds.particles import Sandwich, Stepper, sandwich
from headscan.leaks.bounds.tightest import LeakBounds, accuracy_ceiling, code_bits, leak_bounds
from headscan.leaks.bounds.truth import MonteCarlo, draws_of, monte_carlo

__all__ = [
    "GAUSSIAN", "LAPLACE", "UNIFORM", "Code", "Law", "LeakBounds", "MonteCarlo", "Sandwich", "Stepper", "accuracy_ceiling",
    "code_bits", "draws_of", "leak_bounds", "monte_carlo", "pairwise_bits", "pairwise_curve", "sandwich", "union_accuracy",
]  # fmt: skip
