"""The tasks of similarity and retrieval: PUD's translations, STS-B's pairs, and synonyms."""

import csv
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.model.traits import embedding_table
from headscan.run import BadInput
from headscan.statistics.uncertainty import Floats
from headscan.text import PairSet
from headscan.text import synonyms as shipped_synonyms
from headscan_lab.evaluation.scores import (
    ItemNumber,
    Numbers,
    PlainNumber,
    retrieval,
    similarity_number,
)
from headscan_lab.evaluation.task import TASKS, Evaluated, Task


def read_pud(path: str | Path) -> dict[str, list[str]]:
    """Return aligned sentences by language.

    The file is a JSON of {language: [sentence, ...]}, or of a list of {language: sentence}.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if isinstance(content, dict) and all(isinstance(part, list) for part in content.values()):
            return content
        rows = content if isinstance(content, list) else _first_list(content)
        languages = [key for key, value in rows[0].items() if _is_language(key, value)]
        return {language: [row[language] for row in rows] for language in languages}
    except (OSError, ValueError, KeyError, IndexError, StopIteration):
        raise BadInput(f"{path} is no JSON of aligned sentences.") from None


def _first_list(content: dict[str, Any]) -> list[dict[str, Any]]:
    return next(value for value in content.values() if isinstance(value, list))


def _is_language(key: str, value: object) -> bool:
    return len(key) <= 3 and key != "id" and isinstance(value, str)


@TASKS.register("pud")
class Translations(Task):
    """Retrieval of translations from and into English, in pud/*.json."""

    folder: ClassVar[str] = "pud"
    tokens: ClassVar[int] = 400  # a sentence in each language

    def numbers(self, subject: Evaluated) -> Numbers:
        files = sorted((subject.sets / "pud").glob("*.json"))
        if not files:
            raise BadInput(f"{subject.sets / 'pud'} holds no .json.")
        vectors = {}
        for language, sentences in read_pud(files[0]).items():
            vectors[language] = subject.vectors(subject.sample(sentences)[0])
        if "en" not in vectors:
            raise BadInput(f"{files[0]} has no English sentences.")

        return {
            language: retrieval(vectors["en"], translations)
            for language, translations in sorted(vectors.items())
            if language != "en"
        }


def read_stsb(path: str | Path) -> tuple[list[str], list[str], Floats]:
    """Return the first sentences, the second ones, and the scores (0 to 5) of an STS-B .csv."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row[-3:] for row in csv.reader(file) if len(row) >= 3]
        gold = np.array([float(row[2]) for row in rows])
    except (OSError, ValueError):
        raise BadInput(f"{path} is no .csv of sentences, sentences and scores.") from None
    return [row[0] for row in rows], [row[1] for row in rows], gold


@TASKS.register("stsb")
class Similarity(Task):
    """Spearman's correlation of cosines with human scores, for each stsb/stsb-LANGUAGE-test.csv."""

    folder: ClassVar[str] = "stsb"
    tokens: ClassVar[int] = 100  # a pair in each language

    def numbers(self, subject: Evaluated) -> Numbers:
        numbers: Numbers = {}
        for path in sorted((subject.sets / "stsb").glob("stsb-*-test.csv")):
            left, right, gold = subject.sample(*read_stsb(path))
            language = path.stem.split("-")[1]
            numbers[f"spearman {language}"] = similarity_number(
                subject.vectors(left), subject.vectors(right), gold
            )
        return numbers


def synonyms(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    pairs: PairSet | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Numbers:
    """Return the mean cosine of synonyms' input embeddings, and that of the same words paired at
    random.

    A word's vector is the mean of the rows of its tokens. The word is written with a space before
    it, as inside a sentence. Words that share their tokens with their partner are left out. Without
    `pairs` the list that comes with headscan is used.

    Returns:
        `synonyms` and `random` (mean cosines, -1 to 1), `gain` (their difference), `spread`
        (standard deviation of the random mean over `draws` shuffles), `p_value` (share of shuffles
        that reach the synonyms' mean) and `pairs`. A cone lifts both means, so the gain is what to
        compare between models.

    Source: Godey et al. 2024, appendix A, on pairs of WordNet; the list here is the project's own.
    """
    pairs = shipped_synonyms() if pairs is None else pairs
    if len(pairs) < 2:
        raise BadInput("Shuffled partners need at least two pairs.")
    cosines = _pair_cosines(model, tokenizer, pairs)
    count = len(cosines)
    synonym_mean = float(np.diag(cosines).mean())

    drawing = np.random.default_rng(seed)
    rows = np.arange(count)
    partners = [drawing.permutation(count) for _ in range(draws)]
    shuffled = np.array([cosines[rows, columns].mean() for columns in partners])
    random_mean = float(shuffled.mean())

    def interval(synonym_weight: float, random_weight: float) -> list[float] | None:
        """Return the interval, over other pairs, of a weighted sum of the two means."""

        def weighted_sum(indices: npt.NDArray[np.int64]) -> float:
            paired = float(np.diag(cosines)[indices].mean())
            all_pairings = float(cosines[np.ix_(indices, indices)].mean())
            return synonym_weight * paired + random_weight * all_pairings

        return ItemNumber(weighted_sum, count).interval

    p_value = float((1 + (shuffled >= synonym_mean).sum()) / (1 + draws))
    return {
        "synonyms": PlainNumber(synonym_mean, interval(1, 0)),
        "random": PlainNumber(random_mean, interval(0, 1)),
        "gain": PlainNumber(synonym_mean - random_mean, interval(1, -1)),
        "spread": PlainNumber(float(shuffled.std())),
        "p_value": PlainNumber(p_value),
        "pairs": PlainNumber(count),
    }


def _pair_cosines(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pairs: PairSet
) -> npt.NDArray[np.float32]:
    """Return the cosines [n, n] of first words with second ones; the diagonal has the pairs."""
    table = embedding_table(model).detach().float().cpu().numpy()

    def token_ids(word: str) -> list[int]:
        ids: list[int] = tokenizer(" " + word, add_special_tokens=False)["input_ids"]
        return ids

    def unit_vector(ids: list[int]) -> npt.NDArray[np.float32]:
        vector = table[ids].mean(0)
        unit: npt.NDArray[np.float32] = vector / max(np.linalg.norm(vector), 1e-12)
        return unit

    left = []
    right = []
    for first_word, second_word in zip(pairs.one, pairs.other, strict=True):
        first_ids = token_ids(first_word)
        second_ids = token_ids(second_word)
        if first_ids != second_ids:
            left.append(unit_vector(first_ids))
            right.append(unit_vector(second_ids))
    return np.stack(left) @ np.stack(right).T


@TASKS.register("synonyms")
class Synonyms(Task):
    """Are synonyms' input embeddings closer than the same words paired at random? The task needs no
    set.
    """

    def numbers(self, subject: Evaluated) -> Numbers:
        return synonyms(subject.model, subject.tokenizer)
