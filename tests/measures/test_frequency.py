from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from headscan.measures import average_cosine, direction_correlations, frequency_bins
from headscan.measures.gradient import push_pull_bins
from headscan.statistics import PushPull
from headscan.statistics.cloud import Cloud
from tests.reference import clouds as reference


def test_bins_cover_every_row_once_and_hold_their_own_measures():
    rng = np.random.default_rng(0)
    table, counts = rng.standard_normal((300, 6)) + 0.4, rng.zipf(1.3, 300).clip(max=10**6) - 1
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


def test_correlations_are_scipy_s():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 1000, 200)
    table = rng.standard_normal((200, 5)) * [9, 7, 5, 3, 1] + np.log1p(counts)[:, None] * [0.5, 0, 0, 1, 0]
    _, vectors = np.linalg.eigh(table.T @ table)
    seen = counts > 0
    for row in direction_correlations(table, counts):
        x = table[seen] @ vectors[:, ::-1][:, row["direction"] - 1]
        expected = pearsonr(x * (1 if x.mean() > 0 else -1), np.log(counts[seen]))
        assert row["r"] == pytest.approx(expected.statistic, abs=1e-9)
        assert row["p"] == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert direction_correlations(table, np.zeros(200)) == []


def test_constant_coordinates_have_no_correlation():
    rows = direction_correlations(np.ones((10, 2)), np.arange(1, 11))
    assert rows[0]["r"] == 0
    assert rows[0]["p"] == pytest.approx(1)


def problem(seed=0, n=40, v=7, d=3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.integers(0, v - 2, n), rng.standard_normal((v, d)), rng.standard_normal(v)


def test_push_and_pull_equal_the_loops_and_the_gradient():
    h, y, w, b = problem()
    sums = PushPull(7, 3)
    weight = torch.tensor(w, requires_grad=True)
    sums.update(torch.tensor(h), torch.tensor(y), weight.detach(), torch.tensor(b))
    pull, push = reference.push_pull(h, y, w, b)
    np.testing.assert_allclose(sums.pull.numpy(), pull, atol=1e-5)
    np.testing.assert_allclose(sums.push.numpy(), push, atol=1e-5)
    logits = torch.tensor(h) @ weight.T + torch.tensor(b)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(y), reduction="sum")
    loss.backward()
    assert sums.loss == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose((sums.pull - sums.push).numpy(), -weight.grad.numpy(), atol=1e-4)


def test_tokens_that_never_come_are_pushed_only():
    h, y, w, b = problem()
    sums = PushPull(7, 3)
    sums.update(torch.tensor(h), torch.tensor(y), torch.tensor(w), torch.tensor(b))
    bins = push_pull_bins(sums)
    assert bins[0] | {"push": 0} == bins[0] | {"push": 0, "from": 0, "to": 0, "pull": 0.0, "ratio": 1.0, "cosine": None}
    assert sum(row["tokens"] for row in bins) == 7
    assert push_pull_bins(PushPull(2, 2))[0]["ratio"] is None
