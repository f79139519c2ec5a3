"""Pairs of texts that mean the same: translations, paraphrases, synonyms, read from the files they come in."""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headscan.run.errors import BadInput
from headscan.text.reading import LONGEST, too_long
from headscan.text.source import FOLDER

PARAPHRASE = 4.0
"""The least score, out of 5, at which a pair of STS-B counts as a paraphrase."""


@dataclass(frozen=True)
class PairSet:
    """Pairs of texts: `one[k]` and `other[k]` mean the same; `scored` are all that people gave a score, with it."""

    name: str
    one: list[str]
    other: list[str]
    scored: tuple[tuple[str, str, float], ...] = ()

    def __len__(self) -> int:
        return len(self.one)

    def first(self, count: int) -> "PairSet":
        return PairSet(self.name, self.one[:count], self.other[:count])


def synonyms() -> PairSet:
    """The plain English synonyms that come with headscan."""
    return _tsv((FOLDER / "synonyms.tsv").read_text(encoding="utf-8"), "synonyms")[0]


def read_pair_files(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[PairSet]:
    """The sets of pairs in one file or several; see `read_pairs`."""
    every = [files] if isinstance(files, str | os.PathLike) else files
    return [pairs for file in every for pairs in read_pairs(file)]


def read_pairs(source: str | os.PathLike[str]) -> list[PairSet]:
    """The sets of pairs in a file, given as PATH or NAME=PATH; `synonyms` is the list that comes with headscan.

    - `.tsv`: two columns (more are passed over), one pair a line; one set.
    - `.csv`: sentence, sentence, score from 0 to 5 (STS-B): the pairs with a score of at least 4; one set.
    - `.json`: a list of objects that hold one sentence in several languages each (PUD's parallel sentences): English
      (or the first language) with every other; one set a language. Keys of a single kind such as `id` are passed over.

    The name is that of the file, or NAME. Raises BadInput where a file cannot be read so or holds fewer than two pairs.
    """
    text = os.fspath(source)
    if text == "synonyms":
        return [synonyms()]
    given, sign, rest = text.partition("=")
    named = bool(sign) and not Path(text).exists()
    path, name = (Path(rest), given) if named else (Path(text), Path(text).stem)
    readers = {".tsv": _tsv, ".txt": _tsv, ".csv": _csv, ".json": _json}
    if path.suffix not in readers:
        raise BadInput(f"Pairs come as .tsv (two columns), .csv (sentence, sentence, score) or .json, not as {path.name!r}.")
    try:
        with path.open("rb") as file:  # what the file system says of a size need not be what is read
            read = file.read(LONGEST + 1)
        if len(read) > LONGEST:
            raise too_long(str(path))
        sets = readers[path.suffix](read.decode("utf-8"), name)
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise BadInput(f"{path} cannot be read as pairs of texts ({path.suffix}).") from None
    sets = [pairs for pairs in sets if len(pairs) > 1]
    if not sets:
        raise BadInput(f"{path} holds fewer than two pairs of texts.")
    return sets


def _made(name: str, pairs: Sequence[tuple[str, str]]) -> PairSet:
    kept = [(one.strip(), other.strip()) for one, other in pairs if one.strip() and other.strip()]
    return PairSet(name, [one for one, _ in kept], [other for _, other in kept])


def _tsv(text: str, name: str) -> list[PairSet]:
    lines = [line for line in text.splitlines() if line.strip()]
    return [_made(name, [(cells[0], cells[1]) for cells in (line.split("\t") for line in lines)])]


def _csv(text: str, name: str) -> list[PairSet]:
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    if rows and not rows[0][2].replace(".", "", 1).isdigit():
        rows = rows[1:]
    scored = tuple((row[0].strip(), row[1].strip(), float(row[2])) for row in rows)
    return [replace(_made(name, [(one, other) for one, other, score in scored if score >= PARAPHRASE]), scored=scored)]


def _json(text: str, name: str) -> list[PairSet]:
    rows = json.loads(text)
    keys = [key for key in rows[0] if key != "id"]
    base = "en" if "en" in keys else keys[0]
    return [
        _made(f"{name} {base}-{key}", [(row[base], row[key]) for row in rows if base in row and key in row])
        for key in keys
        if key != base
    ]
