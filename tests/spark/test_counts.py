"""The same counts from a real cluster of Spark."""

import numpy as np
import pytest

from headscan.text.counts import count
from headscan.text.source import Counting
from tests.reference.counts import as_dictionary


@pytest.mark.parametrize("min_count", [1, 3])
def test_a_cluster_of_two_workers_gives_identical_counts(tmp_path, cluster, min_count):
    rng = np.random.default_rng(0)
    texts = [
        np.minimum(500 ** rng.random(n) - 1, 499).astype(np.int64)
        for n in (40_000, 3, 2, 1, 15_000)
    ]
    local = count(texts, 500, Counting(order=3, min_count=min_count))
    distributed = count(
        texts,
        500,
        Counting(order=3, engine="spark", master=cluster.url, min_count=min_count),
        work=tmp_path,
    )
    assert as_dictionary(distributed) == as_dictionary(local)
    for name in ("contexts", "indptr", "indices", "counts"):
        assert np.array_equal(getattr(distributed, name), getattr(local, name)), name
