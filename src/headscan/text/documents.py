"""From a source of text to a stream of documents, each itself a stream of character pieces."""

import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from headscan.run.errors import BadInput, nearest
from headscan.text.reading import (
    LONGEST,
    PACKINGS,
    RATIO,
    UNPACKED,
    byte_chunks,
    characters,
    lines,
    too_long,
)
from headscan.text.source import (
    FOLDER,
    PYTHON_HELP,
    TextLike,
    embedded_names,
    ending,
    find_files,
    is_text,
    python_help,
)

# ---- Rows whose one field is a document: .jsonl, .parquet, and the `datasets` library's streams.

BATCH_ROWS = 256
BATCH_BYTES = 1 << 24


def _no_field(where: str, column: str, there: Iterable[str]) -> BadInput:
    return BadInput(
        f"{where} has no field {column!r}; it has: {', '.join(map(str, there)) or 'none'}."
    )


def _string(value: Any, where: str, column: str) -> str:
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise BadInput(f"{where}: the field {column!r} is not a string ({kind}).")
    # JSON can spell half a surrogate pair, which no UTF-8 text holds
    return _sound(value, f"{where}: the field {column!r}")


def jsonl(path: Path, column: str) -> Iterator[tuple[str, str]]:
    """Each line of a JSON lines file as (where, document); blank lines are passed over, one line is
    held at a time.
    """
    for number, line in enumerate(lines(characters(byte_chunks(path), str(path)), str(path)), 1):
        if not line or line.isspace():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (
            ValueError,
            RecursionError,
        ) as fault:  # also a whole number of more digits than Python reads
            raise BadInput(f"{where} is not JSON: {fault}.") from fault
        if not isinstance(row, dict):
            raise BadInput(f"{where} is not a JSON object with a field {column!r}.")
        if column not in row:
            raise _no_field(where, column, row)
        yield where, _string(row[column], where, column)


def parquet(path: Path, column: str) -> Iterator[tuple[str, str]]:
    """Each row of a Parquet file as (where, document); only that column is read, at most 256 rows
    or 16 MiB at a time.
    """
    if path.suffix.lower() not in PACKINGS:
        yield from _parquet(path, path, column)
        return
    with tempfile.TemporaryFile() as unpacked:  # Parquet is read from its end
        unpacked.writelines(byte_chunks(path))
        unpacked.seek(0)
        yield from _parquet(unpacked, path, column)


def _parquet(file: Any, path: Path, column: str) -> Iterator[tuple[str, str]]:
    import pyarrow as arrow
    from pyarrow.parquet import ParquetFile

    try:
        table = ParquetFile(file)
        schema = table.schema_arrow
        if column not in schema.names:
            raise _no_field(str(path), column, schema.names)
        if schema.names.count(column) > 1:
            raise BadInput(
                f"{path} has {schema.names.count(column)} fields {column!r}: which of them is "
                "meant cannot be told."
            )
        kind = schema.field(column).type
        if arrow.types.is_dictionary(kind):
            kind = kind.value_type
        if not (
            arrow.types.is_string(kind)
            or arrow.types.is_large_string(kind)
            or arrow.types.is_string_view(kind)
        ):
            raise BadInput(f"{path}: the field {column!r} is not a string ({kind}).")
        size = os.stat(file if isinstance(file, Path) else file.fileno()).st_size
        number = 0
        many = _rows_at_once(table.metadata, path, size)
        # a long row that is repeated is held once
        table = ParquetFile(file, read_dictionary=[column])
        for batch in table.iter_batches(batch_size=many, columns=[column]):
            for value in batch.column(0):  # one by one: rows that say the same share their memory
                number += 1
                where = f"{path}, row {number}"
                text = _string(value.as_py(), where, column)
                if len(text) > LONGEST:
                    raise too_long(where)
                yield where, text
    except (arrow.ArrowException, OSError) as fault:
        reason = (str(fault).splitlines() or [type(fault).__name__])[0].rstrip(".")
        raise BadInput(f"{path} cannot be read as Parquet: {reason}.") from fault
    except UnicodeDecodeError as fault:
        raise BadInput(
            f"{path}: a row of the field {column!r} is not UTF-8: {fault.reason}."
        ) from fault


