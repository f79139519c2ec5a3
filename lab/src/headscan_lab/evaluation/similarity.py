"""PUD: which sentence of another language is the translation?"""

import csv
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.model.traits import embedding_table
from headscan.run import BadInput
from headscan.statistics.uncertainty import Floats, clustered
from headscan.text import PairSet
from headscan.text import synonyms as shipped
from headscan_lab.evaluation.task import (
    TASKS,
    Evaluated,
    Scores,
    Task,
    retrieval,
    similarity_scores,
)


def read_pud(path: str | Path) -> dict[str, list[str]]:
    """Aligned sentences by language, from a JSON of {language: [...]} or of a list of {language:
    sentence}.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if isinstance(found, dict) and all(isinstance(value, list) for value in found.values()):
            return found
        rows = (
            found
            if isinstance(found, list)
            else next(v for v in found.values() if isinstance(v, list))
        )
        languages = [
            key
            for key in rows[0]
            if len(key) <= 3 and key != "id" and isinstance(rows[0][key], str)
        ]
        return {language: [row[language] for row in rows] for language in languages}
    except (OSError, ValueError, KeyError, IndexError, StopIteration):
        raise BadInput(f"{path} is no JSON of aligned sentences.") from None


@TASKS.register("pud")
class Translations(Task):
    """Retrieval of translations from and into English, in pud/*.json."""

    place: ClassVar[str] = "pud"
    tokens: ClassVar[int] = 400  # a sentence in each language

    def scores(self, given: Evaluated) -> Scores:
        if not (files := sorted((given.sets / "pud").glob("*.json"))):
            raise BadInput(f"{given.sets / 'pud'} holds no .json.")
        vectors = {
            name: given.vectors(given.sample(each)[0]) for name, each in read_pud(files[0]).items()
        }
        if "en" not in vectors:
            raise BadInput(f"{files[0]} has no English sentences.")
        scores: Scores = {}
        for name, each in sorted(vectors.items()):
            if name != "en":
                found = retrieval(vectors["en"], each)
                scores |= {name: found["mean"], f"{name}_interval": found["mean_interval"]}
        return scores


# ---- STS-B: how alike are two sentences, in several languages?


def read_stsb(path: str | Path) -> tuple[list[str], list[str], Floats]:
    """(first sentences, second sentences, scores 0 to 5) of an STS-B .csv."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row[-3:] for row in csv.reader(file) if len(row) >= 3]
        return (
            [row[0] for row in rows],
            [row[1] for row in rows],
            np.array([float(row[2]) for row in rows]),
        )
    except (OSError, ValueError):
        raise BadInput(f"{path} is no .csv of sentences, sentences and scores.") from None


@TASKS.register("stsb")
class Similarity(Task):
    """Spearman's correlation of cosines with human scores, for each stsb/stsb-LANGUAGE-test.csv."""

    place: ClassVar[str] = "stsb"
    tokens: ClassVar[int] = 100  # a pair in each language

    def scores(self, given: Evaluated) -> Scores:
        found: Scores = {}
        for path in sorted((given.sets / "stsb").glob("stsb-*-test.csv")):
            one, other, gold = given.sample(*read_stsb(path))
            language = path.stem.split("-")[1]
            found |= similarity_scores(
                f"spearman {language}", given.vectors(one), given.vectors(other), gold
            )
        return found


# ---- Do synonyms lie close together in the embedding table? The cosine of pairs, beside the same words paired at random.


def synonyms(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    pairs: PairSet | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Scores:
    """Mean cosine of synonyms' input embeddings, beside the same words with their partners
    shuffled.

    A word's vector is the mean of the rows of its tokens, written with a space before it, as inside
    a sentence. Words that share their tokens with their partner are left out. Without `pairs` it is
    the list that comes with headscan.

    Returns synonyms and random (mean cosines, -1 to 1), gain (their difference), spread (standard
    deviation of the random mean over `draws` shuffles), p_value (share of shuffles that reach the
    synonyms' mean) and pairs. A cone lifts both means, so the gain is what to compare between
    models.

    Source: Godey et al. 2024, appendix A, on pairs of WordNet; the list here is the project's own.
    """
    pairs = shipped() if pairs is None else pairs
    if len(pairs) < 2:
        raise BadInput("Shuffled partners need at least two pairs.")
    table = embedding_table(model).detach().float().cpu().numpy()

    def unit(word: str) -> tuple[list[int], npt.NDArray[np.float32]]:
        ids = tokenizer(" " + word, add_special_tokens=False)["input_ids"]
        vector = table[ids].mean(0)
        return ids, vector / max(np.linalg.norm(vector), 1e-12)

    found = [(unit(one), unit(other)) for one, other in zip(pairs.one, pairs.other, strict=True)]
    kept = [(one[1], other[1]) for one, other in found if one[0] != other[0]]
    left, right = (np.stack(side) for side in zip(*kept, strict=True))
    cosines = left @ right.T
    draw = np.random.default_rng(seed)
    own = float(np.diag(cosines).mean())
    numbers = np.arange(len(kept))
    shuffled = np.array(
        [cosines[numbers, draw.permutation(len(kept))].mean() for _ in range(draws)]
    )

    def interval(own: float, random: float) -> list[float] | None:
        """Of so many times the mean over pairs, and over all pairings, over other pairs of words."""

        def value(taken: npt.NDArray[np.int64]) -> float:
            return own * float(np.diag(cosines)[taken].mean()) + random * float(
                cosines[np.ix_(taken, taken)].mean()
            )

        return clustered(value, len(kept))

    return {
        "synonyms": own,
        "synonyms_interval": interval(1, 0),
        "random": float(shuffled.mean()),
        "random_interval": interval(0, 1),
        "gain": own - float(shuffled.mean()),
        "gain_interval": interval(1, -1),
        "spread": float(shuffled.std()),
        "p_value": float((1 + (shuffled >= own).sum()) / (1 + draws)),
        "pairs": len(kept),
    }


@TASKS.register("synonyms")
class Synonyms(Task):
    """Are synonyms' input embeddings closer than the same words paired at random? Needs no set."""

    def scores(self, given: Evaluated) -> Scores:
        return synonyms(given.model, given.tokenizer)
