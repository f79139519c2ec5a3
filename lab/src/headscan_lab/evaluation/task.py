"""What a trained model can do: an evaluation task is one class of `headscan_lab.evaluation`, or of
a plug-in.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.model.inputs import Pooling, pooled
from headscan.model.traits import embedding_table, output_layer
from headscan.run import BadInput, Registry
from headscan.statistics.uncertainty import clustered
from headscan.training.heads import body_of

# ---- Numbers of evaluation tasks with their intervals over items.

Scores = dict[str, float | int | list[float] | None]
"""Numbers by name; NAME_interval [low, high] beside those that other items would change, 95 %."""


def scored(
    name: str,
    function: Callable[[npt.NDArray[np.int64]], float | None],
    items: int,
    *,
    groups: Sequence[object] | None = None,
    bounds: tuple[float | None, float | None] = (None, None),
) -> Scores:
    """A number of items, given by the numbers of those that are taken, and its interval; see
    `clustered`.
    """
    return {
        name: function(np.arange(items)),
        f"{name}_interval": clustered(function, items, groups=groups, bounds=bounds),
    }


def mean_of(
    name: str,
    values: npt.ArrayLike,
    *,
    groups: Sequence[object] | None = None,
    bounds: tuple[float | None, float | None] = (0.0, 1.0),
) -> Scores:
    """The mean of items' values (a share, of hits 0 and 1), and its interval.

    >>> mean_of("accuracy", [1, 1, 0, 1, 1, 0, 1, 1])["accuracy"]
    0.75
    """
    each = np.asarray(values, dtype=float)
    return scored(
        name, lambda taken: float(each[taken].mean()), len(each), groups=groups, bounds=bounds
    )


# ---- Sentence vectors from any body, and what they are good for: similarity, retrieval across languages, probes.


@torch.no_grad()
def sentence_vectors(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: list[str],
    *,
    context: int | None = None,
    batch: int = 64,
    pooling: Pooling = "mean",
    special: bool = False,
) -> npt.NDArray[np.float32]:
    """Vectors float32 [n, d]: the mean of the last hidden states over a sentence's tokens, or that
    of the "first" or "last". special: with the tokens that the tokenizer itself puts around a text,
    as sentence encoders are trained.
    """
    if pooling not in ("mean", "first", "last"):
        raise BadInput(f"The pooling must be mean, first or last, not {pooling!r}.")
    body = body_of(model)
    training = body.training
    body.eval()
    limit = context or getattr(body.config, "max_position_embeddings", None)
    rows = [
        tokenizer(text, add_special_tokens=special)["input_ids"][:limit] or [0]
        for text in sentences
    ]
    found = np.zeros((len(rows), body.config.hidden_size), dtype=np.float32)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        found[chosen] = pooled_states(body, [rows[i] for i in chosen], pooling).cpu().numpy()
    body.train(training)
    return found


def pooled_states(body: torch.nn.Module, rows: list[list[int]], pooling: Pooling) -> torch.Tensor:
    """Vectors float32 [n, d] of rows of ids, made of the last hidden states, with their gradient."""
    width = max(map(len, rows))
    device = next(body.parameters()).device
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    return pooled(body(input_ids=ids, attention_mask=mask).last_hidden_state.float(), pooling, mask)


def similarity_scores(
    name: str, one: npt.NDArray[Any], other: npt.NDArray[Any], scores: npt.NDArray[Any]
) -> Scores:
    """Spearman's correlation of cosines with human scores, with its interval over pairs: vectors
    [n, d] twice, scores [n].

    >>> similarity_scores("x", np.eye(3), np.array([[1.0, 0, 0], [1, 1, 0], [1, 1, 0.5]]), np.array([5, 3, 1]))["x"]
    1.0
    """
    cosines = (_unit(one) * _unit(other)).sum(1)

    def correlation(taken: npt.NDArray[np.int64]) -> float:
        return round(float(stats.spearmanr(cosines[taken], scores[taken]).statistic), 12)

    return scored(name, correlation, len(scores), bounds=(-1.0, 1.0))


def retrieval(one: npt.NDArray[Any], other: npt.NDArray[Any], *, centre: bool = True) -> Scores:
    """Share of sentences whose nearest neighbour in the other language is their translation, both
    ways.

    Vectors [n, d] of aligned sentences. centre: subtract each language's mean, which takes the
    language itself out.

    >>> retrieval(np.eye(4), np.eye(4))["mean"]
    1.0
    """
    if centre:
        one = one - one.mean(0)
        other = other - other.mean(0)
    cosines = _unit(one) @ _unit(other).T
    own = np.arange(len(one))
    there = cosines.argmax(1) == own
    back = cosines.argmax(0) == own
    return {
        **mean_of("there", there),
        **mean_of("back", back),
        **mean_of("mean", (there + 0.0 + back) / 2),
    }


def balanced_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy in which every class of the batch weighs alike: the mean over classes of its
    mean loss (nats).

    logits [n, C], labels int [n]. The weights come from the batch's own labels (Godey et al. 2024,
    appendix E); with as many of each class it is the ordinary cross-entropy.

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
    """A linear probe, trained on vectors [n, d] with labels [n] and tested: accuracy and Matthews'
    correlation.

    Multinomial logistic regression by L-BFGS on standardised features, which weighs each class
    alike (as the published balanced cross-entropy). Deterministic. Intervals are over other test
    items, the probe as it is; items of one of the `groups` err together.
    """
    mean = train.mean(0)
    spread = train.std(0) + 1e-6
    x = torch.from_numpy((train - mean) / spread).double()
    y = torch.from_numpy(np.asarray(train_labels)).long()
    z = torch.from_numpy((test - mean) / spread).double()
    weight = torch.zeros(int(y.max()) + 1, x.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        logits = x @ weight[:, :-1].T + weight[:, -1]
        value = balanced_cross_entropy(logits, y) + 1e-3 * weight[:, :-1].square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        predicted = (z @ weight[:, :-1].T + weight[:, -1]).argmax(1).numpy()
    labels = np.asarray(test_labels)

    def correlation(taken: npt.NDArray[np.int64]) -> float:
        return matthews(predicted[taken], labels[taken])

    return {
        **mean_of("accuracy", predicted == labels, groups=groups),
        **scored("matthews", correlation, len(labels), groups=groups, bounds=(-1.0, 1.0)),
    }


def pair_features(
    one: npt.NDArray[np.floating], other: npt.NDArray[np.floating]
) -> npt.NDArray[np.floating]:
    """Vectors [n, d] twice to features [n, 4d]: both, the size of their difference, and their
    product.

    >>> pair_features(np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])).tolist()
    [[1.0, 2.0, 3.0, -1.0, 2.0, 3.0, 3.0, -2.0]]
    """
    return np.concatenate([one, other, np.abs(one - other), one * other], axis=1)


Pairs = tuple[list[str], list[str], npt.NDArray[np.int64]]
"""Sentences, sentences, labels."""


def probe_pairs(
    vectors: Callable[[list[str]], npt.NDArray[np.float32]], train: Pairs, test: Pairs
) -> Scores:
    """A probe on pairs of sentences: `probe`, and `largest_class`, the share of the largest class
    of the test.
    """
    (x, labels), (y, wanted) = (
        (pair_features(vectors(one), vectors(other)), known) for one, other, known in (train, test)
    )
    return {
        **probe(x, labels, y, wanted),
        "largest_class": float(np.bincount(wanted).max() / len(wanted)),
    }


def matthews(predicted: npt.NDArray[Any], labels: npt.NDArray[Any]) -> float:
    """Matthews' correlation of two labelings (any number of classes): 1 for equal, 0 for chance or
    for one class only.

    >>> matthews(np.array([0, 1, 1]), np.array([0, 1, 1]))
    1.0
    """
    classes = np.unique(np.concatenate([predicted, labels]))
    p, t = (np.stack([each == c for c in classes], 1).astype(float) for each in (predicted, labels))
    p = p - p.mean(0)
    t = t - t.mean(0)
    scale = np.sqrt((p * p).sum() * (t * t).sum())
    return round(float((p * t).sum() / scale), 12) if scale else 0.0


def _unit(vectors: npt.NDArray[Any]) -> npt.NDArray[np.floating]:
    unit: npt.NDArray[np.floating] = vectors / np.maximum(
        np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12
    )
    return unit


Labelled = tuple[list[str], npt.NDArray[np.int64]]
"""Sentences, and the class of each."""


@dataclass(frozen=True)
class Evaluated:
    """What a task is tried on: a model with its tokenizer, the folder of the evaluation sets, items
    a set at most.

    limit: of a set with more items so many are drawn with `seed`, without replacement; they stay in
    the set's order. Sets are often sorted, so that their first items are no sample. pooling: how
    the model's folder says that sentence vectors are made (then with special tokens); None: it says
    nothing, and the mean over the sentence's own tokens is taken.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    sets: Path
    limit: int | None = None
    pooling: Pooling | None = None
    seed: int = 0

    def places(self, count: int) -> list[int]:
        """Which of so many items are tried; the same for every list of that length."""
        if self.limit is None or self.limit >= count:
            return list(range(count))
        return sorted(
            np.random.default_rng(self.seed).choice(count, self.limit, replace=False).tolist()
        )

    def sample(self, *lists: Sequence[Any] | npt.NDArray[Any]) -> tuple[Any, ...]:
        """The items that are tried, of each of several parallel lists or arrays."""
        places = self.places(len(lists[0]))
        return tuple(
            each[places] if isinstance(each, np.ndarray) else [each[i] for i in places]
            for each in lists
        )

    @property
    def context(self) -> int | None:
        return getattr(self.model.config, "max_position_embeddings", None)

    @property
    def has_head(self) -> bool:
        return self.model.get_output_embeddings() is not None

    def vectors(self, sentences: list[str]) -> npt.NDArray[np.float32]:
        """Sentence vectors of these sentences, [n, d]."""
        return sentence_vectors(
            self.model,
            self.tokenizer,
            sentences,
            context=self.context,
            pooling=self.pooling or "mean",
            special=self.pooling is not None,
        )


