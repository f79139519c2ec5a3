"""Theory of next-token prediction that no verb of the instrument uses.

- `regularisation_path`, `increment`, `largest_penalty`: the path as λ → 0; `narrow`: embeddings
  below full width
- `train_features`: gradient descent and Adam on unconstrained features
- `KSubsets`, `all_subsets`, `random_labels`, `StoryGrammar`, `story_labels`: data with known
  answers
- `transformer`: a small transformer, or an MLP, on contexts with soft labels
"""

from headscan_lab.theory.features import FeatureRun, pattern_similarity, train_features
from headscan_lab.theory.instances import KSubsets, all_subsets, random_labels
from headscan_lab.theory.low_width import LowWidth, narrow
from headscan_lab.theory.path import (
    PathPoint,
    increment,
    largest_penalty,
    regularisation_path,
    regularised,
)
from headscan_lab.theory.stories import StoryGrammar, story_labels

__all__ = [
    "FeatureRun",
    "KSubsets",
    "LowWidth",
    "PathPoint",
    "StoryGrammar",
    "all_subsets",
    "increment",
    "largest_penalty",
    "narrow",
    "pattern_similarity",
    "random_labels",
    "regularisation_path",
    "regularised",
    "story_labels",
    "train_features",
]


def __dir__() -> list[str]:
    return __all__
