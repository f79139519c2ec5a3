"""Every bad input that was found to end in a traceback: one sentence and exit 2 (74 where the
machine refuses).
"""

import json
import os
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import torch
import zstandard

from headscan.model import specimen_path
from headscan.run.result import SCHEMA
from headscan.states.vectors import read_states
from tests.command_line import headscan, typed
from tests.forked import fork, status_of

STATES = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
TEXT = ("--text", "stories", "--max-tokens", "256")


def model(at: Path, file: str, content: str | bytes | Callable[[dict], object]) -> list[str]:
    """A scan of a copy of the specimen in which one file is another."""
    shutil.copytree(specimen_path("gpt-vanilla"), at / "model")
    path = at / "model" / file
    if callable(content):
        document = json.loads(path.read_text())
        content(document)
        content = json.dumps(document)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if file.endswith("index.json"):
        (at / "model" / "model.safetensors").unlink()
    return ["scan", str(at / "model"), *TEXT]


def safetensors(header: object) -> bytes:
    raw = json.dumps(header).encode() if isinstance(header, dict) else header
    return struct.pack("<Q", len(raw)) + raw + STATES.tobytes()


def states_model(at: Path, header: dict) -> list[str]:
    return model(at, "model.safetensors", safetensors(header))


def states(at: Path, name: str, content: bytes) -> list[str]:
    (at / name).write_bytes(content)
    return ["scan", str(at / name)]


def saved(at: Path, **arrays: np.ndarray) -> list[str]:
    np.savez(at / "a.npz", **arrays)
    return ["scan", str(at / "a.npz")]


def method(at: Path) -> list[str]:
    """An archive whose member is packed by a method that nobody knows."""
    saved(at, x=STATES)
    raw = bytearray((at / "a.npz").read_bytes())
    raw[8] = raw[raw.rfind(b"PK\x01\x02") + 10] = 99
    return states(at, "b.npz", bytes(raw))


def sparse(at: Path) -> list[str]:
    torch.save(torch.eye(8).to_sparse(), at / "a.pt")
    return ["scan", str(at / "a.pt")]


def offsets(at: Path) -> list[str]:
    """An arrow file whose offsets do not ascend."""
    bounds = pa.py_buffer(np.array([0, 8, 4, 16], dtype=np.int32).tobytes())
    rows = pa.ListArray.from_buffers(
        pa.list_(pa.float32()), 3, [None, bounds], children=[pa.array(np.zeros(64, np.float32))]
    )
    return arrow(at, pa.table({"x": rows}))


def beyond(at: Path) -> list[str]:
    """Write the same with lists that begin behind the numbers: pyarrow would abort."""
    arguments = arrow(at, pa.table({"x": [[0.5] * 8] * 4}))
    right, wrong = (
        np.arange(first, first + 33, 8, dtype=np.int32).tobytes() for first in (0, 8000)
    )
    (at / "a.arrow").write_bytes((at / "a.arrow").read_bytes().replace(right, wrong))
    return arguments


def unreadable(at: Path) -> list[str]:
    """A column whose name is no UTF-8."""
    arguments = arrow(at, pa.table({"abcdefgh": [[0.5] * 8] * 4}))
    (at / "a.arrow").write_bytes((at / "a.arrow").read_bytes().replace(b"abcdefgh", b"\x80bcdefgh"))
    return arguments


