"""Weights alone: the spectrum of every matrix of a model beside a random one's, without a text and
without a forward pass.
"""

from headscan.run.verbs import make_callable
from headscan.weights.reading import StoredMatrix, open_weights
from headscan.weights.run import MatrixRow, WeightsResult, run

__all__ = ["MatrixRow", "StoredMatrix", "WeightsResult", "open_weights", "run"]


def __dir__() -> list[str]:
    return __all__


make_callable(__name__)
