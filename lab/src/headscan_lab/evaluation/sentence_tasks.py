"""The tasks of a linear probe on sentence vectors: CoLA, SST-2, and the pairs of GLUE and XNLI."""

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from headscan.run import BadInput
from headscan_lab.evaluation.scores import LabelledPairs, Numbers, probe, probe_pairs
from headscan_lab.evaluation.task import TASKS, Evaluated, Task


@dataclass(frozen=True, eq=False)
class Labelled:
    """Sentences, and the class of each, int [n]."""

    sentences: list[str]
    labels: npt.NDArray[np.int64]


def lines(path: str | Path) -> list[str]:
    """Return the lines of a file that are not empty; raise BadInput where it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"{path} cannot be read.") from None
    return [line for line in text.splitlines() if line.strip()]


def read_cola(path: str | Path) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the sentences of a CoLA .tsv, and 1 for each acceptable one.

    The columns are the source, the label, the author's mark and the sentence.
    """
    rows = [line.split("\t") for line in lines(path)]
    labels = [int(row[1]) for row in rows]
    return [row[3] for row in rows], np.array(labels)


def sources(path: str | Path) -> list[str]:
    """Return the publication that each sentence of a CoLA .tsv is from."""
    return [line.split("\t")[0] for line in lines(path)]


def cola(subject: Evaluated) -> tuple[Labelled, Labelled]:
    """Return CoLA's sentences to train on, and to test on."""
    folder = subject.sets / "cola"
    train = subject.sample(*read_cola(folder / "in_domain_train.tsv"))
    test = subject.sample(*read_cola(folder / "in_domain_dev.tsv"))
    return Labelled(*train), Labelled(*test)


def _probed(
    subject: Evaluated, train: Labelled, test: Labelled, groups: Sequence[object] | None = None
) -> Numbers:
    """Return the numbers of a linear probe on sentence vectors."""
    return probe(
        subject.vectors(train.sentences),
        train.labels,
        subject.vectors(test.sentences),
        test.labels,
        groups=groups,
    )


@TASKS.register("cola")
class Cola(Task):
    """Grammaticality: a linear probe on sentence vectors, trained on cola/in_domain_train.tsv,
    tested on in_domain_dev.tsv.
    """

    folder: ClassVar[str] = "cola"

    def numbers(self, subject: Evaluated) -> Numbers:
        train, test = cola(subject)
        publications = subject.sample(sources(subject.sets / "cola" / "in_domain_dev.tsv"))[0]
        return _probed(subject, train, test, groups=publications)


def read_sst2(path: str | Path) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the sentences of a file of lines "label sentence", and 1 for each positive one."""
    rows = [line.split(" ", 1) for line in lines(path) if " " in line]
    labels = [int(row[0]) for row in rows]
    return [row[1] for row in rows], np.array(labels)


def sst2(subject: Evaluated) -> tuple[Labelled, Labelled]:
    """Return SST-2's sentences to train on, and to test on."""
    folder = subject.sets / "sst2"
    train = subject.sample(*read_sst2(folder / "stsa.binary.train"))
    test = subject.sample(*read_sst2(folder / "stsa.binary.dev"))
    return Labelled(*train), Labelled(*test)


@TASKS.register("sst2")
class Sentiment(Task):
    """Sentiment: a linear probe on sentence vectors, trained on sst2/stsa.binary.train, tested on
    stsa.binary.dev.
    """

    folder: ClassVar[str] = "sst2"

    def numbers(self, subject: Evaluated) -> Numbers:
        train, test = sst2(subject)
        return _probed(subject, train, test)


CLASSES = {"contradiction": 0, "not_entailment": 0, "0": 0, "entailment": 1, "1": 1, "neutral": 2}
# The names that GLUE's and XNLI's sets give to their columns.
LEFT_COLUMNS = ("sentence1", "question1", "question", "#1 String")
RIGHT_COLUMNS = ("sentence2", "question2", "sentence", "#2 String")
LABEL_COLUMNS = ("label", "gold_label", "is_duplicate", "Quality")


@dataclass(frozen=True)
class SentencePair:
    """A row of GLUE's or XNLI's pairs.

    Attributes:
        label: 1 for an entailment or a paraphrase, 2 for neutral, 0 for neither.
        language: "" where the set names none.
    """

    left: str
    right: str
    label: int
    language: str


def read_pairs(path: str | Path) -> list[SentencePair]:
    """Return the pairs of a .tsv of GLUE or XNLI, without those on which annotators disagree."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        columns = rows[0].keys()
        left = _first_of(LEFT_COLUMNS, columns)
        right = _first_of(RIGHT_COLUMNS, columns)
        label = _first_of(LABEL_COLUMNS, columns)
    except (OSError, UnicodeDecodeError, LookupError):
        raise BadInput(
            f"{path} is no .tsv whose columns are two sentences and a label, as GLUE's."
        ) from None
    # MNLI and XNLI write "-" for the label where annotators disagree.
    return [
        SentencePair(row[left], row[right], CLASSES[row[label]], row.get("language", ""))
        for row in rows
        if row[label] in CLASSES
    ]


def _first_of(names: Sequence[str], columns: Collection[str]) -> str:
    """Return the first of the names that is a column; raise LookupError where none is."""
    for name in names:
        if name in columns:
            return name
    raise LookupError(f"there is no column {names[0]}")


def _labelled_pairs(pairs: Sequence[SentencePair]) -> LabelledPairs:
    return LabelledPairs(
        [pair.left for pair in pairs],
        [pair.right for pair in pairs],
        np.array([pair.label for pair in pairs]),
    )


class SentencePairs(Task):
    """A probe on pairs of sentence vectors, trained on train.tsv and tested on another file, in
    each of its languages.
    """

    test: ClassVar[str] = "dev.tsv"

    def numbers(self, subject: Evaluated) -> Numbers:
        folder = subject.sets / self.folder
        train = _labelled_pairs(subject.sample(read_pairs(folder / "train.tsv"))[0])
        test_pairs = subject.sample(read_pairs(folder / self.test))[0]
        numbers: Numbers = {}
        for language in sorted({pair.language for pair in test_pairs}):
            test = _labelled_pairs([pair for pair in test_pairs if pair.language == language])
            suffix = f" {language}" if language else ""
            for name, number in probe_pairs(subject.vectors, train, test).items():
                numbers[f"{name}{suffix}"] = number
        return numbers


def _register_pairs(name: str, folder: str, test: str) -> None:
    attributes = {"folder": folder, "test": test, "__doc__": SentencePairs.__doc__}
    TASKS.register(name)(type(name, (SentencePairs,), attributes))


# The names are those of lm-evaluation-harness; on the Hub: nyu-mll/glue, facebook/xnli.
PAIR_TASKS = {
    **{name: (name, "dev.tsv") for name in ("rte", "wnli", "mrpc", "qqp", "qnli")},
    "mnli": ("mnli", "dev_matched.tsv"),
    "mnli_mismatch": ("mnli", "dev_mismatched.tsv"),
    "xnli": ("xnli", "xnli.test.tsv"),
}
"""The folder of each task of pairs, and the file that it is tested on."""
for _name, (_folder, _test) in PAIR_TASKS.items():
    _register_pairs(_name, _folder, _test)