def arrow(at: Path, table: pa.Table) -> list[str]:
    with (
        pa.OSFile(str(at / "a.arrow"), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table)
    return ["scan", str(at / "a.arrow")]


class Torn:
    """An object that torch cannot rebuild from its arguments."""

    def __reduce__(self) -> tuple[object, tuple[int, ...]]:
        return torch._utils._rebuild_tensor_v2, (1, 2, 3)


def torn(at: Path) -> list[str]:
    torch.save({"x": Torn()}, at / "a.pt")
    return ["scan", str(at / "a.pt")]


def pipe(name: str) -> Callable[[Path], list[str]]:
    """States in a pipe, which nobody writes into."""

    def make(at: Path) -> list[str]:
        os.mkfifo(at / name)
        return ["scan", str(at / name)]

    return make


def npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


def result(change: Callable[[dict], object]) -> Callable[[Path], list[str]]:
    """Figures of a saved result that was changed."""

    def make(at: Path) -> list[str]:
        folder = at / "saved"
        protocol = {
            "verb": "scan",
            "command": None,
            "settings": {},
            "seed": 0,
            "started": "",
            "threads": 1,
            "versions": {},
        }
        document = {
            "kind": "scan",
            "schema": SCHEMA,
            "protocol": protocol,
            "sites": [],
            "probes": [],
        }
        change(document)
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps(document))
        return ["figures", str(folder), str(at / "drawn")]

    return make


def twice(at: Path) -> list[str]:
    columns = [pa.array(["a" * 300]), pa.array(["b" * 300])]
    pq.write_table(pa.Table.from_arrays(columns, names=["text", "text"]), at / "a.parquet")
    return ["scan", "gpt-vanilla", "--text", str(at / "a.parquet"), "--context", "16"]


def dataset(at: Path, state: str = '{"_data_files": [{}]}') -> list[str]:
    (at / "data").mkdir()
    (at / "data" / "state.json").write_text(state)
    (at / "data" / "dataset_info.json").write_text("{}")
    return ["scan", str(at / "data")]


def blank(*args: str) -> Callable[[Path], list[str]]:
    def make(at: Path) -> list[str]:
        (at / "white.txt").write_text(" \n" * 3000)
        return [*args, str(at / "white.txt")]

    return make


def lock(kind: Callable[[Path], object]) -> Callable[[Path], list[str]]:
    def make(at: Path) -> list[str]:
        (at / "out").mkdir()
        kind(at / "out" / ".lock")
        return ["scan", "gpt-vanilla", *TEXT]

    return make


def identity(content: str) -> Callable[[Path], list[str]]:
    def make(at: Path) -> list[str]:
        (at / "out" / ".resume").mkdir(parents=True)
        (at / "out" / ".resume" / "identity.json").write_text(content)
        return ["scan", "gpt-vanilla", *TEXT, "--resume"]

    return make


def option(*args: str) -> Callable[[Path], list[str]]:
    return lambda at: ["scan", "gpt-vanilla", *TEXT, *args]


def verb(*args: str) -> Callable[[Path], list[str]]:
    return lambda at: list(args)


