"""What a cluster's workers make of the pieces of a store is what one process makes of all of it;
Spark is stood in for.

With Spark itself, two workers and one of them killed: tests/spark.
"""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save_file

import headscan
from headscan import BadInput
from headscan.scanner import cluster


class Frame:
    """As much of a frame of Spark as the scan asks for: lazy, a partition a record, groups in no
    order.
    """

    def __init__(self, tables):
        self.tables = tables

    def mapInArrow(self, function, schema):
        tables = [
            pa.Table.from_batches(function(iter(table.to_batches()))) for table in self.tables
        ]
        return Frame(tables)

    def selectExpr(self, *expressions):
        size = int(expressions[1].split()[2])
        table = pa.concat_tables(self.tables)
        nodes = [piece // size for piece in table["piece"].to_pylist()]
        return Frame([table.append_column("node", pa.array(nodes))])

    def groupBy(self, *names):
        (table,) = self.tables
        rows = table.to_pylist()
        groups = {tuple(row[name] for name in names) for row in rows}
        numbers = {
            key: [k for k, row in enumerate(rows) if tuple(row[n] for n in names) == key]
            for key in groups
        }
        return Frame([table.take(order[::-1]) for order in numbers.values()])

    def applyInArrow(self, function, schema):
        return Frame([function(table) for table in self.tables])

    def collect(self):
        return pa.concat_tables(self.tables).to_pylist()


@pytest.fixture
def spark(monkeypatch):
    """A cluster of `spark.cores` cores; `spark.pieces` counts what was asked for."""
    stand_in = SimpleNamespace(cores=5, pieces=0)

    def range_of(first, last, step, pieces):
        stand_in.pieces = pieces
        return Frame([pa.table({"id": [number]}) for number in range(first, last, step)])

    @contextmanager
    def session(master):
        context = SimpleNamespace(
            defaultParallelism=stand_in.cores, broadcast=lambda value: SimpleNamespace(value=value)
        )
        yield SimpleNamespace(sparkContext=context, range=range_of)

    monkeypatch.setattr(cluster, "spark_session", session)
    return stand_in


def store(folder, count=6_010, sites=2):
    """Vectors of two sites with token ids and documents, in one file; they fill no whole number of
    windows.
    """
    draw = np.random.default_rng(0)
    tensors = {
        f"block.{k}": draw.standard_normal((count, 12)).astype(np.float32) + k for k in range(sites)
    }
    tensors["token_ids"] = draw.integers(0, 30, count).astype(np.int32)
    tensors["documents"] = (np.arange(count) // 85).astype(np.int32)
    save_file(tensors, folder / "store.safetensors")
    return folder / "store.safetensors"


def same(local, distributed):
    """Every number of the sites and tables, intervals too; rounding apart."""
    for ours, distributed_row in zip(
        local.sites + rows(local), distributed.sites + rows(distributed), strict=True
    ):
        assert set(ours) == set(distributed_row)
        for name, value in ours.items():
            if isinstance(value, int | float) or (
                isinstance(value, list | tuple) and name != "notes"
            ):
                assert distributed_row[name] == pytest.approx(
                    value, rel=1e-9, abs=1e-12, nan_ok=True
                ), name
            else:
                assert distributed_row[name] == value, name


def rows(result):
    return [row for table in result.tables.values() for row in table]


OPTIONS = {"context": 20, "batch": 5, "measures": "rogue,zipf"}


def test_pieces_say_what_one_process_says(tmp_path, spark):
    path = store(tmp_path)
    local = headscan.scan(path, **OPTIONS)
    distributed = headscan.scan(path, engine="spark", master="spark://nobody:1", **OPTIONS)
    assert spark.pieces == 20  # four a core: three levels of the tree
    same(local, distributed)
    assert distributed.protocol.text.tokens == 6_010
    assert distributed.site("block.0").interval("average_cosine") is not None
    for name, array in local.arrays.items():
        assert distributed.arrays[name] == pytest.approx(array, rel=1e-6, abs=1e-9), name


@pytest.mark.parametrize("count", [40, 100])
def test_a_store_of_a_batch_or_less(tmp_path, spark, count):
    path = store(tmp_path, count)
    same(
        headscan.scan(path, context=20, batch=5),
        headscan.scan(path, context=20, batch=5, engine="spark", master="local[2]"),
    )
    assert spark.pieces == 1


def test_what_a_worker_cannot_read_is_said_in_a_sentence(tmp_path, spark):
    draw = np.random.default_rng(0).standard_normal((4_000, 4)).astype(np.float32)
    draw[3_210, 2] = np.nan
    np.save(tmp_path / "nan.npy", draw)
    with pytest.raises(
        BadInput, match=r"NaN or infinite values at site vectors \(window 160, position 10"
    ):
        headscan.scan(
            tmp_path / "nan.npy", engine="spark", master="local[2]", **OPTIONS | {"measures": None}
        )


def test_what_no_worker_could_open_is_refused():
    rows = np.eye(64, dtype=np.float32)
    with pytest.raises(BadInput, match="workers can open themselves"):
        headscan.scan(rows, engine="spark", master="local[2]")
    with pytest.raises(BadInput, match="reads stored states, and gpt-vanilla is a model"):
        headscan.scan("gpt-vanilla", "stories", engine="spark", master="local[2]")
    with pytest.raises(BadInput, match="URL of a master"):
        headscan.scan(rows, engine="spark")
    with pytest.raises(BadInput, match="belongs to spark"):
        headscan.scan(rows, master="local[2]")
