"""Reading the evaluation sets as their authors ship them; and all that apply to a model in one call."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from headscan.errors import BadInput
from headscan.training.evaluate.blimp import blimp, read_blimp
from headscan.training.evaluate.lambada import lambada, read_lambada
from headscan.training.evaluate.pairs import pair_features, paraphrases, read_rte
from headscan.training.evaluate.sentences import probe, retrieval, sentence_vectors, similarity
from headscan.training.evaluate.synonyms import synonyms

__all__ = ["TASKS", "evaluate", "read_cola", "read_pud", "read_sst2", "read_stsb"]

TASKS = ("lambada", "blimp", "cola", "sst2", "stsb", "paraphrase", "rte", "pud", "synonyms")


def read_cola(path: str | Path) -> tuple[list[str], np.ndarray]:
    """(sentences, 1 for acceptable) of a CoLA .tsv: source, label, author's mark, sentence."""
    rows = [line.split("\t") for line in _lines(path)]
    return [row[3] for row in rows], np.array([int(row[1]) for row in rows])


def read_sst2(path: str | Path) -> tuple[list[str], np.ndarray]:
    """(sentences, 1 for positive) of a file of lines "label sentence"."""
    rows = [line.split(" ", 1) for line in _lines(path) if " " in line]
    return [row[1] for row in rows], np.array([int(row[0]) for row in rows])


def read_stsb(path: str | Path) -> tuple[list[str], list[str], np.ndarray]:
    """(first sentences, second sentences, scores 0 to 5) of an STS-B .csv."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row[-3:] for row in csv.reader(file) if len(row) >= 3]
    return [row[0] for row in rows], [row[1] for row in rows], np.array([float(row[2]) for row in rows])


def read_pud(path: str | Path) -> dict[str, list[str]]:
    """Aligned sentences by language, from a JSON of {language: [...]} or of a list of {language: sentence}."""
    found = json.loads(Path(path).read_text())
    if isinstance(found, dict) and all(isinstance(value, list) for value in found.values()):
        return found
    rows = found if isinstance(found, list) else next(v for v in found.values() if isinstance(v, list))
    languages = [key for key in rows[0] if len(key) <= 3 and key != "id" and isinstance(rows[0][key], str)]
    return {language: [row[language] for row in rows] for language in languages}


def evaluate(
    model: Any, tokenizer: Any, folder: str | Path, *, tasks: list[str] | None = None, limit: int | None = None
) -> dict[str, Any]:
    """Everything of `tasks` (default: all that the folder holds and the model can do) on a folder of evaluation sets.

    tasks: lambada, blimp (causal models with a head), cola, sst2, stsb, paraphrase (made from stsb), rte, pud, synonyms
    (any body). limit: at most so many items a set (blimp: a paradigm). Files as in their authors' releases:
    lambada/*.jsonl, blimp/*.zip, cola/*.tsv, sst2/stsa.*, stsb/stsb-LL-{dev,test}.csv, rte/{train,dev}.tsv (on the Hub:
    nyu-mll/glue, rte), pud/*.json; synonyms needs none. Returns {task: numbers}.
    """
    folder = Path(folder)
    context = getattr(model.config, "max_position_embeddings", None)
    causal = model.get_output_embeddings() is not None
    found: dict[str, Any] = {}
    for task in tasks or TASKS:
        if task not in TASKS:
            raise BadInput(f"There is no task {task!r}; there are {', '.join(TASKS)}.")
        if task == "synonyms":
            found[task] = synonyms(model, tokenizer)
            continue
        place = folder / ("stsb" if task == "paraphrase" else task)
        if not place.is_dir():
            if tasks:
                raise BadInput(f"{folder} holds no {place.name}/.")
            continue
        if task in ("lambada", "blimp"):
            if not causal and tasks:
                raise BadInput(f"{task} needs a model with a head: recover one first.")
            if causal:
                found[task] = _likelihood(task, model, tokenizer, place, context, limit)
        else:
            found[task] = _vectors(task, model, tokenizer, place, context, limit)
    return found


def _likelihood(task, model, tokenizer, folder, context, limit):
    if task == "lambada":
        passages = read_lambada(next(iter(sorted(folder.glob("*.jsonl")))))[:limit]
        return lambada(model, tokenizer, passages, context=context)
    return blimp(
        model, tokenizer, read_blimp(next(iter(sorted(folder.glob("*.zip"))), folder), each=limit), context=context
    )


def _vectors(task, model, tokenizer, folder, context, limit):
    def vectors(sentences):
        return sentence_vectors(model, tokenizer, sentences, context=context)

    if task in ("cola", "sst2"):
        names = (
            ("in_domain_train.tsv", "in_domain_dev.tsv") if task == "cola" else ("stsa.binary.train", "stsa.binary.dev")
        )
        read = read_cola if task == "cola" else read_sst2
        (train, train_labels), (test, test_labels) = (
            (s[:limit], t[:limit]) for s, t in (read(folder / n) for n in names)
        )
        return probe(vectors(train), train_labels, vectors(test), test_labels)
    if task in ("paraphrase", "rte"):
        if task == "rte":
            parts = [read_rte(folder / name) for name in ("train.tsv", "dev.tsv")]
        else:
            parts = [paraphrases(*read_stsb(folder / name)) for name in ("stsb-en-dev.csv", "stsb-en-test.csv")]
        (x, train_labels), (y, test_labels) = (
            (pair_features(vectors(one[:limit]), vectors(other[:limit])), labels[:limit])
            for one, other, labels in parts
        )
        chance = max(float(np.mean(test_labels)), 1 - float(np.mean(test_labels)))
        return probe(x, train_labels, y, test_labels) | {"largest_class": chance}
    if task == "stsb":
        scores = {}
        for path in sorted(folder.glob("stsb-*-test.csv")):
            one, other, gold = read_stsb(path)
            scores[path.stem.split("-")[1]] = similarity(vectors(one[:limit]), vectors(other[:limit]), gold[:limit])
        return {"spearman": scores}
    by_language = {name: vectors(each[:limit]) for name, each in read_pud(next(iter(folder.glob("*.json")))).items()}
    return {
        name: retrieval(by_language["en"], each)["mean"] for name, each in sorted(by_language.items()) if name != "en"
    }


def _lines(path: str | Path) -> list[str]:
    try:
        return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError:
        raise BadInput(f"{path} cannot be read.") from None
