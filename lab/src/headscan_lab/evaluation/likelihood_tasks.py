"""The tasks that read probabilities of texts: BLiMP's minimal pairs, LAMBADA's last words."""

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
from headscan_lab.evaluation.scores import Numbers, PlainNumber, mean_of
from headscan_lab.evaluation.task import TASKS, Evaluated, Task

LARGEST_NATS = 700.0  # exp of more is no float


def read_blimp(path: str | Path) -> dict[str, list[tuple[str, str]]]:
    """Return the (good, bad) pairs by paradigm, from BLiMP's archive or a folder of its .jsonl."""
    path = Path(path)
    try:
        texts = _texts_of_folder(path) if path.is_dir() else _texts_of_archive(path)
    except (OSError, zipfile.BadZipFile):
        raise BadInput(f"{path} is neither the BLiMP archive nor a folder of its files.") from None
    if not texts:
        raise BadInput(f"{path} holds no .jsonl file of minimal pairs.")
    paradigms = {}
    for name, text in texts.items():
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        paradigms[name] = [(row["sentence_good"], row["sentence_bad"]) for row in rows]
    return paradigms


def _texts_of_folder(folder: Path) -> dict[str, str]:
    return {file.stem: file.read_text() for file in sorted(folder.glob("**/*.jsonl"))}


def _texts_of_archive(path: Path) -> dict[str, str]:
    texts = {}
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".jsonl") and "__MACOSX" not in name:
                texts[Path(name).stem] = archive.read(name).decode()
    return texts


def blimp_hits(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    paradigms: dict[str, list[tuple[str, str]]],
    *,
    context: int | None = None,
) -> dict[str, npt.NDArray[np.bool_]]:
    """Return, by paradigm, for which pairs the grammatical sentence is the more probable.

    A sentence's probability is the sum over all its tokens, after a beginning of text. Sentences of
    all paradigms share batches: a pass over few tokens takes a large model as long as one over
    many.
    """
    sentences = []
    for pairs in paradigms.values():
        for good, bad in pairs:
            sentences += [("", good), ("", bad)]
    scores, _ = log_likelihood(model, tokenizer, sentences, context=context)
    hits = np.asarray(scores[0::2] > scores[1::2])
    ends = np.cumsum([len(pairs) for pairs in paradigms.values()])[:-1]
    return dict(zip(paradigms, np.split(hits, ends), strict=True))


@TASKS.register("blimp")
class Blimp(Task):
    """Minimal pairs: is the grammatical sentence the more probable one? The pairs are in
    blimp/*.zip or a folder of its files.
    """

    folder: ClassVar[str] = "blimp"
    tokens: ClassVar[int] = 1500  # a pair of each paradigm
    needs_head: ClassVar[bool] = True

    def numbers(self, subject: Evaluated) -> Numbers:
        folder = subject.sets / "blimp"
        archives = sorted(folder.glob("*.zip"))
        paradigms = read_blimp(archives[0] if archives else folder)
        sampled = {name: subject.sample(pairs)[0] for name, pairs in paradigms.items()}
        hits = blimp_hits(subject.model, subject.tokenizer, sampled, context=subject.context)

        # Pairs of a paradigm are of one template: the paradigms are the sample.
        accuracy = mean_of([float(column.mean()) for column in hits.values()])
        by_paradigm = {f"paradigms {name}": mean_of(column) for name, column in hits.items()}
        return {"accuracy": accuracy, **by_paradigm}


def read_lambada(path: str | Path) -> list[str]:
    """Return the passages of a .jsonl file with a field "text"."""
    try:
        lines = Path(path).read_text().splitlines()
        return [json.loads(line)["text"] for line in lines if line.strip()]
    except (OSError, ValueError, KeyError):
        raise BadInput(f"{path} is no .jsonl file of passages with a field 'text'.") from None


def lambada(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    passages: Iterable[str],
    *,
    context: int | None = None,
) -> Numbers:
    """Return accuracy and perplexity of the last word of each passage.

    The accuracy is the share of passages whose last word greedy decoding finds. The passage up to
    the last space is the prefix; the space belongs to the word, as byte-level tokenizers have it.
    A passage that does not fit the context loses its beginning.
    """
    pairs = []
    for passage in passages:
        prefix, space, word = passage.strip().rpartition(" ")
        if not space:
            raise BadInput(f"A passage of one word has nothing to predict it from: {passage!r}.")
        pairs.append((prefix, " " + word))
    if not pairs:
        raise BadInput("There are no passages.")

    scores, greedy = log_likelihood(model, tokenizer, pairs, context=context)
    nats = mean_of(-np.asarray(scores), bounds=(0.0, None))
    ends = None if nats.interval is None else [_perplexity(end) for end in nats.interval]
    return {
        "accuracy": mean_of(greedy),
        "perplexity": PlainNumber(_perplexity(-float(scores.mean())), ends),
        "nats_per_word": nats,
        "passages": PlainNumber(len(pairs)),
    }


def _perplexity(nats: float) -> float:
    return math.exp(min(LARGEST_NATS, nats))


@TASKS.register("lambada")
class Lambada(Task):
    """The last word of a passage, from lambada/*.jsonl."""

    folder: ClassVar[str] = "lambada"
    tokens: ClassVar[int] = 100
    needs_head: ClassVar[bool] = True

    def numbers(self, subject: Evaluated) -> Numbers:
        folder = subject.sets / "lambada"
        files = sorted(folder.glob("*.jsonl"))
        if not files:
            raise BadInput(f"{folder} holds no .jsonl.")
        passages = subject.sample(read_lambada(files[0]))[0]
        return lambada(subject.model, subject.tokenizer, passages, context=subject.context)
