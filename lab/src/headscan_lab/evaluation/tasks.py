"""Reading the lines of a set."""

from __future__ import annotations

import csv
import json
import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.run import BadInput
from headscan_lab.evaluation.likelihood import log_likelihood
from headscan_lab.evaluation.similarity import read_stsb
from headscan_lab.evaluation.task import TASKS, Evaluated, Labelled, Scores, Task, mean_of, probe, probe_pairs


def lines(path: str | Path) -> list[str]:
    """The lines of a file that are not empty; BadInput where it cannot be read."""
    try:
        return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"{path} cannot be read.") from None


# ---- BLiMP: minimal pairs of sentences, of which the grammatical one should be the more probable.


def read_blimp(path: str | Path, *, each: int | None = None) -> dict[str, list[tuple[str, str]]]:
    """(good, bad) pairs by paradigm, from the archive or a folder of its .jsonl files; at most `each` of a paradigm."""
    path = Path(path)
    try:
        if path.is_dir():
            texts = {file.stem: file.read_text() for file in sorted(path.glob("**/*.jsonl"))}
        else:
            with zipfile.ZipFile(path) as archive:
                names = sorted(n for n in archive.namelist() if n.endswith(".jsonl") and "__MACOSX" not in n)
                texts = {Path(name).stem: archive.read(name).decode() for name in names}
    except (OSError, zipfile.BadZipFile):
        raise BadInput(f"{path} is neither the BLiMP archive nor a folder of its files.") from None
    found = {}
    for name, text in texts.items():
        rows = [json.loads(line) for line in text.splitlines() if line.strip()][:each]
        found[name] = [(row["sentence_good"], row["sentence_bad"]) for row in rows]
    if not found:
        raise BadInput(f"{path} holds no .jsonl file of minimal pairs.")
    return found


def blimp(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, paradigms: dict[str, list[tuple[str, str]]], *,
    context: int | None = None,
) -> dict[str, float]:  # fmt: skip
    """Share of pairs in which the grammatical sentence is the more probable, by paradigm. Chance is 0.5."""
    return {name: float(hits.mean()) for name, hits in blimp_hits(model, tokenizer, paradigms, context=context).items()}


def blimp_hits(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, paradigms: dict[str, list[tuple[str, str]]], *,
    context: int | None = None,
) -> dict[str, npt.NDArray[np.bool_]]:  # fmt: skip
    """In which pairs the grammatical sentence is the more probable, by paradigm.

    A sentence's probability is the sum over all its tokens, given a beginning of text. Sentences of all paradigms share
    batches: a pass of few tokens takes a large model as long as one of many.
    """
    sentences = [("", sentence) for pairs in paradigms.values() for pair in pairs for sentence in pair]
    found, _ = log_likelihood(model, tokenizer, sentences, context=context)
    hits = np.asarray(found[0::2] > found[1::2])
    ends = np.cumsum([len(pairs) for pairs in paradigms.values()])[:-1]
    return dict(zip(paradigms, np.split(hits, ends), strict=True))


@TASKS.register("blimp")
class Blimp(Task):
    """Minimal pairs: is the grammatical sentence the more probable one? From blimp/*.zip or a folder of its files."""

    place: ClassVar[str] = "blimp"
    tokens: ClassVar[int] = 1500  # a pair of each paradigm
    needs_head: ClassVar[bool] = True

    def scores(self, given: Evaluated) -> Scores:
        folder = given.sets / "blimp"
        pairs = read_blimp(next(iter(sorted(folder.glob("*.zip"))), folder), each=given.limit)
        hits = blimp_hits(given.model, given.tokenizer, pairs, context=given.context)
        scores = mean_of(
            "accuracy", [float(each.mean()) for each in hits.values()]
        )  # pairs of a paradigm are of one template
        for name, each in hits.items():
            scores |= mean_of(f"paradigms {name}", each)
        return scores


# ---- CoLA: is a sentence grammatical?


def read_cola(path: str | Path) -> tuple[list[str], npt.NDArray[np.int64]]:
    """(sentences, 1 for acceptable) of a CoLA .tsv: source, label, author's mark, sentence."""
    rows = [line.split("\t") for line in lines(path)]
    return [row[3] for row in rows], np.array([int(row[1]) for row in rows])


def sources(path: str | Path) -> list[str]:
    """The publication that each sentence of a CoLA .tsv is from."""
    return [line.split("\t")[0] for line in lines(path)]


@TASKS.register("cola")
class Cola(Task):
    """A linear probe on sentence vectors, trained on cola/in_domain_train.tsv, tested on in_domain_dev.tsv."""

    place: ClassVar[str] = "cola"

    def labelled(self, given: Evaluated) -> tuple[Labelled, Labelled]:
        train, dev = (read_cola(given.sets / "cola" / f"in_domain_{part}.tsv") for part in ("train", "dev"))
        return train, dev

    def scores(self, given: Evaluated) -> Scores:
        (x, y), (z, w) = ((given.vectors(texts), labels[: given.limit]) for texts, labels in self.labelled(given))
        return probe(x, y, z, w, groups=sources(given.sets / "cola" / "in_domain_dev.tsv")[: given.limit])


# ---- LAMBADA: the last word of a passage, which only the whole passage gives away.


def read_lambada(path: str | Path) -> list[str]:
    """The passages of a .jsonl file with a field "text"."""
    try:
        return [json.loads(line)["text"] for line in Path(path).read_text().splitlines() if line.strip()]
    except (OSError, ValueError, KeyError):
        raise BadInput(f"{path} is no .jsonl file of passages with a field 'text'.") from None


