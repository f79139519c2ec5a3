"""Archives whose bytes are not those that were written, as mutants of `make attack` found them."""

import json
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headscan
from headscan.model import tokenizer
from headscan.model.sentence import _declared
from headscan.run import BadInput
from headscan.states.formats import arrays
from headscan.text.documents import documents


@pytest.mark.parametrize("fault", [lzma.LZMAError("Corrupt input data"), MemoryError()])
def test_a_packed_array_that_cannot_be_unpacked_is_bad_input(fault, tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", vectors=np.ones((64, 8)))

    def read(*_: object) -> bytes:
        raise fault

    monkeypatch.setattr(zipfile.ZipFile, "read", read)
    with pytest.raises(
        BadInput, match=r"x\.npz is no \.npz file, is truncated, or cannot be read: ."
    ):
        headscan.scan(tmp_path / "x.npz")
    assert isinstance(fault, arrays.DAMAGED)


def test_a_file_that_says_it_is_larger_than_the_memory_declares_nothing(tmp_path, monkeypatch):
    def read_text(*_: object) -> str:
        raise MemoryError

    monkeypatch.setattr(Path, "read_text", read_text)
    assert _declared(tmp_path, "modules.json") is None


def test_a_tokenizer_that_panics_is_bad_input_and_a_stop_is_none():
    class PanicException(BaseException):  # as pyo3 calls it
        pass

    class Source:
        name = "damaged"

        def __init__(self, fault: BaseException) -> None:
            self.fault = fault

        def read(self, *_: object) -> None:
            raise self.fault

    with pytest.raises(
        BadInput, match="The tokenizer of 'damaged' cannot be read: index out of range"
    ):
        tokenizer._read(Source(PanicException("index out of range")), False)
    with pytest.raises(KeyboardInterrupt):
        tokenizer._read(Source(KeyboardInterrupt()), False)


def test_a_parquet_file_whose_statistics_do_not_fit_its_schema_is_bad_input(tmp_path):
    """Arrow 26 ends the process where such statistics are asked for, and raises where a row is
    read.
    """
    for name, column in (("text", ["Once upon a time."] * 3), ("vectors", [[1.0, 2.0]] * 3)):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({name: column}), path)
        content = path.read_bytes()
        # the column may be missing: it must be there
        at = content.rindex(b"\x25\x02", 0, content.rindex(b"schema") + 200)
        path.write_bytes(content[: at + 1] + b"\0" + content[at + 2 :])
    with pytest.raises(
        BadInput,
        match=r"text\.parquet cannot be read as Parquet: Definition level histogram size mismatch",
    ):
        list(documents(tmp_path / "text.parquet"))
    with pytest.raises(
        BadInput,
        match=r"vectors\.parquet cannot be read to its end: Definition level histogram size "
        r"mismatch",
    ):
        headscan.scan(tmp_path / "vectors.parquet")


@pytest.mark.parametrize("numbers", [{"data_offsets": [0.0, 256]}, {"shape": [8.0, 8]}])
def test_a_header_of_safetensors_counts_in_whole_numbers(numbers, tmp_path):
    entry = {"dtype": "F32", "shape": [8, 8], "data_offsets": [0, 256]} | numbers
    header = json.dumps({"vectors": entry}).encode()
    (tmp_path / "x.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(256)
    )
    with pytest.raises(
        BadInput, match=r"x\.safetensors is no \.safetensors file: its header is damaged"
    ):
        headscan.scan(tmp_path / "x.safetensors")


def test_a_parquet_column_whose_name_is_no_text_is_bad_input(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"vectors": [[0.0] * 4] * 8}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"vectors", b"\xffectors"))
    with pytest.raises(BadInput, match=r"x\.parquet is no Parquet file"):
        headscan.scan(path)
