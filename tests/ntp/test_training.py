from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from headscan_lab import theory

import headscan.ntp as ntp
from headscan.ntp.features import log_steps
from headscan.run.errors import BadInput
from tests.ntp.problems import labels, random_counts
from tests.reference import ntp as reference


@pytest.fixture(scope="module")
def shared():
    data = theory.random_labels(10, 95, supports=30, seed=0)
    prediction = ntp.predict(data)
    return data, prediction, ntp.train_features(data, 10, 30_000, prediction=prediction)


def test_gradient_descent_follows_but_lags(shared):
    data, prediction, run = shared
    last = run.records[-1].metrics
    assert run.records[-1].excess < 1e-4
    assert last.direction >= 0.95
    assert last.SC4 == 1
    assert last.SC1.after.same_cosine > 0.98
    assert last.SC1.after.cdnv < last.SC1.before.cdnv
    # At the same gap the regularisation path is nearer to the direction.
    path = theory.regularisation_path(data, [10.0**-k for k in range(2, 8)])
    at_same_gap = next(p for p in path if p.excess < run.records[-1].excess)
    theirs = ntp.cosine(ntp.out_of_support(at_same_gap.logits, data.supports), prediction.solution.logits)
    assert theirs > last.direction
    assert ntp.cosine(ntp.out_of_support(run.increment, data.supports), prediction.solution.logits) > last.direction


def test_records_agree_with_what_is_returned(shared):
    data, _, run = shared
    assert run.records[-1].excess == pytest.approx(ntp.cross_entropy(run.logits, data) - data.entropy())
    assert [r.step for r in run.records] == sorted({0, 30_000, *log_steps(30_000)})
    norms = [r.words for r in run.records[-6:]]
    assert norms == sorted(norms)  # the growing part grows


@pytest.mark.parametrize("optimiser", ["gd", "adam"])
def test_steps_are_those_of_torch(optimiser):
    made = labels(2)
    run = ntp.train_features(made, 4, 25, optimiser=optimiser, penalty=1e-3, checkpoints=[], seed=5)
    generator = torch.Generator().manual_seed(5)
    W, H = (
        torch.nn.Parameter(0.1 * torch.randn(n, 4, generator=generator, dtype=torch.float64))
        for n in (made.vocabulary, made.contexts)
    )
    P, weight = torch.from_numpy(made.dense()), torch.from_numpy(made.prior * made.contexts)
    chosen = torch.optim.SGD([W, H], lr=0.05) if optimiser == "gd" else torch.optim.Adam([W, H], lr=0.01, eps=1e-12)
    for _ in range(25):
        chosen.zero_grad()
        loss = -(weight @ (P * torch.log_softmax(H @ W.T, 1)).sum(1)) + 5e-4 * ((W**2).sum() + (H**2).sum())
        loss.backward()
        chosen.step()
    assert np.allclose(run.words, W.detach().numpy(), atol=1e-9)
    assert np.allclose(run.contexts, H.detach().numpy(), atol=1e-9)


def test_bad_training():
    with pytest.raises(BadInput, match="gd"):
        ntp.train_features(np.eye(3), 3, 5, optimiser="lion")
    with pytest.raises(BadInput, match="at least one"):
        ntp.train_features(np.eye(3), 0, 5)
    with pytest.raises(BadInput, match="diverged"):
        ntp.train_features(np.eye(3), 3, 2000, learning_rate=1e6)


@pytest.mark.parametrize("seed", range(3))
def test_collapse_metrics_against_loops(seed):
    counts = random_counts(seed, 9, 5)
    counts[:, :4] += np.arange(9)[:, None] % 3 == np.arange(4) % 3
    rng = np.random.default_rng(seed)
    H, W = rng.normal(size=(9, 6)), rng.normal(size=(5, 6))
    found = ntp.collapse_metrics(ntp.Embeddings(W, H), ntp.SoftLabels.of(counts))
    for name, value in reference.collapse(H, W, counts).items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=1e-12), name
    outside = rng.normal(size=(20, 6)) + 1
    assert 0 <= ntp.collapse_metrics(ntp.Embeddings(W, H), ntp.SoftLabels.of(counts), outside=outside).outside <= 1


def test_a_perfect_simplex_is_one():
    V = 5
    simplex = np.eye(V) - 1 / V
    found = ntp.collapse_metrics(ntp.Embeddings(simplex, simplex), ntp.SoftLabels.of(np.eye(V)))
    for name in ("cdnv", "scatter_ratio", "equinorm", "simplex", "dual_simplex", "duality_variance", "kernel_variance"):
        assert getattr(found, name) == pytest.approx(0, abs=1e-7), name
    assert found.duality == pytest.approx(1)
    assert found.agreement == 1


