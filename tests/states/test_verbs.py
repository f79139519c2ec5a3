"""`compare` and `remedy` take every source that `scan` takes, and say of it what they say of the
array in it.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

import headscan

COUNT = 320
WIDTH = 6


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
    pytest.importorskip(
        "datasets", reason="datasets is not installed: its folders are NOT read"
    ).Dataset.from_dict({"v": list(rows)}).save_to_disk(str(path))


def remote(rows, path):
    import fsspec

    with fsspec.open(f"memory://{path.name}", "wb") as file:
        np.save(file, rows)
    return f"memory://{path.name}"


# What is made of the rows: a file or folder at the path, or another source.
SOURCES = {
    "torch": lambda rows, path: torch.from_numpy(rows),
    "dict": lambda rows, path: {"v": rows},
    "a.npy": lambda rows, path: np.save(path, rows),
    "a.npz": lambda rows, path: np.savez(path, v=rows),
    "a.safetensors": lambda rows, path: save_file({"v": torch.from_numpy(rows)}, path),
    "a.parquet": lambda rows, path: pq.write_table(table(rows), path),
    "a.arrow": arrow,
    "a.pt": lambda rows, path: torch.save(torch.from_numpy(rows), path),
    "datasets": datasets_folder,
    "remote.npy": remote,
}


@pytest.fixture(params=SOURCES)
def source(request, rows, tmp_path):
    path = tmp_path / request.param
    written = SOURCES[request.param](rows, path)
    return (lambda: str(path)) if written is None else (lambda: SOURCES[request.param](rows, path))


@pytest.fixture(scope="module")
def second_rows(rows):
    return rows @ np.diag(np.arange(1.0, WIDTH + 1)).astype(np.float32)


def compared(source, second_rows):
    result = headscan.compare([source(), second_rows()], measures="cka", draws=19)
    return [(cell.measure, cell.value, cell.p) for cell in result.cells], result.tokens


def remedied(source, second_rows):
    result = headscan.remedy(
        source(), partners=second_rows(), against=second_rows(), remedies="centre", held_out=100
    )
    return [
        {k: v for k, v in row.items() if k not in ("model", "site", "pairs")} for row in result.rows
    ], result.fitted


@pytest.fixture(scope="module")
def expected(rows, second_rows):
    return {verb: verb(lambda: rows, lambda: second_rows) for verb in (compared, remedied)}


@pytest.mark.parametrize("verb", [compared, remedied])
def test_the_numbers_are_those_of_the_array(verb, source, second_rows, expected):
    assert verb(source, lambda: second_rows) == expected[verb]


@pytest.mark.parametrize("verb", [compared, remedied])
def test_partners_and_what_is_compared_with_may_be_any_source_too(
    verb, rows, second_rows, expected
):
    assert verb(lambda: rows, lambda: {"v": second_rows}) == expected[verb]


def test_stores_with_windows_documents_and_ids_are_taken(tmp_path):
    headscan.states.run(
        "gpt-vanilla",
        ["A red hen ran. "] * 60,
        sites="block.0",
        max_tokens=COUNT,
        context=16,
        out=tmp_path / "headscan",
    )
    path = tmp_path / "headscan"
    result = headscan.compare([path, path], measures="cka", draws=19, context=16)
    assert result.cells[0].value == pytest.approx(1)
    assert headscan.remedy(path, remedies="centre", held_out=100).fitted > 60
