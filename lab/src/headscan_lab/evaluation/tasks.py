"""The tasks that read a set: minimal pairs, the last word of a passage, sentences with classes."""

import copy
import csv
import json
import math
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.run import BadInput
from headscan.training.heads import body_of
from headscan_lab.evaluation import task
from headscan_lab.evaluation.likelihood import log_likelihood
from headscan_lab.evaluation.task import TASKS, Evaluated, Labelled, Scores, Task


def lines(path: str | Path) -> list[str]:
    """The lines of a file that are not empty; BadInput where it cannot be read."""
    try:
        return [
            line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()
        ]
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"{path} cannot be read.") from None


# ---- BLiMP: minimal pairs of sentences, of which the grammatical one should be the more probable.


def read_blimp(path: str | Path) -> dict[str, list[tuple[str, str]]]:
    """(good, bad) pairs by paradigm, from the archive or a folder of its .jsonl files."""
    path = Path(path)
    try:
        if path.is_dir():
            texts = {file.stem: file.read_text() for file in sorted(path.glob("**/*.jsonl"))}
        else:
            with zipfile.ZipFile(path) as archive:
                names = sorted(
                    n for n in archive.namelist() if n.endswith(".jsonl") and "__MACOSX" not in n
                )
                texts = {Path(name).stem: archive.read(name).decode() for name in names}
    except (OSError, zipfile.BadZipFile):
        raise BadInput(f"{path} is neither the BLiMP archive nor a folder of its files.") from None
    found = {}
    for name, text in texts.items():
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        found[name] = [(row["sentence_good"], row["sentence_bad"]) for row in rows]
    if not found:
        raise BadInput(f"{path} holds no .jsonl file of minimal pairs.")
    return found


def blimp_hits(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    paradigms: dict[str, list[tuple[str, str]]],
    *,
    context: int | None = None,
) -> dict[str, npt.NDArray[np.bool_]]:
    """In which pairs the grammatical sentence is the more probable, by paradigm.

    A sentence's probability is the sum over all its tokens, given a beginning of text. Sentences of
    all paradigms share batches: a pass of few tokens takes a large model as long as one of many.
    """
    sentences = [
        ("", sentence) for pairs in paradigms.values() for pair in pairs for sentence in pair
    ]
    found, _ = log_likelihood(model, tokenizer, sentences, context=context)
    hits = np.asarray(found[0::2] > found[1::2])
    ends = np.cumsum([len(pairs) for pairs in paradigms.values()])[:-1]
    return dict(zip(paradigms, np.split(hits, ends), strict=True))


@TASKS.register("blimp")
class Blimp(Task):
    """Minimal pairs: is the grammatical sentence the more probable one? From blimp/*.zip or a
    folder of its files.
    """

    place: ClassVar[str] = "blimp"
    tokens: ClassVar[int] = 1500  # a pair of each paradigm
    needs_head: ClassVar[bool] = True

    def scores(self, given: Evaluated) -> Scores:
        folder = given.sets / "blimp"
        paradigms = read_blimp(next(iter(sorted(folder.glob("*.zip"))), folder))
        pairs = {name: given.sample(each)[0] for name, each in paradigms.items()}
        hits = blimp_hits(given.model, given.tokenizer, pairs, context=given.context)
        # pairs of a paradigm are of one template
        scores = task.mean_of("accuracy", [float(each.mean()) for each in hits.values()])
        for name, each in hits.items():
            scores |= task.mean_of(f"paradigms {name}", each)
        return scores


# ---- CoLA: is a sentence grammatical?


def read_cola(path: str | Path) -> tuple[list[str], npt.NDArray[np.int64]]:
    """(sentences, 1 for acceptable) of a CoLA .tsv: source, label, author's mark, sentence."""
    rows = [line.split("\t") for line in lines(path)]
    return [row[3] for row in rows], np.array([int(row[1]) for row in rows])


def sources(path: str | Path) -> list[str]:
    """The publication that each sentence of a CoLA .tsv is from."""
    return [line.split("\t")[0] for line in lines(path)]


def cola(given: Evaluated) -> list[Labelled]:
    """Sentences with classes to train on, and to test on."""
    return [
        given.sample(*read_cola(given.sets / "cola" / f"in_domain_{part}.tsv"))
        for part in ("train", "dev")
    ]


@TASKS.register("cola")
class Cola(Task):
    """A linear probe on sentence vectors, trained on cola/in_domain_train.tsv, tested on
    in_domain_dev.tsv.
    """

    place: ClassVar[str] = "cola"

    def scores(self, given: Evaluated) -> Scores:
        (x, y), (z, w) = ((given.vectors(texts), labels) for texts, labels in cola(given))
        return task.probe(
            x, y, z, w, groups=given.sample(sources(given.sets / "cola" / "in_domain_dev.tsv"))[0]
        )


# ---- LAMBADA: the last word of a passage, which only the whole passage gives away.


