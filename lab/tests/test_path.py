from itertools import pairwise

import numpy as np
import pytest
import torch
from headscan_lab import theory
from headscan_lab.theory.path import CrossEntropyProx

import headscan.ntp as ntp
from headscan.run.errors import BadInput
from tests.ntp.problems import labels
from tests.reference.ntp import regularised_by_proximal_gradient

PENALTIES = [10.0**-k for k in range(2, 9)]


@pytest.fixture(scope="module")
def shared():
    """Ten words, 95 contexts, thirty supports: the size of the paper's synthetic figure."""
    data = theory.random_labels(10, 95, supports=30, seed=0)
    return data, ntp.svm(data, gap=1e-9), theory.regularisation_path(data, PENALTIES)


@pytest.mark.parametrize("a", [1e-3, 1.0, 1e4, 1e8])
def test_the_prox_is_stationary(a):
    soft_labels = labels(4)
    P = torch.from_numpy(soft_labels.dense())
    r = torch.ones(P.shape[1], dtype=torch.float64)
    y = torch.from_numpy(np.random.default_rng(0).normal(size=P.shape) * 5)
    weight = torch.full((len(P),), a, dtype=torch.float64)
    prox = CrossEntropyProx(P, r)
    for _ in range(2):  # from a cold and from a warm start
        ell = prox(y, weight)
        residual = a * (torch.softmax(ell, 1) - P) + ell - y
        assert float(residual.abs().max()) < 1e-13 * max(1, a) * 10


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_equals_proximal_gradient(seed, share):
    soft_labels = labels(seed, contexts=9, vocabulary=6)
    penalty = share * theory.largest_penalty(soft_labels)
    regularised = theory.regularised(soft_labels, penalty, gap=1e-9)
    slow = regularised_by_proximal_gradient(
        soft_labels.dense(), soft_labels.prior, penalty, steps=3000
    )
    value = ntp.cross_entropy(slow, soft_labels) + penalty * np.linalg.norm(slow, "nuc")
    assert regularised.primal <= value + 1e-9
    assert regularised.primal == pytest.approx(value, rel=1e-6)
    assert regularised.dual <= value + 1e-12
    objective = ntp.cross_entropy(regularised.logits, soft_labels) + penalty * np.linalg.norm(
        regularised.logits, "nuc"
    )
    assert objective == pytest.approx(regularised.primal, rel=1e-9)


def test_nothing_is_learned_above_the_largest_penalty():
    soft_labels = labels(1)
    top = theory.largest_penalty(soft_labels)
    assert np.abs(theory.regularised(soft_labels, 1.01 * top).logits).max() < 1e-6
    assert np.abs(theory.regularised(soft_labels, 0.9 * top).logits).max() > 1e-3


def test_merged_contexts_and_unseen_tokens_change_nothing():
    counts = np.array([[3, 1, 0, 0, 0], [3, 1, 0, 0, 0], [0, 2, 2, 0, 0], [3, 1, 0, 0, 0]])
    regularised = theory.regularised(counts, 1e-2, gap=1e-9)
    assert len(regularised.distinct_logits) == 2
    soft_labels = ntp.SoftLabels.of(counts)
    slow = regularised_by_proximal_gradient(
        soft_labels.dense(), soft_labels.prior, 1e-2, steps=3000
    )
    value = ntp.cross_entropy(slow, soft_labels) + 1e-2 * np.linalg.norm(slow, "nuc")
    assert regularised.primal == pytest.approx(value, rel=1e-5)
    assert regularised.primal <= value + 1e-10


def test_the_path_reaches_the_bound_and_the_predicted_direction(shared):
    data, solution, points = shared
    supports = data.supports
    sparse = ntp.sparse_component(data)
    assert all(point.relative_gap <= 1e-7 for point in points)
    excess = [point.excess for point in points]
    assert excess == sorted(excess, reverse=True)
    assert 0 < excess[-1] < 1e-6
    last = points[-1].logits
    assert np.linalg.norm(ntp.in_support(last, supports) - sparse) / np.linalg.norm(sparse) < 1e-4
    assert ntp.cosine(ntp.out_of_support(last, supports), solution.logits) >= 0.99


def test_the_increment_finds_the_direction_and_its_scale(shared):
    _, solution, points = shared
    step = theory.increment(points[:4])  # down to 1e-5 only
    assert ntp.cosine(step, solution.logits) > 0.995
    assert ntp.cosine(step, solution.logits) > ntp.cosine(points[3].logits, solution.logits)
    late = theory.increment(points)
    assert ntp.cosine(late, solution.logits) > 0.999
    assert np.linalg.norm(late) / np.linalg.norm(solution.logits) == pytest.approx(1, abs=0.02)


def test_the_laws_of_the_path(shared):
    _, solution, points = shared
    for point, next_point in pairwise(points[4:]):
        growth = [
            ntp.cosine(p.logits, solution.logits) * np.linalg.norm(p.logits)
            for p in (point, next_point)
        ]
        step = (growth[1] - growth[0]) / np.linalg.norm(solution.logits)
        assert step == pytest.approx(np.log(10), rel=0.01)
    last = points[-1]
    assert last.excess == pytest.approx(last.penalty * solution.primal, rel=0.01)


@pytest.mark.parametrize(
    ("counts", "penalties", "message"),
    [
        (np.eye(3), [0.0], "must be positive"),
        (np.eye(3), [], "must be positive"),
        (np.ones((2, 3)), [0.1], "whole vocabulary"),
    ],
)
def test_bad_input(counts, penalties, message):
    with pytest.raises(BadInput, match=message):
        theory.regularisation_path(counts, penalties)
    with pytest.raises(BadInput, match="two points"):
        theory.increment([])
