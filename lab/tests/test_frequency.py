import numpy as np
import pytest
from headscan_lab.measures.frequency import frequency_bins

from headscan.measures import average_cosine
from headscan.statistics.cloud import Cloud


def test_bins_cover_every_row_once_and_hold_their_own_measures():
    rng = np.random.default_rng(0)
    table = rng.standard_normal((300, 6)) + 0.4
    counts = rng.zipf(1.3, 300).clip(max=10**6) - 1
    state = rng.standard_normal(6)
    bins = frequency_bins(table, counts, mean_state=state)
    assert sum(b["tokens"] for b in bins) == 300
    assert sum(b["share"] for b in bins) == pytest.approx(1)
    for b in bins:
        rows = table[(counts >= b["from"]) & (counts <= b["to"])]
        assert b["mean_norm"] == pytest.approx(np.linalg.norm(rows, axis=1).mean())
        assert b["average_cosine"] == pytest.approx(average_cosine(Cloud.of_rows(rows)))
        cosines = rows @ state / np.linalg.norm(rows, axis=1) / np.linalg.norm(state)
        assert b["cosine_to_state"] == pytest.approx(cosines.mean())


def test_a_longer_table_than_the_counts_has_unseen_rows():
    assert frequency_bins(np.ones((5, 2)), [3])[0]["tokens"] == 4
