"""`compare` and `remedy` take every source that `scan` takes, and say of it what they say of the array in it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

import headscan

COUNT, WIDTH = 320, 6


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    return (draw.standard_normal((COUNT, WIDTH)) + 1).astype(np.float32)


def table(rows):
    return pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])})


def arrow(rows, path):
    with pa.ipc.new_file(path, table(rows).schema) as sink:
        sink.write_table(table(rows))


def datasets_folder(rows, path):
    pytest.importorskip("datasets", reason="datasets is not installed: its folders are NOT read").Dataset.from_dict(
        {"v": list(rows)}
    ).save_to_disk(str(path))


def faiss_index(rows, path):
    faiss = pytest.importorskip("faiss", reason="faiss is not installed: its indexes are NOT read")
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    faiss.write_index(index, str(path))


def memmap(rows, path):
    path.mkdir()
    rows.tofile(path / "shard_0.memmap")
    (path / "shard_0.meta").write_text(json.dumps({"shape": list(rows.shape)}))


def remote(rows, path):
    import fsspec

    with fsspec.open(f"memory://{path.name}", "wb") as file:
        np.save(file, rows)
    return f"memory://{path.name}"


# What is made of the rows: a file or folder at the path, or another source. Formats whose vectors are tokens of a text
# (vLLM, activault, `headscan states`) have windows or token ids, and a test of their own.
SOURCES = {
    "torch": lambda rows, path: torch.from_numpy(rows),
    "dict": lambda rows, path: {"v": rows},
    "iterator": lambda rows, path: iter(np.split(rows, [100, 101, 300])),
    "iterator of dicts": lambda rows, path: iter([{"v": part} for part in np.split(rows, [7])]),
    "a.npy": lambda rows, path: np.save(path, rows),
    "a.npz": lambda rows, path: np.savez(path, v=rows),
    "a.safetensors": lambda rows, path: save_file({"v": torch.from_numpy(rows)}, path),
    "a.parquet": lambda rows, path: pq.write_table(table(rows), path),
    "a.arrow": arrow,
    "a.pt": lambda rows, path: torch.save(torch.from_numpy(rows), path),
    "a.faiss": faiss_index,
    "datasets": datasets_folder,
    "memmap": memmap,
    "remote.npy": remote,
}


@pytest.fixture(params=SOURCES)
def source(request, rows, tmp_path):
    """Makes the source anew at each call; an iterator can be read once."""
    path = tmp_path / request.param
    kept = SOURCES[request.param](rows, path)
    return (lambda: str(path)) if kept is None else (lambda: SOURCES[request.param](rows, path))


@pytest.fixture(scope="module")
def other(rows):
    return rows @ np.diag(np.arange(1.0, WIDTH + 1)).astype(np.float32)


def compared(source, other):
    found = headscan.compare([source(), other()], measures="cka", draws=19)
    return [(cell.measure, cell.value, cell.p) for cell in found.cells], found.tokens


def remedied(source, other):
    found = headscan.remedy(source(), partners=other(), against=other(), remedies="centre", held_out=100)
    return [{k: v for k, v in row.items() if k not in ("model", "site", "pairs")} for row in found.rows], found.fitted


@pytest.fixture(scope="module")
def expected(rows, other):
    return {verb: verb(lambda: rows, lambda: other) for verb in (compared, remedied)}


@pytest.mark.parametrize("verb", [compared, remedied])
def test_the_numbers_are_those_of_the_array(verb, source, other, expected):
    assert verb(source, lambda: other) == expected[verb]


@pytest.mark.parametrize("verb", [compared, remedied])
def test_partners_and_what_is_compared_with_may_be_any_source_too(verb, rows, other, expected):
    assert verb(lambda: rows, lambda: iter([other[:50], other[50:]])) == expected[verb]


def test_stores_with_windows_documents_and_ids_are_taken(rows, tmp_path):
    windows = torch.from_numpy(rows).reshape(20, 16, WIDTH)
    ids = torch.arange(COUNT)
    (tmp_path / "vllm").mkdir()
    for number, (states, tokens) in enumerate(zip(torch.from_numpy(rows).split(8), ids.split(8), strict=True)):
        held = {"hidden_states": states[:, None].clone(), "token_ids": tokens.clone()}
        save_file(held, tmp_path / "vllm" / f"{number:03d}.safetensors")
    hook = tmp_path / "activault" / "blocks.0.hook_resid_post"
    hook.mkdir(parents=True)
    (tmp_path / "activault" / "cfg.json").write_text("{}")
    torch.save({"states": windows, "input_ids": ids.reshape(20, 16), "tensor_bytes": 0}, hook / "a--0_1.pt")
    headscan.states.run(
        "gpt-vanilla",
        ["A red hen ran. "] * 60,
        sites="block.0",
        max_tokens=COUNT,
        context=16,
        out=tmp_path / "headscan",
    )
    for name in ("vllm", "activault", "headscan"):
        path = tmp_path / name
        result = headscan.compare([path, path], measures="cka", draws=19, context=16)
        assert result.cells[0].value == pytest.approx(1)
        assert headscan.remedy(path, remedies="centre", held_out=100).fitted > 60