class Task(ABC):
    """One thing to try. place: the folder below that of the sets which it reads, "" for none.
    tokens: about how many one more item of the limit takes. needs_head: whether a headless body
    cannot do it. optional: done only where it is named.
    """

    place: ClassVar[str] = ""
    tokens: ClassVar[int] = 60
    needs_head: ClassVar[bool] = False
    optional: ClassVar[bool] = False

    @abstractmethod
    def scores(self, given: Evaluated) -> Scores:
        """The numbers of one model."""


MULTIPLICATIONS = 1.2e13
"""What an evaluation may take unasked: three to six minutes of two cores or one (measured: 3 to
6e10 a second).
"""

TASKS: Registry[type[Task]] = Registry(
    "task", "headscan_lab.evaluation.tasks", "headscan_lab.evaluation.similarity"
)
"""All tasks by name."""


def tasks_for(given: Evaluated, names: list[str] | None = None) -> list[str]:
    """The tasks to do: those named, or all that the folder holds and the model can do. Raises
    BadInput for a task that is unknown, whose set is not there, or that the model cannot do.
    """
    if names is None:
        return [
            name
            for name, task in TASKS.items()
            if (not task.place or (given.sets / task.place).is_dir())
            and (given.has_head or not task.needs_head)
            and not task.optional
        ]
    for name in names:
        task = TASKS[name]
        if task.place and not (given.sets / task.place).is_dir():
            raise BadInput(f"{given.sets} holds no {task.place}/.")
        if task.needs_head and not given.has_head:
            raise BadInput(f"{name} needs a model with a head: recover one first.")
    return names


def affordable_items(given: Evaluated, tasks: int, name: str) -> int:
    """Items of a set that a default evaluation of so many tasks tries: what its share of some
    minutes has room for.
    """
    table = embedding_table(given.model)
    head = output_layer(given.model)
    apart = {id(table), id(None if head is None else head.weight)}
    body = sum(
        weight.numel()
        for weight in given.model.parameters()
        if weight.ndim > 1 and id(weight) not in apart
    )
    body += table.numel() if TASKS[name].needs_head else 0
    budget = MULTIPLICATIONS * (1 if given.model.device.type == "cpu" else 100)
    return max(1, int(budget / max(tasks, 1) / max(body, 1) / TASKS[name].tokens))


def evaluate_task(given: Evaluated, name: str) -> Scores:
    """The numbers of one task."""
    (only,) = tasks_for(given, [name])
    return TASKS[only]().scores(given)
