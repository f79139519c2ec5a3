import numpy as np
import pytest
import torch
from headscan_lab import theory
from headscan_lab.theory.features import log_steps, train_features
from headscan_lab.theory.transformer import fit, pyramid

import headscan.ntp as ntp
from headscan.run.errors import BadInput
from tests.ntp.problems import labels


@pytest.fixture(scope="module")
def shared():
    data = theory.random_labels(10, 95, supports=30, seed=0)
    prediction = ntp.predict(data)
    return data, prediction, train_features(data, 10, 10_000, prediction=prediction)


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
    descent_direction = ntp.cosine(
        ntp.out_of_support(at_same_gap.logits, data.supports), prediction.solution.logits
    )
    assert descent_direction > last.direction
    assert (
        ntp.cosine(ntp.out_of_support(run.increment, data.supports), prediction.solution.logits)
        > last.direction
    )


def test_records_agree_with_what_is_returned(shared):
    data, _, run = shared
    assert run.records[-1].excess == pytest.approx(
        ntp.cross_entropy(run.logits, data) - data.entropy()
    )
    assert [r.step for r in run.records] == sorted({0, 10_000, *log_steps(10_000)})
    norms = [r.words for r in run.records[-6:]]
    assert norms == sorted(norms)  # the growing part grows


@pytest.mark.parametrize("optimiser", ["gd", "adam", "signgd", "muon"])
def test_steps_are_those_of_torch(optimiser):
    soft_labels = labels(2)
    run = train_features(
        soft_labels, 4, 25, optimiser=optimiser, penalty=1e-3, checkpoints=[], seed=5
    )
    generator = torch.Generator().manual_seed(5)
    W, H = (
        torch.nn.Parameter(0.1 * torch.randn(n, 4, generator=generator, dtype=torch.float64))
        for n in (soft_labels.vocabulary, soft_labels.contexts)
    )
    P = torch.from_numpy(soft_labels.dense())
    weight = torch.from_numpy(soft_labels.prior * soft_labels.contexts)
    torch_optimiser = {
        "gd": torch.optim.SGD([W, H], lr=0.05),
        "adam": torch.optim.Adam([W, H], lr=0.01, eps=1e-12),
        "signgd": torch.optim.SGD([W, H], lr=0.01),
        "muon": torch.optim.Muon([W, H], lr=0.01, weight_decay=0.0),
    }[optimiser]
    for _ in range(25):
        torch_optimiser.zero_grad()
        loss = -(weight @ (P * torch.log_softmax(H @ W.T, 1)).sum(1)) + 5e-4 * (
            (W**2).sum() + (H**2).sum()
        )
        loss.backward()
        if optimiser == "signgd":
            W.grad = W.grad.sign()
            H.grad = H.grad.sign()
        torch_optimiser.step()
    tolerance = 1e-9 if optimiser != "muon" else 1e-2 * 25 * 0.01  # torch multiplies in bfloat16
    assert np.allclose(run.words, W.detach().numpy(), atol=tolerance)
    assert np.allclose(run.contexts, H.detach().numpy(), atol=tolerance)


@pytest.mark.parametrize("optimiser", ["gd", "adam", "signgd", "muon"])
def test_a_run_ends_at_the_first_step_below_its_loss(optimiser):
    soft_labels = labels(2)
    ended = train_features(soft_labels, 4, 5000, optimiser=optimiser, until=0.2, checkpoints=[])
    step = ended.records[-1].step
    assert 0 < step < 5000
    assert ended.records[-1].excess <= 0.2
    assert ended.records[-1].excess == pytest.approx(
        ntp.cross_entropy(ended.logits, soft_labels) - soft_labels.entropy()
    )
    again = train_features(soft_labels, 4, step, optimiser=optimiser, checkpoints=[*range(step)])
    assert [record.excess > 0.2 for record in again.records] == [True] * step + [False]
    assert np.array_equal(again.words, ended.words)
    never = train_features(soft_labels, 4, 3, optimiser=optimiser, until=1e-9)
    assert never.records[-1].step == 3


def test_a_run_that_diverges_says_so():
    with pytest.raises(BadInput, match="diverged"):
        train_features(np.eye(3), 3, 2000, learning_rate=1e6)


def test_features_narrower_than_the_vocabulary_near_the_entropy_bound():
    data = theory.random_labels(12, 20, sizes=(2, 3), seed=0)
    wide, narrow = (train_features(data, width, 3000, learning_rate=0.5) for width in (12, 4))
    start = narrow.records[0].excess
    assert narrow.words.shape == (12, 4)
    assert wide.records[-1].excess < narrow.records[-1].excess < 0.3 * start


def test_a_pyramid_of_twenty_layers_learns_soft_labels():
    contexts = np.random.default_rng(0).integers(0, 10, (30, 2))
    data = theory.random_labels(10, 30, supports=12, seed=0)
    model = pyramid(10, 2, 16, seed=0)
    layers = [layer for layer in model if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in layers[:20]] == [128] * 5 + [64] * 5 + [32] * 5 + [
        16
    ] * 5
    start = fit(pyramid(10, 2, 16, seed=0), contexts, data, 1)
    assert fit(model, contexts, data, 300) < 0.5 * start


def test_random_labels():
    soft_labels = theory.random_labels(10, 95, supports=30, sizes=(2, 4), seed=3)
    assert soft_labels.contexts == 95
    assert set(soft_labels.supports.sizes) <= {2, 3, 4}
    assert soft_labels.supports.unique()[0].contexts <= 30
    with pytest.raises(BadInput):
        theory.random_labels(3, 5, sizes=(2, 9))
