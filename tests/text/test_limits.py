"""Texts that would fill the memory or never end: each is refused in a sentence, with little of it
ever held.
"""

import gzip
import itertools
import json
import os
import threading
import tracemalloc
from collections import deque
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet
import pytest
import zstandard

from headscan.model import ByteTokenizer
from headscan.run import BadInput
from headscan.text import Windows, check_text, documents
from headscan.text.pairs import read_pairs
from headscan.text.reading import LONGEST, lines
from headscan.text.tokens import WORD, tokenise


def zeros(path: Path, size: int, unit: bytes = bytes(1 << 20)) -> Path:
    """A packed file of so many bytes, made as a stream."""
    opened = gzip.open if path.suffix == ".gz" else zstandard.open
    with opened(path, "wb") as file:
        for _ in range(size // len(unit)):
            file.write(unit)
    return path


@pytest.fixture(scope="module", params=["a.txt.zst", "a.jsonl.zst", "a.parquet.zst", "a.txt.gz"])
def bomb(request, tmp_path_factory) -> Path:
    return zeros(
        tmp_path_factory.mktemp("zeros") / request.param,
        1 << 27,
    )


def test_a_file_of_packed_zeros_is_refused_before_any_work(bomb):
    tracemalloc.start()
    with pytest.raises(
        BadInput, match="unpacks to more than 500 times its size, which no text does"
    ):
        check_text(bomb)
    for cut in ("whole", "lines", "paragraphs", "|"):
        with pytest.raises(BadInput, match=r"500 times its size|longer than 16,777,216 characters"):
            deque(documents(bomb, documents=cut), maxlen=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 90e6


def test_what_is_packed_a_thousandfold_but_small_is_read(tmp_path):
    path = zeros(tmp_path / "a.txt.zst", 1 << 25, b"Once upon a time. " * 1000)
    check_text(path)
    assert (
        sum(len(piece) for document in documents(path) for piece in document)
        == (1 << 25) // 18000 * 18000
    )


def test_max_tokens_stops_the_reader(tmp_path):
    """The file ends in a torn frame, which nobody comes to."""
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstandard.compress(b"Once upon a time. " * 10_000) + b"no zstd")
    windows = Windows(path, ByteTokenizer(), 64, max_tokens=6400)
    assert len(list(windows)) == 100
    with pytest.raises(BadInput, match="not a whole zstd file"):
        list(Windows(path, ByteTokenizer(), 64))


def test_lines_and_rows_without_end(tmp_path):
    endless = itertools.repeat("x" * (1 << 20))
    with pytest.raises(BadInput, match=r"hens, line 3 is longer than 16,777,216 characters"):
        list(lines(itertools.chain(["a\nb\n"], endless), "hens"))
    row = json.dumps({"text": "x" * LONGEST})
    (tmp_path / "a.jsonl").write_text(f'{{"text": "one"}}\n{row}\n')
    with pytest.raises(BadInput, match=r"a\.jsonl, line 2 is longer than"):
        list(documents(tmp_path / "a.jsonl"))
    fitting = '{"text": "' + "x" * (LONGEST - 12) + '"}'
    (tmp_path / "a.jsonl").write_text(fitting)
    assert len(next(iter(documents(tmp_path / "a.jsonl"))).text()) == LONGEST - 12


def test_rows_of_parquet(tmp_path):
    """Repeated long rows share their memory; one that is too long, or a column that is packed as no
    text is, is refused.
    """
    long = "".join(map(str, range(200_000)))
    arrow.parquet.write_table(arrow.table({"text": [long] * 100}), tmp_path / "a.parquet")
    bytes_before = arrow.total_allocated_bytes()
    count = 0
    for document in documents(tmp_path / "a.parquet"):
        count += document.text() == long
        assert arrow.total_allocated_bytes() - bytes_before < 64e6
    assert count == 100
    arrow.parquet.write_table(
        arrow.table({"text": ["a", "x" * (LONGEST + 1)]}), tmp_path / "b.parquet", compression=None
    )
    with pytest.raises(BadInput, match=r"b\.parquet, row 2 is longer than"):
        list(documents(tmp_path / "b.parquet"))
    table = arrow.table({"text": ["\0" * (1 << 26), "\0" * (1 << 20)]})
    arrow.parquet.write_table(
        table, tmp_path / "c.parquet", compression="zstd", use_dictionary=False
    )
    with pytest.raises(BadInput, match=r"c\.parquet unpacks to more than 500 times its size"):
        list(documents(tmp_path / "c.parquet"))


def test_a_word_without_end_is_refused_and_a_long_one_is_not():
    from headscan.model.tokenizer import load_tokenizer

    tokenizer = load_tokenizer("gpt-vanilla")
    word = sum(
        len(stretch.ids) for stretch in tokenise(documents(["é" * 40_000 + "\n"]), tokenizer)
    )
    assert word == len(tokenizer("é" * 40_000 + "\n", add_special_tokens=False)["input_ids"])
    with pytest.raises(BadInput, match=r"a word of more than 1,048,576 characters .* is it text\?"):
        list(tokenise(documents(["\0" * (WORD + 5000) + "\n"]), tokenizer))


def test_a_document_that_must_be_held_whole_says_when_it_is_too_long():
    class Slow:
        def encode(self, text, add_special_tokens=False):
            return [ord(letter) for letter in text]

    with pytest.raises(BadInput, match="longer than 16,777,216 characters"):
        list(tokenise(documents(["x" * (LONGEST + 1) + "\n"]), Slow()))


def test_a_file_of_pairs_that_is_too_large(tmp_path):
    (tmp_path / "a.tsv").write_bytes(bytes(LONGEST + 1))
    os.mkfifo(tmp_path / "b.tsv")  # whose size is 0 to the file system
    threading.Thread(
        target=lambda: (tmp_path / "b.tsv").write_bytes(bytes(LONGEST + 1)), daemon=True
    ).start()
    for name in ("a", "b"):
        with pytest.raises(BadInput, match=rf"{name}\.tsv is longer than"):
            read_pairs(tmp_path / f"{name}.tsv")
