import sys

import numpy as np
import pytest
from headscan_lab import theory

import headscan.ntp as ntp
from headscan.run.errors import BadInput


def test_support_metrics_of_the_limit_and_of_noise():
    data = theory.random_labels(9, 40, supports=12, sizes=(2, 4), seed=2)
    prediction = ntp.predict(data, gap=1e-9)
    dense = np.zeros((data.contexts, data.vocabulary))
    dense[data.supports.rows, data.supports.indices] = prediction.sparse
    # Embeddings whose logits are L^in + R L^mm exactly: W = I, H = the logits.
    limit = dense + 30 * prediction.solution.logits
    metrics = ntp.support_metrics(ntp.Embeddings(np.eye(9), limit), prediction)
    assert pytest.approx(0, abs=1e-9) == metrics.SC3
    assert metrics.direction == pytest.approx(1)
    assert metrics.growth == pytest.approx(30)
    assert metrics.SC4 == 1
    assert metrics.SC5 > 0
    assert pytest.approx(ntp.cross_entropy(limit, data) - data.entropy(), abs=1e-9) == metrics.SC6
    assert 0 <= metrics.outside_mass < 1e-9
    assert metrics.SC1.after.cdnv == pytest.approx(0, abs=1e-9)
    assert metrics.SC1.after.same_cosine == pytest.approx(1)
    assert metrics.SC1.before.cdnv > 0
    exact = ntp.support_metrics(ntp.Embeddings(prediction.words, prediction.contexts), prediction)
    assert exact.SC2_words == pytest.approx(1)
    assert exact.SC2_contexts == pytest.approx(1)
    rng = np.random.default_rng(0)
    noise = ntp.support_metrics(
        ntp.Embeddings(rng.normal(size=(9, 5)), rng.normal(size=(40, 5))), prediction
    )
    assert abs(noise.direction) < 0.3
    assert noise.SC4 < 0.3
    with pytest.raises(BadInput, match="contexts"):
        ntp.support_metrics(ntp.Embeddings(np.eye(9), limit[:5]), prediction)


def test_metrics_in_blocks_equal_metrics_at_once(monkeypatch):
    data = theory.random_labels(9, 40, supports=12, seed=2)
    prediction = ntp.predict(data)
    rng = np.random.default_rng(0)
    word_rows = rng.normal(size=(9, 5))
    contexts = rng.normal(size=(40, 5))
    model = ntp.Embeddings(word_rows, contexts, rng.normal(size=9))
    once = ntp.support_metrics(model, prediction)
    # The package's name of the module is the function.
    monkeypatch.setattr(sys.modules["headscan.ntp.support_metrics"], "_BLOCK_ENTRIES", 63)
    blocks = ntp.support_metrics(model, prediction)
    assert pytest.approx(once.SC3) == blocks.SC3
    assert pytest.approx(once.SC5) == blocks.SC5
    assert blocks.direction == pytest.approx(once.direction)
    part = prediction.restricted(np.arange(5, 25))
    in_block = ntp.support_metrics(
        ntp.Embeddings(model.words, model.contexts[5:25], model.bias), part
    )
    logits = model.logits()[5:25]
    assert (
        pytest.approx(ntp.cross_entropy(logits, part.labels) - part.labels.entropy(), abs=1e-12)
        == in_block.SC6
    )


def test_gram_measures_without_grams():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(12, 3))
    B = rng.normal(size=(12, 5))
    full = [X @ X.T for X in (A, B)]
    assert ntp.gram_cosine(A, B) == pytest.approx(ntp.cosine(*full))
    unit = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in (A, B)]
    x, y = ((X @ X.T).ravel() for X in unit)
    expected = (np.cov(x, y, bias=True)[0, 1] + 1e-8) / (x.std() * y.std() + 1e-8)
    assert theory.pattern_similarity(A, B) == pytest.approx(expected)


def test_words_on_axes():
    word_vectors = np.array([[1, 1, 0], [1, -1, 0], [-1, 1, 0], [-1, -1, 0], [0, 0, 1.0]])
    first = ntp.axes(word_vectors, count=1, ends=2)[0]
    assert {i for i, _ in first.positive} in ({0, 1}, {2, 3})
