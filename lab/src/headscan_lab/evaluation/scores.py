"""The numbers of evaluation tasks, each with its interval over items."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats

from headscan.statistics.uncertainty import Bounds, clustered, difference_ends

Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ItemNumber:
    """A number of independent items; see `headscan.statistics.uncertainty.clustered`.

    Attributes:
        function: the number, given the indices of the items that are used.
        items: how many items there are.
        groups: the group of each item; items of a group err together.
    """

    function: Callable[[Indices], float | None]
    items: int
    groups: Sequence[object] | None = None
    bounds: Bounds = (None, None)

    @cached_property
    def value(self) -> float | None:
        return self.function(np.arange(self.items))

    @cached_property
    def interval(self) -> list[float] | None:
        """The 95 % interval [low, high] over other items."""
        return clustered(self.function, self.items, groups=self.groups, bounds=self.bounds)

    def minus(self, other: "ItemNumber") -> "ItemNumber":
        """Return the difference to another number of the same items."""

        def difference(indices: Indices) -> float | None:
            value = self.function(indices)
            other_value = other.function(indices)
            return None if value is None or other_value is None else value - other_value

        bounds = difference_ends(self.bounds, other.bounds)
        return ItemNumber(difference, self.items, self.groups, bounds)


@dataclass(frozen=True)
class PlainNumber:
    """A number that is no function of a part of the items: a count, a p-value, a transformed mean.

    Attributes:
        interval: its 95 % interval [low, high], where it has one.
    """

    value: float | int | None
    interval: list[float] | None = None


Numbers: TypeAlias = dict[str, ItemNumber | PlainNumber]
"""The numbers of a task by name."""


def changes(before: Numbers, after: Numbers) -> Numbers:
    """Return by how much numbers of the same items changed, with paired intervals over items."""
    differences: Numbers = {}
    for name, number in after.items():
        earlier = before.get(name)
        if not isinstance(number, ItemNumber) or not isinstance(earlier, ItemNumber):
            continue
        if earlier.items == number.items:
            differences[f"{name} change"] = number.minus(earlier)
    return differences


def mean_of(
    values: npt.ArrayLike,
    *,
    groups: Sequence[object] | None = None,
    bounds: Bounds = (0.0, 1.0),
) -> ItemNumber:
    """Return the mean of items' values (a share, where they are 0 and 1).

    >>> mean_of([1, 1, 0, 1, 1, 0, 1, 1]).value
    0.75
    """
    numbers = np.asarray(values, dtype=float)

    def mean(indices: Indices) -> float:
        return float(numbers[indices].mean())

    return ItemNumber(mean, len(numbers), groups, bounds)


def similarity_number(
    left: npt.NDArray[Any], right: npt.NDArray[Any], gold: npt.NDArray[Any]
) -> ItemNumber:
    """Return Spearman's correlation of cosines with human scores, over pairs.

    Args:
        left, right: vectors [n, d] of the first and second sentences.
        gold: the human scores [n].

    >>> right = np.array([[1.0, 0, 0], [1, 1, 0], [1, 1, 0.5]])
    >>> similarity_number(np.eye(3), right, np.array([5, 3, 1])).value
    1.0
    """
    cosines = (_unit(left) * _unit(right)).sum(1)

    def correlation(indices: Indices) -> float:
        return round(float(stats.spearmanr(cosines[indices], gold[indices]).statistic), 12)

    return ItemNumber(correlation, len(gold), bounds=(-1.0, 1.0))


def retrieval(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> ItemNumber:
    """Return the share of sentences whose nearest neighbour in the other language translates them,
    the mean of both directions.

    Each language's mean is subtracted, which takes the language itself out.

    Args:
        left, right: vectors [n, d] of aligned sentences of two languages.

    >>> retrieval(np.eye(4), np.eye(4)).value
    1.0
    """
    left = left - left.mean(0)
    right = right - right.mean(0)
    cosines = _unit(left) @ _unit(right).T
    diagonal = np.arange(len(left))
    forward_hits = cosines.argmax(1) == diagonal
    backward_hits = cosines.argmax(0) == diagonal
    return mean_of((forward_hits + 0.0 + backward_hits) / 2)


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
) -> Numbers:
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
    return classification(predicted, np.asarray(test_labels), groups=groups)


def classification(
    predicted: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    *,
    groups: Sequence[object] | None = None,
) -> Numbers:
    """Return the accuracy and Matthews' correlation of predicted classes [n]."""

    def correlation(indices: Indices) -> float:
        return matthews(predicted[indices], labels[indices])

    return {
        "accuracy": mean_of(predicted == labels, groups=groups),
        "matthews": ItemNumber(correlation, len(labels), groups, (-1.0, 1.0)),
    }


def largest_class(labels: npt.NDArray[np.int64]) -> PlainNumber:
    """Return the share of the largest class of labels [n]."""
    return PlainNumber(float(np.bincount(labels).max() / len(labels)))


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
) -> Numbers:
    """Return the numbers of `probe` on pairs of sentences.

    `largest_class` is the share of the test's largest class.

    Args:
        vectors: gives the vectors [n, d] of sentences.
    """
    train_features = pair_features(vectors(train.left), vectors(train.right))
    test_features = pair_features(vectors(test.left), vectors(test.right))
    return {
        **probe(train_features, train.labels, test_features, test.labels),
        "largest_class": largest_class(test.labels),
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