def read_lambada(path: str | Path) -> list[str]:
    """The passages of a .jsonl file with a field "text"."""
    try:
        return [
            json.loads(line)["text"] for line in Path(path).read_text().splitlines() if line.strip()
        ]
    except (OSError, ValueError, KeyError):
        raise BadInput(f"{path} is no .jsonl file of passages with a field 'text'.") from None


def lambada(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    passages: Iterable[str],
    *,
    context: int | None = None,
) -> Scores:
    """Accuracy (share of passages whose last word greedy decoding finds) and perplexity of the last
    word.

    The passage up to the last space is given; the space belongs to the word, as byte-level
    tokenizers have it. What does not fit the context loses its beginning.
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
    nats = task.mean_of("nats_per_word", -np.asarray(scores), bounds=(0.0, None))
    ends = nats["nats_per_word_interval"]
    return {
        **task.mean_of("accuracy", greedy),
        "perplexity": math.exp(min(700.0, -float(scores.mean()))),
        "perplexity_interval": [math.exp(min(700.0, end)) for end in ends]
        if isinstance(ends, list)
        else None,
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
        if not (files := sorted((given.sets / "lambada").glob("*.jsonl"))):
            raise BadInput(f"{given.sets / 'lambada'} holds no .jsonl.")
        return lambada(
            given.model,
            given.tokenizer,
            given.sample(read_lambada(files[0]))[0],
            context=given.context,
        )


# ---- GLUE's pairs of sentences, and XNLI's: a paraphrase, the same question, an answer, an entailment?

CLASSES = {"contradiction": 0, "not_entailment": 0, "0": 0, "entailment": 1, "1": 1, "neutral": 2}
# of the first sentence, the second, the label: as one or another of the sets names them
COLUMNS = (
    ("sentence1", "question1", "question", "#1 String"),
    ("sentence2", "question2", "sentence", "#2 String"),
    ("label", "gold_label", "is_duplicate", "Quality"),
)


def read_pairs(path: str | Path) -> list[tuple[str, str, int, str]]:
    """(first sentence, second, 1 for entailment or a paraphrase, language or "") of each row of a
    .tsv of GLUE or XNLI.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        one, other, label = (next(name for name in names if name in rows[0]) for names in COLUMNS)
    except (OSError, UnicodeDecodeError, IndexError, RuntimeError):
        raise BadInput(
            f"{path} is no .tsv whose columns are two sentences and a label, as GLUE's."
        ) from None
    # MNLI and XNLI mark by "-" where annotators disagree
    rows = [row for row in rows if row[label] in CLASSES]
    return [(row[one], row[other], CLASSES[row[label]], row.get("language", "")) for row in rows]


class SentencePairs(Task):
    """A probe on pairs of sentence vectors, trained on train.tsv, tested on `test`, where it has
    languages in each.
    """

    test: ClassVar[str] = "dev.tsv"

    def scores(self, given: Evaluated) -> Scores:
        train, test = (
            given.sample(read_pairs(given.sets / self.place / name))[0]
            for name in ("train.tsv", self.test)
        )
        found: Scores = {}
        for language in sorted({row[3] for row in test}):
            parts = (train, [row for row in test if row[3] == language])
            pairs = [
                (
                    [row[0] for row in rows],
                    [row[1] for row in rows],
                    np.array([row[2] for row in rows]),
                )
                for rows in parts
            ]
            for name, value in task.probe_pairs(given.vectors, *pairs).items():
                end = f" {language}".rstrip() + "_interval" * name.endswith("_interval")
                found[name.removesuffix("_interval") + end] = value
        return found


for _name, _test in {  # named as in lm-evaluation-harness; on the Hub: nyu-mll/glue, facebook/xnli
    **dict.fromkeys(("rte", "wnli", "mrpc", "qqp", "qnli"), "dev.tsv"),
    "mnli": "dev_matched.tsv",
    "mnli_mismatch": "dev_mismatched.tsv",
    "xnli": "xnli.test.tsv",
}.items():
    _of = {
        "place": _name.removesuffix("_mismatch"),
        "test": _test,
        "__doc__": SentencePairs.__doc__,
    }
    TASKS.register(_name)(type(_name, (SentencePairs,), _of))


# ---- SST-2: is a sentence friendly?


def read_sst2(path: str | Path) -> tuple[list[str], npt.NDArray[np.int64]]:
    """(sentences, 1 for positive) of a file of lines "label sentence"."""
    rows = [line.split(" ", 1) for line in lines(path) if " " in line]
    return [row[1] for row in rows], np.array([int(row[0]) for row in rows])


def sst2(given: Evaluated) -> list[Labelled]:
    """Sentences with classes to train on, and to test on."""
    return [
        given.sample(*read_sst2(given.sets / "sst2" / f"stsa.binary.{part}"))
        for part in ("train", "dev")
    ]


