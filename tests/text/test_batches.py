import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscan.text import Window, batches


def rows(start: int, stop: int) -> list[Window]:
    return [Window(i, np.array([i, -i]), np.array([i, i + 1])) for i in range(start, stop)]


@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 6))
def test_shards_partition_the_same_batches(count, size, processes):
    all_batches = list(batches(rows(0, count), size))
    assert [i for batch in all_batches for i in batch.indices] == list(range(count))
    assert all(len(batch.indices) == size for batch in all_batches[:-1])
    assert [batch.number for batch in all_batches] == list(range(len(all_batches)))
    for process in range(processes):
        mine = list(batches(rows(0, count), size, process=process, processes=processes))
        for got, expected in zip(mine, all_batches[process::processes], strict=True):
            assert got.number == expected.number
            assert got.number % processes == process
            np.testing.assert_array_equal(got.ids, expected.ids)
            np.testing.assert_array_equal(got.documents, expected.documents)
            assert got.ids.dtype == got.indices.dtype == np.int64


@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 40))
def test_batches_do_not_depend_on_where_windows_start(count, size, start):
    got = {b.number: b.indices.tolist() for b in batches(rows(start, count), size)}
    for batch in batches(rows(0, count), size):
        assert got.get(batch.number, []) == [i for i in batch.indices if i >= start]


@pytest.mark.parametrize(
    ("size", "process", "processes"), [(0, 0, 1), (1, 1, 1), (1, -1, 2), (1, 0, 0)]
)
def test_bad_shares(size, process, processes):
    with pytest.raises(ValueError, match="numbered from 0"):
        list(batches(rows(0, 3), size, process=process, processes=processes))