NUMBERS = np.zeros(300)
WORDS = {"type": "WordLevel", "vocab": {"hen": 0}, "unk_token": "<none>"}
REFUSED: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "deep config": (lambda at: model(at, "config.json", "[" * 100_000), "headscan: "),
    "deep header": (
        lambda at: model(at, "model.safetensors", safetensors(b'{"a":' * 50_000)),
        "header cannot be read",
    ),
    "a number as architecture": (
        lambda at: model(at, "config.json", lambda c: c.update(architectures=[5])),
        "no list of names",
    ),
    "a mapping as architectures": (
        lambda at: model(at, "config.json", lambda c: c.update(architectures={})),
        "no list of names",
    ),
    "no id of the hub": (lambda at: ["weights", "a--b"], "no folder 'a--b'"),
    "no weights": (
        lambda at: model(at, "model.safetensors.index.json", '{"weight_map": {}}'),
        "it has no weights",
    ),
    "no metadata": (
        lambda at: model(
            at, "model.safetensors.index.json", '{"weight_map": {"a": "config.json"}}'
        ),
        "it has no metadata",
    ),
    "unknown method of packing": (method, "cannot be read"),
    "a negative place": (
        lambda at: states(
            at,
            "a.safetensors",
            safetensors({"x": {"dtype": "F32", "shape": [9, 1], "data_offsets": [-36, 0]}}),
        ),
        "header is damaged",
    ),
    "whole numbers as states": (
        lambda at: states(
            at,
            "a.safetensors",
            safetensors({"x": {"dtype": "I64", "shape": [9, 4], "data_offsets": [0, 9600]}}),
        ),
        "whole numbers at x",
    ),
    "NaN among documents": (
        lambda at: saved(at, x=STATES, documents=np.where(NUMBERS == 0, np.nan, 0)),
        "no whole numbers",
    ),
    "a token of 2^62": (
        lambda at: saved(at, x=STATES, token_ids=np.full(300, 2**62)),
        "of no vocabulary",
    ),
    "a sparse tensor": (sparse, "sparse tensor"),
    "offsets that descend": (offsets, "a.arrow"),
    "a name that is no text": (unreadable, "a.arrow is no table file"),
    "lists behind the numbers": (beyond, "Arrow file"),
    "two columns of one name": (twice, "2 fields 'text'"),
    "two sites of one name": (
        lambda at: arrow(
            at, pa.Table.from_arrays([pa.array([[0.5] * 8] * 4)] * 2, names=["x", "x"])
        ),
        "of the same name: x, x",
    ),
    "arguments of no tensor": (torn, "holds no tensors, or is damaged"),
    "a header of brackets": (
        lambda at: states(at, "a.npy", npy("{'shape': " + "(" * 300)),
        "no .npy file",
    ),
    "a shape of truths": (
        lambda at: states(
            at, "a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (True, 8)}")
        ),
        "",
    ),
    "states in a pipe": (pipe("a.npz"), "is no file"),
    "a document before the first": (
        lambda at: saved(at, x=STATES, documents=np.full(300, -2)),
        "documents are counted from 0",
    ),
    "offsets that are lists": (
        lambda at: states_model(
            at, {"x": {"dtype": "F32", "shape": [9], "data_offsets": [0, [36]]}}
        ),
        "header cannot be read",
    ),
    "a number as precision": (
        lambda at: model(at, "config.json", lambda c: c.update(dtype=5)),
        "cannot be loaded",
    ),
    "a tokenizer without its unknown token": (
        lambda at: model(at, "tokenizer.json", lambda t: t.update(model=WORDS)),
        "The tokenizer cannot read the text",
    ),
    "a data file whose name ends early": (
        lambda at: dataset(at, '{"_data_files": [{"filename": "a\\u0000b"}]}'),
        "outside it",
    ),
    "deep JSON in a dataset": (lambda at: dataset(at, "[" * 100_000), "is no JSON"),
    "a mapping as verb": (result(lambda d: d.update(kind={})), "no readable result.json"),
    "a number as probes": (result(lambda d: d.update(probes=0.5)), "probes"),
    "a mapping as probe": (result(lambda d: d.update(probes=[{"name": {}}])), "probes"),
    "a result without its columns": (
        result(lambda d: d.update(sites=[{"x": 1}])),
        "do not go together",
    ),
    "a data file without a name": (dataset, "names no data files"),
    "white space": (blank("scan", "gpt-vanilla", "--text"), "white space alone"),
    "white space, counted": (
        blank("ntp", "--order", "1", "--tokenizer", "bytes"),
        "white space alone",
    ),
    "white space, attacked": (blank("privacy", "gpt-vanilla", "--text"), "white space alone"),
    "a folder as lock": (lock(Path.mkdir), "no file that could be locked"),
    "a pipe as lock": (lock(os.mkfifo), "no file that could be locked"),
    "a link as lock": (
        lock(lambda at: at.symlink_to(at.parent.parent / "victim")),
        "no file that could be locked",
    ),
    "a list as identity": (identity("[1]"), "nothing to resume"),
    "null as identity": (identity("null"), "nothing to resume"),
    "nothing as identity": (identity("{}"), "nothing to resume"),
    "a large seed": (option("--seed", "9" * 20), "--seed must be at most"),
    "a large batch": (option("--batch", str(2**63)), "--batch must be at most"),
    "a device as baseline": (option("--baseline", "/dev/zero"), "is no result.json"),
    "a device as policy": (
        verb("privacy", "gpt-vanilla", "--text", "stories", "--policy", "/dev/zero"),
        "File too large",
    ),
    "a fraction as seed": (option("--seed", "1.5"), "--seed"),
    "a fraction as context": (option("--context=15.5"), "--context"),
    "a name beyond all names": (option("--baseline", "x" * 5000), "is no result.json"),
    "a whole number beyond all": (
        option("--sample", "9" * 30),
        "--sample must be at most 9,223,372,036,854,775,807",
    ),
    "trials beyond memory": (
        verb("flow", "gpt-vanilla", "--prompt", "a hen", "--trials", "9" * 18),
        "--trials must be at most",
    ),
    "no measure": (option("--measures", ""), "--measures is empty"),
    "no field": (option("--field", ""), "--field is empty"),
    "another folder's revision": (verb("scan", "gpt-vanilla@../../x", *TEXT), "has no revisions"),
    "draws beyond memory": (
        verb("privacy", "gpt-vanilla", "--text", "stories", "--draws", "9" * 14),
        "--draws must be at most",
    ),
    "draws beyond patience": (
        verb("compare", "gpt-vanilla", "gpt-headless", "--text", "stories", "--draws", "9" * 14),
        "--draws must be at most 16,777,216, not 99,999,",
    ),
    "a step beyond memory": (
        verb("train", "gpt", "--text", "stories", "--batch", "9" * 9),
        "--batch must be at most",
    ),
    "windows of one token": (
        verb("train", "gpt", "--text", "stories", "--context", "1"),
        "--context must be at least 2",
    ),
    "a vocabulary beyond memory": (
        verb("train", "gpt", "--text", "stories", "--vocabulary", "9" * 11),
        "--vocabulary must be at most",
    ),
    "memory beyond memory": (
        verb("ntp", "stories", "--tokenizer", "gpt-vanilla", "--order", "1", "--memory", "1e99GiB"),
        "no amount of memory",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_sentence_and_exit_2(case, tmp_path):
    make, sentence = REFUSED[case]
    arguments = make(tmp_path)
    files_before = set((tmp_path / "out").rglob("*"))
    ended = headscan(
        *arguments, *(["--out", str(tmp_path / "out")] if arguments[0] != "figures" else [])
    )
    last = ended.stderr.strip().splitlines()[-1]
    assert (ended.status, "Traceback" in ended.output) == (2, False), ended.output[-2000:]
    assert last.startswith("headscan: ")
    assert sentence in last
    assert not (tmp_path / "victim").exists()  # no link was followed
    # nothing is left behind
    assert set((tmp_path / "out").rglob("*")) <= files_before | {tmp_path / "out" / ".lock"}


@pytest.mark.parametrize("kind", ["zstd", "lz4", "stream", "dictionary", "text.zst"])
def test_a_file_that_unpacks_to_more_than_there_is_room_for_is_refused_before_it_is_unpacked(
    tmp_path, monkeypatch, kind
):
    """Half of the memory that is free is the room; --memory makes it less, where a verb has it."""
    monkeypatch.setattr("headscan.run.memory.memory", lambda: (1 << 40, 1 << 22))
    path = tmp_path / "a.feather"
    arguments = ["scan"]
    table = pa.table(
        {"x": zeros(1 << 17, 8), "kind": pa.array(["a", "b"] * (1 << 16)).dictionary_encode()}
    )
    if kind == "text.zst":
        path = tmp_path / "a.txt.zst"
        arguments = ["ntp", "--order", "1", "--tokenizer", "bytes", "--memory", "1MiB"]
        monkeypatch.setattr("headscan.run.memory.memory", lambda: (1 << 40, 1 << 40))
        packer = zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(window_log=28)
        ).compressobj()
        path.write_bytes(packer.compress(b"Once upon a time. " * 1000) + packer.flush())
    elif kind == "stream":
        with pa.ipc.new_stream(
            path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
        ) as stream:
            stream.write_table(table)
    elif kind == "dictionary":
        words_of_zeros = pa.DictionaryArray.from_arrays(
            pa.array([0], pa.int32()), pa.array(["\0" * (1 << 22)])
        )
        feather.write_feather(
            pa.table({"x": zeros(1, 8), "kind": words_of_zeros}), path, compression="zstd"
        )
    else:
        feather.write_feather(table, path, compression=kind, chunksize=1 << 12)
    monkeypatch.setattr(pa.ipc, "open_file", None)
    monkeypatch.setattr(pa.ipc, "open_stream", None)
    bytes_before = pa.total_allocated_bytes()
    ended = headscan(*arguments, str(path), "--out", str(tmp_path / "out"))
    sentence = (
        "takes more than 134,217,728 bytes to unpack"
        if kind == "text.zst"
        else "unpacks to more than 2,097,152 bytes"
    )
    assert (ended.status, sentence in ended.stderr) == (2, True), ended.output
    assert pa.total_allocated_bytes() - bytes_before < 1 << 20


