"""The tasks that train a copy of the whole model on labelled sentences."""

import copy
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from headscan.run import BadInput
from headscan.training.heads import body_of
from headscan_lab.evaluation.scores import (
    Numbers,
    PlainNumber,
    balanced_cross_entropy,
    classification,
    largest_class,
    mean_of,
)
from headscan_lab.evaluation.sentence_tasks import (
    PAIR_TASKS,
    Labelled,
    SentencePair,
    cola,
    read_pairs,
    sst2,
)
from headscan_lab.evaluation.task import TASKS, Evaluated, Task
from headscan_lab.evaluation.vectors import pooled_states, token_rows


def finetuned(
    subject: Evaluated,
    train: Labelled,
    test: Labelled,
    *,
    languages: Sequence[str] = (),
    epochs: int = 3,
    rate: float = 5e-5,
    batch: int = 32,
    seed: int = 0,
) -> Numbers:
    """Train a copy of the model on labelled sentences; return accuracy and Matthews' correlation.

    The classifier is linear on the sentence vector (as `sentence_vectors` makes it) and starts at
    zero. Its cross-entropy weighs every class of a batch alike (Godey et al. 2024, appendix E). The
    optimiser is AdamW with clip 1; the rate rises for a tenth of the steps, then falls to zero. The
    model itself stays as it is. The result is deterministic in the seed. With `languages`, one a
    tested sentence, the accuracy is given for each of them, too.

    Cost: `epochs` passes forward and back, twice the weights and Adam's moments.

    Raises:
        BadInput: where the loss is not finite, or all sentences are of one class.
    """
    train_labels = np.asarray(train.labels)
    test_labels = np.asarray(test.labels)
    if len(set(train_labels.tolist())) < 2:
        raise BadInput("Fine-tuning needs sentences of two classes at least: raise --limit.")
    classes = int(max(train_labels.max(), test_labels.max())) + 1

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = copy.deepcopy(body_of(subject.model)).float().train()
        classifier = nn.Linear(body.config.hidden_size, classes).to(body.device)
        nn.init.zeros_(classifier.weight)
        batches = list(_batches(len(train.sentences), batch, epochs, seed))
        _fit(subject, body, classifier, Labelled(train.sentences, train_labels), batches, rate)
        predicted = _predicted(subject, body.eval(), classifier, test.sentences, batch)

    numbers = classification(predicted, test_labels)
    by_language: Numbers = {}
    for language in sorted(set(languages) - {""}):
        of_language = np.array([name == language for name in languages])
        right = (predicted == test_labels)[of_language]
        by_language[f"finetuned_accuracy {language}"] = mean_of(right)
    return {
        "finetuned_accuracy": numbers["accuracy"],
        **by_language,
        "finetuned_matthews": numbers["matthews"],
        "largest_class": largest_class(test_labels),
        "finetuned_on": PlainNumber(len(train.sentences)),
    }


def _fit(
    subject: Evaluated,
    body: nn.Module,
    classifier: nn.Linear,
    train: Labelled,
    batches: list[list[int]],
    peak_rate: float,
) -> None:
    """Train body and classifier together, one step a batch of indices."""
    weights = [weight for weight in body.parameters() if weight.requires_grad]
    weights += list(classifier.parameters())
    optimizer = torch.optim.AdamW(weights, lr=peak_rate, weight_decay=0.01)
    steps = len(batches)
    for step, indices in enumerate(batches, 1):
        warm_up = step / max(1.0, 0.1 * steps)
        decay = (steps - step + 1) / max(1.0, 0.9 * steps)
        for group in optimizer.param_groups:
            group["lr"] = peak_rate * min(warm_up, decay)

        texts = [train.sentences[index] for index in indices]
        logits = classifier(_vectors(subject, body, texts))
        targets = torch.from_numpy(train.labels[indices]).to(logits.device)
        loss = balanced_cross_entropy(logits, targets)
        if not bool(torch.isfinite(loss)):
            raise BadInput(f"The loss of the fine-tuning is not finite at step {step}.")
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()


def _batches(count: int, size: int, epochs: int, seed: int) -> Iterator[list[int]]:
    """Yield the indices of each step's items, which are shuffled anew every epoch."""
    drawing = np.random.default_rng(seed)
    for _ in range(epochs):
        order = drawing.permutation(count)
        for start in range(0, count, size):
            yield order[start : start + size].tolist()


def _vectors(subject: Evaluated, body: nn.Module, texts: list[str]) -> Tensor:
    """Return sentence vectors [n, d] with their gradient."""
    special = subject.pooling is not None
    rows = token_rows(subject.tokenizer, texts, subject.context, special=special)
    return pooled_states(body, rows, subject.pooling or "mean")


@torch.no_grad()
def _predicted(
    subject: Evaluated, body: nn.Module, classifier: nn.Linear, texts: list[str], batch: int
) -> npt.NDArray[np.int64]:
    """Return the predicted class of each text, int [n]."""
    classes = []
    for start in range(0, len(texts), batch):
        vectors = _vectors(subject, body, texts[start : start + batch])
        classes.append(classifier(vectors).argmax(-1).cpu())
    return torch.cat(classes).numpy()


class FineTuned(Task):
    """A task that trains a copy of the model on sentences with classes, and tests it."""

    # Three epochs, of which a pass back takes twice one forth, and as much again for the test.
    tokens: ClassVar[int] = 720
    optional: ClassVar[bool] = True


@TASKS.register("cola-finetuned")
class ColaFineTuned(FineTuned):
    """CoLA by fine-tuning, on the sentences of `cola`."""

    folder: ClassVar[str] = "cola"

    def numbers(self, subject: Evaluated) -> Numbers:
        train, test = cola(subject)
        return finetuned(subject, train, test)


@TASKS.register("sst2-finetuned")
class SentimentFineTuned(FineTuned):
    """SST-2 by fine-tuning, on the sentences of `sst2`."""

    folder: ClassVar[str] = "sst2"

    def numbers(self, subject: Evaluated) -> Numbers:
        train, test = sst2(subject)
        return finetuned(subject, train, test)


class FineTunedPairs(FineTuned):
    """GLUE's or XNLI's pairs by fine-tuning, on the files of the probe of that name; the two
    sentences are one text with the tokenizer's separator between.
    """

    test: ClassVar[str] = "dev.tsv"

    def numbers(self, subject: Evaluated) -> Numbers:
        folder = subject.sets / self.folder
        train = subject.sample(read_pairs(folder / "train.tsv"))[0]
        test = subject.sample(read_pairs(folder / self.test))[0]
        return finetuned(
            subject,
            _joined(subject, train),
            _joined(subject, test),
            languages=[pair.language for pair in test],
        )


def _joined(subject: Evaluated, pairs: Sequence[SentencePair]) -> Labelled:
    """Return each pair as one text."""
    marks = (getattr(subject.tokenizer, name, None) for name in ("sep_token", "eos_token"))
    separator = next((mark for mark in marks if mark), "\n")
    texts = [f"{pair.left} {separator} {pair.right}" for pair in pairs]
    return Labelled(texts, np.array([pair.label for pair in pairs]))


for _name, (_folder, _test) in PAIR_TASKS.items():
    _attributes = {"folder": _folder, "test": _test, "__doc__": FineTunedPairs.__doc__}
    TASKS.register(f"{_name}-finetuned")(type(_name, (FineTunedPairs,), _attributes))
