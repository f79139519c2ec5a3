"""Pairs of texts with the same meaning: translations, paraphrases, synonyms, and their files."""

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headscan.run.errors import BadInput
from headscan.text.reading import LONGEST, too_long
from headscan.text.source import FOLDER

PARAPHRASE = 4.0
"""The least score, out of 5, at which a pair of STS-B counts as a paraphrase."""


@dataclass(frozen=True)
class PairSet:
    """Pairs of texts: `one[k]` and `other[k]` mean the same.

    `scored` are all pairs that people gave a score, with it.
    """

    name: str
    one: list[str]
    other: list[str]
    scored: tuple[tuple[str, str, float], ...] = ()

    def __len__(self) -> int:
        return len(self.one)

    def first(self, count: int) -> "PairSet":
        """Return the first `count` pairs."""
        return PairSet(self.name, self.one[:count], self.other[:count])


def synonyms() -> PairSet:
    """Return the plain English synonyms that come with headscan."""
    text = (FOLDER / "synonyms.tsv").read_text(encoding="utf-8")
    return _read_tsv(text, "synonyms")[0]


def read_pair_files(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> list[PairSet]:
    """Return the sets of pairs in one file or several; see `read_pairs`."""
    paths = [files] if isinstance(files, str | os.PathLike) else files
    return [pairs for path in paths for pairs in read_pairs(path)]


def read_pairs(source: str | os.PathLike[str]) -> list[PairSet]:
    """Return the sets of pairs in a file, given as PATH or NAME=PATH.

    `synonyms` is the list that comes with headscan.

    - `.tsv`: two columns (further ones are passed over), one pair a line; one set.
    - `.csv`: sentence, sentence, score from 0 to 5 (STS-B): the pairs with a score of at least 4;
      one set.
    - `.json`: a list of objects that hold one sentence in several languages each (PUD's parallel
      sentences): English (or the first language) with every other; one set a language. Keys of a
      single kind such as `id` are passed over.

    The name is that of the file, or NAME. Raises BadInput where a file cannot be read so or holds
    fewer than two pairs.
    """
    argument = os.fspath(source)
    if argument == "synonyms":
        return [synonyms()]
    path = Path(argument)
    name = path.stem
    prefix, equals_sign, suffix = argument.partition("=")
    if equals_sign and not path.exists():
        path = Path(suffix)
        name = prefix

    readers = {".tsv": _read_tsv, ".txt": _read_tsv, ".csv": _read_csv, ".json": _read_json}
    if path.suffix not in readers:
        raise BadInput(
            "Pairs come as .tsv (two columns), .csv (sentence, sentence, score) or .json, not as "
            f"{path.name!r}."
        )
    try:
        text = _file_text(path)
        sets = readers[path.suffix](text, name)
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise BadInput(f"{path} cannot be read as pairs of texts ({path.suffix}).") from None
    sets = [pairs for pairs in sets if len(pairs) > 1]
    if not sets:
        raise BadInput(f"{path} holds fewer than two pairs of texts.")
    return sets


def _file_text(path: Path) -> str:
    """Return a file's text; BadInput where more than the longest text can be read."""
    with path.open("rb") as file:
        data = file.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise too_long(str(path))
    return data.decode("utf-8")


def _pair_set(name: str, pairs: Iterable[tuple[str, str]]) -> PairSet:
    """Return the pairs of which no text is blank."""
    stripped = [(first.strip(), second.strip()) for first, second in pairs]
    full = [(first, second) for first, second in stripped if first and second]
    return PairSet(name, [first for first, _ in full], [second for _, second in full])


def _read_tsv(text: str, name: str) -> list[PairSet]:
    rows = [line.split("\t") for line in text.splitlines() if line.strip()]
    return [_pair_set(name, [(row[0], row[1]) for row in rows])]


def _read_csv(text: str, name: str) -> list[PairSet]:
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    has_header = bool(rows) and not rows[0][2].replace(".", "", 1).isdigit()
    if has_header:
        rows = rows[1:]
    scored = tuple((row[0].strip(), row[1].strip(), float(row[2])) for row in rows)
    paraphrases = [(first, second) for first, second, score in scored if score >= PARAPHRASE]
    return [replace(_pair_set(name, paraphrases), scored=scored)]


def _read_json(text: str, name: str) -> list[PairSet]:
    rows = json.loads(text)
    languages = [key for key in rows[0] if key != "id"]
    base = "en" if "en" in languages else languages[0]
    sets = []
    for language in languages:
        if language == base:
            continue
        translated = [row for row in rows if base in row and language in row]
        pairs = [(row[base], row[language]) for row in translated]
        sets.append(_pair_set(f"{name} {base}-{language}", pairs))
    return sets
