"""Theory of next-token prediction that no verb of the instrument uses.

- `regularisation_path`, `increment`, `largest_penalty`: the path as λ → 0
- `train_features`: gradient descent and Adam on unconstrained features of any width
- `KSubsets`, `all_subsets`, `random_labels`: data with known answers
- `transformer`: a small transformer on contexts with soft labels
"""

from headscan_lab.theory.features import FeatureRun, pattern_similarity, train_features
from headscan_lab.theory.instances import KSubsets, all_subsets, random_labels
from headscan_lab.theory.path import (
    PathPoint,
    increment,
    largest_penalty,
    regularisation_path,
    regularised,
)

__all__ = [
    "FeatureRun",
    "KSubsets",
    "PathPoint",
    "all_subsets",
    "increment",
    "largest_penalty",
    "pattern_similarity",
    "random_labels",
    "regularisation_path",
    "regularised",
    "train_features",
]


def __dir__() -> list[str]:
    return __all__