def zeros(rows: int, width: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * width, np.float32)), width)


def test_a_large_packed_array_is_unpacked_as_it_is_read(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).standard_normal((3000, 8)).astype(np.float32)
    np.savez_compressed(tmp_path / "a.npz", x=rows, token_ids=np.arange(3000))
    in_memory = read_states(str(tmp_path / "a.npz"))
    monkeypatch.setattr("headscan.states.formats.arrays.UNPACKED_BYTES", 1 << 10)
    monkeypatch.setattr(zipfile.ZipFile, "read", None)
    read = read_states(str(tmp_path / "a.npz"))
    for first, last in ((0, 1000), (2000, 3000), (500, 1500)):  # back, too
        assert np.array_equal(read.sites["x"].read(first, last).numpy(), rows[first:last])
        assert read.ids.read(first, last).flatten().tolist() == [*range(first, last)]
    assert read.identity(3000) == in_memory.identity(3000)


def test_rows_that_a_table_keeps_once_are_not_all_unpacked_at_once(tmp_path):
    # 128 MiB in a few KB
    pq.write_table(pa.table({"x": zeros(1 << 18, 128)}), tmp_path / "a.parquet")
    bytes_before = pa.total_allocated_bytes()
    read_states(str(tmp_path / "a.parquet")).sites["x"].read(0, 1)
    assert pa.total_allocated_bytes() - bytes_before < 1 << 26