def test_support_metrics_of_the_limit_and_of_noise():
    data = theory.random_labels(9, 40, supports=12, sizes=(2, 4), seed=2)
    prediction = ntp.predict(data, gap=1e-9)
    dense = np.zeros((data.contexts, data.vocabulary))
    dense[data.supports.rows, data.supports.indices] = prediction.sparse
    # Embeddings whose logits are L^in + R L^mm exactly: W = I, H = the logits.
    limit = dense + 30 * prediction.solution.logits
    found = ntp.support_metrics(ntp.Embeddings(np.eye(9), limit), prediction)
    assert pytest.approx(0, abs=1e-9) == found.SC3
    assert found.direction == pytest.approx(1)
    assert found.growth == pytest.approx(30)
    assert found.SC4 == 1 == found.SC5.positive
    assert found.SC6.excess == pytest.approx(ntp.cross_entropy(limit, data) - data.entropy(), abs=1e-9)
    assert 0 <= found.SC6.outside_mass < 1e-9
    assert found.SC1.after.cdnv == pytest.approx(0, abs=1e-9)
    assert found.SC1.after.same_cosine == pytest.approx(1)
    assert found.SC1.before.cdnv > 0
    exact = ntp.support_metrics(ntp.Embeddings(prediction.words, prediction.contexts), prediction)
    assert exact.SC2_words == pytest.approx(1)
    assert exact.SC2_contexts == pytest.approx(1)
    assert exact.pattern_contexts == pytest.approx(1, abs=1e-6)
    rng = np.random.default_rng(0)
    noise = ntp.support_metrics(ntp.Embeddings(rng.normal(size=(9, 5)), rng.normal(size=(40, 5))), prediction)
    assert abs(noise.direction) < 0.3
    assert noise.SC4 < 0.3
    with pytest.raises(BadInput, match="contexts"):
        ntp.support_metrics(ntp.Embeddings(np.eye(9), limit[:5]), prediction)


def test_metrics_in_blocks_equal_metrics_at_once(monkeypatch):
    data = theory.random_labels(9, 40, supports=12, seed=2)
    prediction = ntp.predict(data)
    rng = np.random.default_rng(0)
    model = ntp.Embeddings(rng.normal(size=(9, 5)), rng.normal(size=(40, 5)), rng.normal(size=9))
    once = ntp.support_metrics(model, prediction)
    # The package's name of the module is the function.
    monkeypatch.setattr(sys.modules["headscan.ntp.support_metrics"], "_BLOCK_ENTRIES", 63)
    blocks = ntp.support_metrics(model, prediction)
    assert pytest.approx(once.SC3) == blocks.SC3
    assert blocks.SC5.mean == pytest.approx(once.SC5.mean)
    assert blocks.direction == pytest.approx(once.direction)
    part = prediction.restricted(np.arange(5, 25))
    some = ntp.support_metrics(ntp.Embeddings(model.words, model.contexts[5:25], model.bias), part)
    logits = model.logits()[5:25]
    assert some.SC6.excess == pytest.approx(ntp.cross_entropy(logits, part.labels) - part.labels.entropy(), abs=1e-12)


def test_gram_measures_without_grams():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(12, 3)), rng.normal(size=(12, 5))
    full = [X @ X.T for X in (A, B)]
    assert ntp.gram_cosine(A, B) == pytest.approx(ntp.cosine(*full))
    unit = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in (A, B)]
    x, y = ((X @ X.T).ravel() for X in unit)
    expected = (np.cov(x, y, bias=True)[0, 1] + 1e-8) / (x.std() * y.std() + 1e-8)
    assert ntp.pattern_similarity(A, B) == pytest.approx(expected)


def test_words_on_axes():
    # Two sexes times two ranks: the analogy is exact.
    words = np.array([[1, 1, 0], [1, -1, 0], [-1, 1, 0], [-1, -1, 0], [0, 0, 1.0]])
    assert ntp.analogy(words, 0, 1, 2)[0][0] == 3
    first = ntp.axes(words, count=1, ends=2)[0]
    assert {i for i, _ in first.positive} in ({0, 1}, {2, 3})
    with pytest.raises(BadInput, match="cancel"):
        ntp.neighbours(words, np.zeros(3))
    with pytest.raises(BadInput, match="outside the vocabulary"):
        ntp.analogy(words, 0, 1, 9)
    made = labels(3)
    sigma, vectors = ntp.early_spectrum(made)
    G = (made.dense() - 1 / made.vocabulary) * made.prior[:, None]
    assert sigma == pytest.approx(np.linalg.svd(G, compute_uv=False)[: len(sigma)], abs=1e-9)
    assert np.allclose(vectors.T @ vectors, np.eye(len(sigma)), atol=1e-9)


def test_strong_axes_are_learned_first():
    # Gradient flow on ½‖S − HWᵀ‖² from W = e^{-δ}V, H = e^{-δ}U: half times as predicted.
    rng = np.random.default_rng(0)
    sigma, delta, dt = np.array([4.0, 2.0, 1.0]), 4.0, 1e-3
    U, V = (np.linalg.qr(rng.normal(size=(6, 3)))[0] for _ in range(2))
    S, W, H = (U * sigma) @ V.T, np.exp(-delta) * V, np.exp(-delta) * U
    half = np.full(3, np.nan)
    for step in range(20_000):
        a = np.einsum("ik,ij,jk->k", U, H @ W.T, V)
        half = np.where(np.isnan(half) & (a >= sigma / 2), step * dt, half)
        R = S - H @ W.T
        W, H = W + dt * R.T @ H, H + dt * R @ W
    # Mode σ follows a(t) = σ / (1 + (σ e^{2δ} - 1) e^{-2σt}).
    assert half == pytest.approx(np.log(sigma * np.exp(2 * delta) - 1) / (2 * sigma), rel=0.01)
