"""The numbers of evaluation tasks, each with its interval over items."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats

from headscan.statistics.uncertainty import Bounds, clustered, difference_ends

Scores = dict[str, float | int | list[float] | None]
"""Numbers by name; NAME_interval is the 95 % interval [low, high] over other items."""


@dataclass(frozen=True)
class ItemNumber:
    """A number of items: a function of the indices of those that are used; see `scored`."""

    function: Callable[[npt.NDArray[np.int64]], float | None]
    items: int
    groups: Sequence[object] | None
    bounds: Bounds

    def scores(self, name: str) -> Scores:
        """Return the number of all items, and its interval."""
        interval = clustered(self.function, self.items, groups=self.groups, bounds=self.bounds)
        return {name: self.function(np.arange(self.items)), f"{name}_interval": interval}

    def minus(self, other: "ItemNumber") -> "ItemNumber":
        """Return the difference to another number of the same items."""

        def difference(indices: npt.NDArray[np.int64]) -> float | None:
            value = self.function(indices)
            other_value = other.function(indices)
            return None if value is None or other_value is None else value - other_value

        bounds = difference_ends(self.bounds, other.bounds)
        return ItemNumber(difference, self.items, self.groups, bounds)


ItemNumbers = dict[str, ItemNumber]
"""Numbers by name."""

COLLECTED: ContextVar[ItemNumbers | None] = ContextVar("collected numbers", default=None)


def scored(
    name: str,
    function: Callable[[npt.NDArray[np.int64]], float | None],
    items: int,
    *,
    groups: Sequence[object] | None = None,
    bounds: Bounds = (None, None),
) -> Scores:
    """Return a number of items and its interval; see `headscan.statistics.uncertainty.clustered`.

    Args:
        function: the number, given the indices of the items that are used.
        items: how many items there are.
        groups: the group of each item; items of a group err together.
    """
    number = ItemNumber(function, items, groups, bounds)
    collected = COLLECTED.get()
    if collected is not None:
        collected[name] = number
    return number.scores(name)


def changes(before: ItemNumbers, after: ItemNumbers) -> Scores:
    """Return by how much numbers of the same items changed, with paired intervals over items."""
    scores: Scores = {}
    for name, number in after.items():
        if name in before and before[name].items == number.items:
            scores |= number.minus(before[name]).scores(f"{name} change")
    return scores


@contextmanager
def collecting() -> Iterator[ItemNumbers]:
    """Collect all numbers that `scored` makes in this context."""
    numbers: ItemNumbers = {}
    token = COLLECTED.set(numbers)
    try:
        yield numbers
    finally:
        COLLECTED.reset(token)


def mean_of(
    name: str,
    values: npt.ArrayLike,
    *,
    groups: Sequence[object] | None = None,
    bounds: tuple[float | None, float | None] = (0.0, 1.0),
) -> Scores:
    """Return the mean of items' values (a share, where they are 0 and 1) and its interval.

    >>> mean_of("accuracy", [1, 1, 0, 1, 1, 0, 1, 1])["accuracy"]
    0.75
    """
    numbers = np.asarray(values, dtype=float)

    def mean(indices: npt.NDArray[np.int64]) -> float:
        return float(numbers[indices].mean())

    return scored(name, mean, len(numbers), groups=groups, bounds=bounds)


def similarity_scores(
    name: str, left: npt.NDArray[Any], right: npt.NDArray[Any], gold: npt.NDArray[Any]
) -> Scores:
    """Return Spearman's correlation of cosines with human scores, and its interval over pairs.

    Args:
        left, right: vectors [n, d] of the first and second sentences.
        gold: the human scores [n].

    >>> right = np.array([[1.0, 0, 0], [1, 1, 0], [1, 1, 0.5]])
    >>> similarity_scores("x", np.eye(3), right, np.array([5, 3, 1]))["x"]
    1.0
    """
    cosines = (_unit(left) * _unit(right)).sum(1)

    def correlation(indices: npt.NDArray[np.int64]) -> float:
        return round(float(stats.spearmanr(cosines[indices], gold[indices]).statistic), 12)

    return scored(name, correlation, len(gold), bounds=(-1.0, 1.0))


def retrieval(left: npt.NDArray[Any], right: npt.NDArray[Any], *, centre: bool = True) -> Scores:
    """Return the share of sentences whose nearest neighbour in the other language translates them.

    Args:
        left, right: vectors [n, d] of aligned sentences of two languages.
        centre: whether each language's mean is subtracted, which takes the language itself out.

    Returns:
        The share "there" (from left to right), "back", and their "mean", with intervals.

    >>> retrieval(np.eye(4), np.eye(4))["mean"]
    1.0
    """
    if centre:
        left = left - left.mean(0)
        right = right - right.mean(0)
    cosines = _unit(left) @ _unit(right).T
    diagonal = np.arange(len(left))
    forward_hits = cosines.argmax(1) == diagonal
    backward_hits = cosines.argmax(0) == diagonal
    return {
        **mean_of("there", forward_hits),
        **mean_of("back", backward_hits),
        **mean_of("mean", (forward_hits + 0.0 + backward_hits) / 2),
    }


def balanced_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy in which every class of the batch weighs alike, in nats.

    It is the mean over classes of a class's mean loss (Godey et al. 2024, appendix E). With equally
    many items of each class it is the ordinary cross-entropy.

    Args:
        logits: [n, classes].
        labels: int [n].

    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    >>> round(balanced_cross_entropy(logits, torch.tensor([0, 0, 1])).item(), 4)
    0.41
    """
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    counts = torch.bincount(labels, minlength=logits.shape[1])
    return (losses / counts[labels]).sum() / (counts > 0).sum()