@pytest.mark.parametrize(
    ("closed", "arguments", "ended"),
    [
        (0, ("scan", "gpt-vanilla", "--text", "-"), (2, "headscan: The text - is empty.")),
        (2, ("figures", "nowhere", "nowhere"), (2, "")),
        (None, ("scan", "gpt-vanilla", *TEXT, "--out", ""), (2, "headscan: --out is empty.")),
    ],
)
def test_a_closed_stream_and_an_empty_folder_cost_a_sentence(closed, arguments, ended, tmp_path):
    def work() -> None:
        os.chdir(tmp_path)
        if closed is not None:  # Python begins with None in its place then
            os.close(closed)
            setattr(sys, {0: "stdin", 2: "stderr"}[closed], None)
        typed(*arguments)

    printed = tmp_path / "said"
    assert (status_of(fork(work, printed)), printed.read_text().strip()) == ended
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full: a full disk is NOT tried")
def test_what_the_machine_refuses_is_its_own_sentence_and_exit_74(tmp_path):
    def work() -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        typed("scan", "gpt-vanilla", *TEXT, "--out", str(tmp_path / "out"), "--json")

    status = status_of(fork(work, tmp_path / "said"))
    assert (status, (tmp_path / "said").read_text().strip().splitlines()[-1]) == (
        74,
        "headscan: No space left on device.",
    )
    (tmp_path / "folder" / "result.json").mkdir(parents=True)
    process = headscan("scan", "gpt-vanilla", *TEXT, "--out", str(tmp_path / "folder"))
    assert (process.status, "Is a directory" in process.stderr) == (74, True)
