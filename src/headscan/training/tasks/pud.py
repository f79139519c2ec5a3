"""PUD: which sentence of another language is the translation?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from headscan.run import BadInput
from headscan.training.sentences import retrieval
from headscan.training.task import TASKS, Evaluated, Scores, Task

__all__ = ["Translations", "read_pud"]


def read_pud(path: str | Path) -> dict[str, list[str]]:
    """Aligned sentences by language, from a JSON of {language: [...]} or of a list of {language: sentence}."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if isinstance(found, dict) and all(isinstance(value, list) for value in found.values()):
            return found
        rows = found if isinstance(found, list) else next(v for v in found.values() if isinstance(v, list))
        languages = [key for key in rows[0] if len(key) <= 3 and key != "id" and isinstance(rows[0][key], str)]
        return {language: [row[language] for row in rows] for language in languages}
    except (OSError, ValueError, KeyError, IndexError, StopIteration):
        raise BadInput(f"{path} is no JSON of aligned sentences.") from None


@TASKS.register("pud")
class Translations(Task):
    """Retrieval of translations from and into English, in pud/*.json."""

    place: ClassVar[str] = "pud"
    tokens: ClassVar[int] = 400  # a sentence in each language

    def scores(self, given: Evaluated) -> Scores:
        """One accuracy a language."""
        files = sorted((given.sets / "pud").glob("*.json"))
        if not files:
            raise BadInput(f"{given.sets / 'pud'} holds no .json.")
        vectors = {name: given.vectors(each) for name, each in read_pud(files[0]).items()}
        if "en" not in vectors:
            raise BadInput(f"{files[0]} has no English sentences.")
        scores: Scores = {}
        for name, each in sorted(vectors.items()):
            if name != "en":
                found = retrieval(vectors["en"], each)
                scores |= {name: found["mean"], f"{name}_interval": found["mean_interval"]}
        return scores