def lambada(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, passages: Iterable[str], *, context: int | None = None
) -> Scores:
    """Accuracy (share of passages whose last word greedy decoding finds) and perplexity of the last word.

    The passage up to the last space is given; the space belongs to the word, as byte-level tokenizers have it. What
    does not fit the context loses its beginning.
    """
    pairs = []
    for passage in passages:
        given, space, word = passage.strip().rpartition(" ")
        if not space:
            raise BadInput(f"A passage of one word has nothing to predict it from: {passage!r}.")
        pairs.append((given, " " + word))
    if not pairs:
        raise BadInput("There are no passages.")
    scores, greedy = log_likelihood(model, tokenizer, pairs, context=context)
    nats = mean_of("nats_per_word", -np.asarray(scores), bounds=(0.0, None))
    ends = nats["nats_per_word_interval"]
    return {
        **mean_of("accuracy", greedy),
        "perplexity": math.exp(min(700.0, -float(scores.mean()))),
        "perplexity_interval": [math.exp(min(700.0, end)) for end in ends] if isinstance(ends, list) else None,
        **nats,
        "passages": len(pairs),
    }


@TASKS.register("lambada")
class Lambada(Task):
    """The last word of a passage, from lambada/*.jsonl."""

    place: ClassVar[str] = "lambada"
    tokens: ClassVar[int] = 100
    needs_head: ClassVar[bool] = True

    def scores(self, given: Evaluated) -> Scores:
        files = sorted((given.sets / "lambada").glob("*.jsonl"))
        if not files:
            raise BadInput(f"{given.sets / 'lambada'} holds no .jsonl.")
        return lambada(given.model, given.tokenizer, read_lambada(files[0])[: given.limit], context=given.context)


# ---- Paraphrases: a task of RTE's kind, made from STS-B, whose data are free.

SAME, OTHER = 4.0, 2.0  # STS-B scores: from here on the same statement; up to here another


def paraphrases(
    one: list[str], other: list[str], scores: npt.NDArray[np.floating | np.integer]
) -> tuple[list[str], list[str], npt.NDArray[np.int64]]:
    """From STS-B's graded pairs to yes and no, as in RTE: 1 where the second sentence says what the first does (a score
    of 4 and more), 0 where it does not (2 and less); what lies between is left out.

    >>> paraphrases(["a", "b", "c"], ["d", "e", "f"], np.array([5, 3, 0]))[2].tolist()
    [1, 0]
    """
    kept = (scores >= SAME) | (scores <= OTHER)
    chosen = np.flatnonzero(kept)
    return [one[i] for i in chosen], [other[i] for i in chosen], (scores[kept] >= SAME).astype(int)


@TASKS.register("paraphrase")
class Paraphrase(Task):
    """Does the second sentence of an STS-B pair say what the first does? From stsb/stsb-en-{dev,test}.csv."""

    place: ClassVar[str] = "stsb"

    def scores(self, given: Evaluated) -> Scores:
        parts = [paraphrases(*read_stsb(given.sets / "stsb" / f"stsb-en-{part}.csv")) for part in ("dev", "test")]
        return probe_pairs(given.vectors, *parts, limit=given.limit)


# ---- RTE: does the second sentence follow from the first?


def read_rte(path: str | Path) -> tuple[list[str], list[str], npt.NDArray[np.int64]]:
    """(premises, hypotheses, 1 for entailment) of a .tsv of GLUE's RTE: index, sentence1, sentence2, label."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        labels = np.array([int(row["label"] == "entailment") for row in rows])
        return [row["sentence1"] for row in rows], [row["sentence2"] for row in rows], labels
    except (OSError, KeyError, UnicodeDecodeError):
        raise BadInput(f"{path} is no .tsv with the columns sentence1, sentence2 and label.") from None


@TASKS.register("rte")
class Entailment(Task):
    """A probe on pairs of sentence vectors, trained on rte/train.tsv, tested on dev.tsv (on the Hub: nyu-mll/glue, rte)."""

    place: ClassVar[str] = "rte"

    def scores(self, given: Evaluated) -> Scores:
        return probe_pairs(
            given.vectors,
            *(read_rte(given.sets / "rte" / f"{part}.tsv") for part in ("train", "dev")),
            limit=given.limit,
        )


# ---- SST-2: is a sentence friendly?


def read_sst2(path: str | Path) -> tuple[list[str], npt.NDArray[np.int64]]:
    """(sentences, 1 for positive) of a file of lines "label sentence"."""
    rows = [line.split(" ", 1) for line in lines(path) if " " in line]
    return [row[1] for row in rows], np.array([int(row[0]) for row in rows])


@TASKS.register("sst2")
class Sentiment(Task):
    """A linear probe on sentence vectors, trained on sst2/stsa.binary.train, tested on stsa.binary.dev."""

    place: ClassVar[str] = "sst2"

    def labelled(self, given: Evaluated) -> tuple[Labelled, Labelled]:
        train, dev = (read_sst2(given.sets / "sst2" / f"stsa.binary.{part}") for part in ("train", "dev"))
        return train, dev

    def scores(self, given: Evaluated) -> Scores:
        (x, y), (z, w) = ((given.vectors(texts), labels[: given.limit]) for texts, labels in self.labelled(given))
        return probe(x, y, z, w)