def _rows_at_once(metadata: Any, path: Path, size: int) -> int:
    """Rows of a batch, by how long they are on average; BadInput where a file of this size is
    packed as no text is.

    A row group's own sums are asked: Arrow 26 ends the process where the statistics of one of its
    columns are damaged.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if sum(group.total_byte_size for group in groups) > max(UNPACKED, RATIO * size):
        raise BadInput(f"{path} unpacks to more than {RATIO} times its size, which no text does.")
    longest = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1.0)
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(1.0, longest))))


def _check_reached(identity: str) -> None:
    """Fail at once where the hub cannot be reached: `datasets` tries six times, for half a minute."""
    from huggingface_hub import constants, get_session

    if not constants.HF_HUB_OFFLINE and not Path(identity).exists():
        try:
            get_session().head(constants.ENDPOINT, timeout=10)
        except Exception as fault:  # of whatever library it speaks with
            raise OSError(f"{constants.ENDPOINT} cannot be reached") from fault


def dataset(name: str, column: str) -> Iterator[tuple[str, str]]:
    """Stream the rows of a dataset given as ID, ID:SPLIT or ID:CONFIG:SPLIT (split "train" unless
    said).
    """
    missing = f"There is no file, folder or embedded text {name!r}"
    try:
        import datasets
    except ImportError as fault:
        raise BadInput(
            f"{missing}; to read it as a dataset, pip install 'headscan[datasets]'."
        ) from fault
    identity, *rest = name.split(":")
    if len(rest) > 2:
        raise BadInput(f"{missing}; a dataset is named ID, ID:SPLIT or ID:CONFIG:SPLIT.")
    split = rest[-1] if rest else "train"
    config = rest[0] if len(rest) == 2 else None
    try:
        _check_reached(identity)
        for number, row in enumerate(
            datasets.load_dataset(identity, config, split=split, streaming=True), 1
        ):
            where = f"{name}, row {number}"
            if column not in row:
                raise _no_field(where, column, row)
            yield where, _string(row[column], where, column)
    except BadInput:
        raise
    except (
        Exception
    ) as fault:  # the library's faults come from many packages: network, hub, formats, scripts
        reason = (str(fault).splitlines() or [type(fault).__name__])[0].rstrip(".")
        near = nearest(name, embedded_names())
        raise BadInput(
            f"{missing}, and no dataset of that name can be read: {reason}.{near}"
        ) from fault


@dataclass
class Document:
    """One document: where it stands, and its text as a stream of character pieces that can be read
    once.

    Documents come from one stream: whatever of one is unread when the next one is asked for is
    skipped.
    """

    name: str
    pieces: Iterable[str] = field(repr=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.pieces)

    def text(self) -> str:
        """All that is unread of the document, in one string; BadInput where it is longer than
        16,777,216 characters.
        """
        text = self.beginning(LONGEST + 1)
        if len(text) > LONGEST:
            raise too_long(self.name)
        return text

    def beginning(self, characters: int) -> str:
        """At most so many characters of what is unread of the document."""
        held = []
        length = 0
        for piece in self.pieces:
            held.append(piece)
            length += len(piece)
            if length >= characters:
                break
        return "".join(held)[:characters]


def documents(
    source: TextLike, *, documents: str = "whole", field: str = "text"
) -> Iterator[Document]:
    """Stream the documents of a source, in order, without ever holding the corpus in memory.

    `source` is a file (.txt, .jsonl, .parquet, each also with .gz or .zst), a folder (every such
    file in it, at any depth, by sorted path; hidden and other files are passed over), "-" (standard
    input, as .txt; once), the name of an embedded text, a `datasets` id as ID, ID:SPLIT or
    ID:CONFIG:SPLIT (streamed; split "train" unless said), the text itself (a string with a line
    break, or too long for a name), or a list of strings; these are read as a .txt. A file or folder
    wins over a name. `documents` says how a .txt is cut: "whole" (the file is one document, exactly
    as it stands), "lines", "paragraphs" (runs of lines that are not blank) or any other string,
    taken as the separator. Line ends belong to no document of "lines" and "paragraphs"; around a
    separator nothing is stripped. `field` is the field of a row that is its document.

    Yields documents with at least one character. Raises `BadInput` where the source is missing,
    unknown, corrupt or not UTF-8, a row has no such field or no string in it, a line ("lines",
    "paragraphs", .jsonl) or row is longer than 16,777,216 characters, or a packed file unpacks to
    more than 64 MiB and more than 500 times its size. Memory: 64 KiB chunks; a line or a .parquet
    batch of about 16 MiB is held whole.

    >>> [d.text() for d in documents(["one\\ntwo\\n\\nthree\\n"], documents="paragraphs")]
    ['one\\ntwo', 'three']
    """
    if not documents:
        raise BadInput(
            'The documents of a text are "whole", "lines", "paragraphs" or a separator that is '
            "not empty."
        )
    for document in _all(source, documents, field):
        unread = iter(document)
        # An empty document would join two end-of-text tokens; the first character decides.
        if (head := next((piece for piece in unread if piece), None)) is None:
            continue
        yield Document(document.name, chain([head], unread))
        for _ in unread:
            pass


def _all(source: TextLike, mode: str, column: str) -> Iterator[Document]:
    if isinstance(source, str) and is_text(source):
        yield from _cut([_sound(source, "The text")], "<text>", mode)
    elif not isinstance(source, str | os.PathLike):
        for number, text in enumerate(source):
            yield from _cut([_sound(text, f"Text {number}")], f"text {number}", mode)
    elif os.fspath(source) == "-":
        yield from _cut(
            characters(iter(partial(sys.stdin.buffer.read, 1 << 16), b""), "Standard input"),
            "-",
            mode,
        )
    elif (files := find_files(source)) is not None:
        for file in files:
            yield from _file(file, mode, column)
    elif source == PYTHON_HELP:
        yield from _cut(python_help(), PYTHON_HELP, mode)
    else:
        for where, text in dataset(str(source), column):
            yield Document(where, [text])


def _sound(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        raise BadInput(f"{name} holds half a surrogate pair at character {fault.start}.") from None
    return text


def _file(path: Path, mode: str, column: str) -> Iterator[Document]:
    kind = ending(path)
    if kind == ".txt":
        yield from _cut(characters(byte_chunks(path), str(path)), str(path), mode)
        return
    for where, text in jsonl(path, column) if kind == ".jsonl" else parquet(path, column):
        yield Document(where, [text])


def _cut(pieces: Iterable[str], name: str, mode: str) -> Iterator[Document]:
    if mode == "whole":
        yield Document(name, pieces)
    elif mode == "lines":
        for number, line in enumerate(lines(pieces, name), 1):
            if line and not line.isspace():
                yield Document(f"{name}, line {number}", [line])
    elif mode == "paragraphs":
        runs = groupby(lines(pieces, name), lambda line: bool(line) and not line.isspace())
        for number, run in enumerate((run for full, run in runs if full), 1):
            yield Document(
                f"{name}, paragraph {number}", chain([next(run)], (f"\n{line}" for line in run))
            )
    else:
        yield from _separated(pieces, mode, name)


def _separated(pieces: Iterable[str], separator: str, name: str) -> Iterator[Document]:
    stream, held, ended = iter(pieces), "", False

    def document() -> Iterator[str]:
        nonlocal held, ended
        while True:
            before, mark, after = held.partition(separator)
            if mark:
                held = after
                yield before
                return
            # The last characters may be the beginning of a separator that the next piece completes.
            sure = max(0, len(held) - len(separator) + 1)
            ready, held = held[:sure], held[sure:]
            yield ready
            if (piece := next(stream, None)) is None:
                ended = True
                yield held
                return
            held += piece

    number = 0
    while not ended:
        number += 1
        yield (made := Document(f"{name}, document {number}", document()))
        for _ in made:
            pass


# ---- Pairs of texts that mean the same: translations, paraphrases, synonyms, read from the files they come in.


PARAPHRASE = 4.0
"""The least score, out of 5, at which a pair of STS-B counts as a paraphrase."""


@dataclass(frozen=True)
class PairSet:
    """Pairs of texts: `one[k]` and `other[k]` mean the same; `scored` are all that people gave a
    score, with it.
    """

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


def read_pair_files(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> list[PairSet]:
    """The sets of pairs in one file or several; see `read_pairs`."""
    every = [files] if isinstance(files, str | os.PathLike) else files
    return [pairs for file in every for pairs in read_pairs(file)]


def read_pairs(source: str | os.PathLike[str]) -> list[PairSet]:
    """The sets of pairs in a file, given as PATH or NAME=PATH; `synonyms` is the list that comes
    with headscan.

    - `.tsv`: two columns (more are passed over), one pair a line; one set.
    - `.csv`: sentence, sentence, score from 0 to 5 (STS-B): the pairs with a score of at least 4;
      one set.
    - `.json`: a list of objects that hold one sentence in several languages each (PUD's parallel
      sentences): English (or the first language) with every other; one set a language. Keys of a
      single kind such as `id` are passed over.

    The name is that of the file, or NAME. Raises BadInput where a file cannot be read so or holds
    fewer than two pairs.
    """
    text = os.fspath(source)
    if text == "synonyms":
        return [synonyms()]
    given, sign, rest = text.partition("=")
    named = bool(sign) and not Path(text).exists()
    path, name = (Path(rest), given) if named else (Path(text), Path(text).stem)
    readers = {".tsv": _tsv, ".txt": _tsv, ".csv": _csv, ".json": _json}
    if path.suffix not in readers:
        raise BadInput(
            "Pairs come as .tsv (two columns), .csv (sentence, sentence, score) or .json, not as "
            f"{path.name!r}."
        )
    try:
        with path.open(
            "rb"
        ) as file:  # what the file system says of a size need not be what is read
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
    return [
        replace(
            _made(name, [(one, other) for one, other, score in scored if score >= PARAPHRASE]),
            scored=scored,
        )
    ]


def _json(text: str, name: str) -> list[PairSet]:
    rows = json.loads(text)
    keys = [key for key in rows[0] if key != "id"]
    base = "en" if "en" in keys else keys[0]
    return [
        _made(
            f"{name} {base}-{key}",
            [(row[base], row[key]) for row in rows if base in row and key in row],
        )
        for key in keys
        if key != base
    ]