def probe(
    train: npt.NDArray[np.floating],
    train_labels: npt.NDArray[np.integer],
    test: npt.NDArray[np.floating],
    test_labels: npt.NDArray[np.integer],
    *,
    groups: Sequence[object] | None = None,
) -> Scores:
    """Train a linear probe on vectors with labels; return its test accuracy and Matthews'
    correlation.

    The probe is multinomial logistic regression by L-BFGS on standardised features. Each class
    weighs alike (as in the published balanced cross-entropy). It is deterministic. The intervals
    are over other test items, with the probe held fixed.

    Args:
        train, test: vectors [n, d].
        train_labels, test_labels: int [n].
        groups: the group of each test item; items of a group err together.
    """
    mean = train.mean(0)
    spread = train.std(0) + 1e-6
    train_features = torch.from_numpy((train - mean) / spread).double()
    targets = torch.from_numpy(np.asarray(train_labels)).long()
    test_features = torch.from_numpy((test - mean) / spread).double()

    classes = int(targets.max()) + 1
    columns = train_features.shape[1] + 1
    weight = torch.zeros(classes, columns, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        logits = train_features @ weight[:, :-1].T + weight[:, -1]
        penalty = 1e-3 * weight[:, :-1].square().sum()
        value = balanced_cross_entropy(logits, targets) + penalty
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        test_logits = test_features @ weight[:, :-1].T + weight[:, -1]
        predicted = test_logits.argmax(1).numpy()
    labels = np.asarray(test_labels)

    def correlation(indices: npt.NDArray[np.int64]) -> float:
        return matthews(predicted[indices], labels[indices])

    return {
        **mean_of("accuracy", predicted == labels, groups=groups),
        **scored("matthews", correlation, len(labels), groups=groups, bounds=(-1.0, 1.0)),
    }


def pair_features(
    left: npt.NDArray[np.floating], right: npt.NDArray[np.floating]
) -> npt.NDArray[np.floating]:
    """Return features [n, 4d] of pairs of vectors [n, d]: both, their absolute difference, their
    product.

    >>> pair_features(np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])).tolist()
    [[1.0, 2.0, 3.0, -1.0, 2.0, 3.0, 3.0, -2.0]]
    """
    return np.concatenate([left, right, np.abs(left - right), left * right], axis=1)


@dataclass(frozen=True, eq=False)
class LabelledPairs:
    """Pairs of sentences, and the class of each pair, int [n]."""

    left: list[str]
    right: list[str]
    labels: npt.NDArray[np.int64]


def probe_pairs(
    vectors: Callable[[list[str]], npt.NDArray[np.float32]],
    train: LabelledPairs,
    test: LabelledPairs,
) -> Scores:
    """Return the scores of `probe` on pairs of sentences.

    `largest_class` is the share of the test's largest class.

    Args:
        vectors: gives the vectors [n, d] of sentences.
    """
    train_features = pair_features(vectors(train.left), vectors(train.right))
    test_features = pair_features(vectors(test.left), vectors(test.right))
    return {
        **probe(train_features, train.labels, test_features, test.labels),
        "largest_class": float(np.bincount(test.labels).max() / len(test.labels)),
    }


def matthews(predicted: npt.NDArray[Any], labels: npt.NDArray[Any]) -> float:
    """Return Matthews' correlation of two labelings, of any number of classes.

    It is 1 for equal labelings, and 0 for chance or for one class only.

    >>> matthews(np.array([0, 1, 1]), np.array([0, 1, 1]))
    1.0
    """
    classes = np.unique(np.concatenate([predicted, labels]))

    def centred_indicators(labeling: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        indicators = np.stack([labeling == label for label in classes], 1).astype(float)
        centred: npt.NDArray[np.float64] = indicators - indicators.mean(0)
        return centred

    p = centred_indicators(predicted)
    t = centred_indicators(labels)
    scale = np.sqrt((p * p).sum() * (t * t).sum())
    return round(float((p * t).sum() / scale), 12) if scale else 0.0


def _unit(vectors: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
    """Return the rows divided by their norms; rows of zeros stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: npt.NDArray[np.floating] = vectors / np.maximum(norms, 1e-12)
    return unit