@TASKS.register("sst2")
class Sentiment(Task):
    """A linear probe on sentence vectors, trained on sst2/stsa.binary.train, tested on
    stsa.binary.dev.
    """

    place: ClassVar[str] = "sst2"

    def scores(self, given: Evaluated) -> Scores:
        (x, y), (z, w) = ((given.vectors(texts), labels) for texts, labels in sst2(given))
        return task.probe(x, y, z, w)


# ---- Fine-tuning on labelled sentences: a linear layer on the sentence vector, and the whole body trained with it.


def finetuned(
    given: Evaluated,
    train: Labelled,
    test: Labelled,
    *,
    epochs: int = 3,
    rate: float = 5e-5,
    batch: int = 32,
    seed: int = 0,
) -> Scores:
    """Accuracy and Matthews' correlation of a copy of the model that was trained on sentences with
    labels.

    The classifier is linear on the sentence vector (as `sentence_vectors` makes it) and starts at
    zero; cross-entropy weighs every class of a batch alike (Godey et al. 2024, appendix E); AdamW,
    a tenth of the steps as warm-up, then linear to zero, clip 1. The model that is given stays as
    it is. Cost: `epochs` passes forward and back, twice the weights and Adam's moments.
    Deterministic in the seed. Raises BadInput where the loss is not finite or a label is missing.
    """
    texts = train[0]
    labels = np.asarray(train[1])
    wanted = np.asarray(test[1])
    classes = int(max(labels.max(), wanted.max())) + 1
    if len(set(labels.tolist())) < 2:
        raise BadInput("Fine-tuning needs sentences of two classes at least: raise --limit.")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = copy.deepcopy(body_of(given.model)).float().train()
        layer = nn.Linear(body.config.hidden_size, classes).to(body.device)
        nn.init.zeros_(layer.weight)
        weights = [*(one for one in body.parameters() if one.requires_grad), *layer.parameters()]
        optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.01)
        steps = epochs * -(-len(texts) // batch)
        for step, chosen in enumerate(_batches(len(texts), batch, epochs, seed), 1):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(
                    step / max(1.0, 0.1 * steps), (steps - step + 1) / max(1.0, 0.9 * steps)
                )
            logits = layer(_vectors(given, body, [texts[i] for i in chosen]))
            loss = task.balanced_cross_entropy(
                logits, torch.from_numpy(labels[chosen]).to(logits.device)
            )
            if not bool(torch.isfinite(loss)):
                raise BadInput(f"The loss of the fine-tuning is not finite at step {step}.")
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
        predicted = _predicted(given, body.eval(), layer, test[0], batch)
    largest = float(np.bincount(wanted).max() / len(wanted))
    return {
        **task.mean_of("finetuned_accuracy", predicted == wanted),
        **task.scored(
            "finetuned_matthews",
            lambda taken: task.matthews(predicted[taken], wanted[taken]),
            len(wanted),
            bounds=(-1, 1),
        ),
        "largest_class": largest,
        "finetuned_on": len(texts),
    }


def _batches(count: int, size: int, epochs: int, seed: int) -> Iterator[list[int]]:
    """Places of the items of each step, shuffled anew every epoch."""
    draw = np.random.default_rng(seed)
    for _ in range(epochs):
        order = draw.permutation(count)
        for start in range(0, count, size):
            yield order[start : start + size].tolist()


def _vectors(given: Evaluated, body: nn.Module, texts: list[str]) -> Tensor:
    """Sentence vectors with gradient, [n, d]."""
    special = given.pooling is not None
    rows = [
        given.tokenizer(text, add_special_tokens=special)["input_ids"][: given.context] or [0]
        for text in texts
    ]
    return task.pooled_states(body, rows, given.pooling or "mean")


@torch.no_grad()
def _predicted(
    given: Evaluated, body: nn.Module, layer: nn.Module, texts: list[str], batch: int
) -> np.ndarray:
    """The class of each text, int [n]."""
    found = [
        layer(_vectors(given, body, texts[start : start + batch])).argmax(-1).cpu()
        for start in range(0, len(texts), batch)
    ]
    return torch.cat(found).numpy()


class FineTuned(Task):
    """A copy of the model trained on sentences with classes, and tested."""

    tokens: ClassVar[int] = (
        # three epochs, of which a pass back takes twice one forth, and as much again for the test
        720
    )
    optional: ClassVar[bool] = True


@TASKS.register("cola-finetuned")
class ColaFineTuned(FineTuned):
    """CoLA by fine-tuning, on the sentences of `cola`."""

    place: ClassVar[str] = "cola"

    def scores(self, given: Evaluated) -> Scores:
        return finetuned(given, *cola(given))


@TASKS.register("sst2-finetuned")
class SentimentFineTuned(FineTuned):
    """SST-2 by fine-tuning, on the sentences of `sst2`."""

    place: ClassVar[str] = "sst2"

    def scores(self, given: Evaluated) -> Scores:
        return finetuned(given, *sst2(given))
