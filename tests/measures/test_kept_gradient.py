"""The gradient through the head: against a projector of V x V, its nulls, and where rounding would
bite.
"""

import numpy as np
import pytest
import torch

from headscan.measures.kept_gradient import GradientThroughHead


def _slow(states, rows, targets, bias=None, cap=None):
    """Per token (kept, all), and the gradients, with the projector written out."""
    w = rows.double().numpy()
    q, _ = np.linalg.qr(w)
    projector = q @ q.T
    z = states.double().numpy() @ w.T + (0 if bias is None else bias.double().numpy())
    slope = np.ones_like(z)
    if cap is not None:
        slope = 1 - np.tanh(z / cap) ** 2
        z = cap * np.tanh(z / cap)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(z)), targets.numpy()] -= 1
    g = p * slope
    through = ((g @ projector) ** 2).sum(1)
    return np.stack([through, (g**2).sum(1)], 1), g, projector


@pytest.mark.parametrize("cap", [None, 3.0])
def test_it_is_what_the_projector_leaves(cap):
    torch.manual_seed(0)
    rows = torch.randn(200, 12) * torch.logspace(-3, 1, 12)
    bias = torch.randn(200)
    states = torch.randn(90, 12)
    targets = torch.randint(200, (90,))
    through = GradientThroughHead(rows, bias=bias, cap=cap)
    for part in (slice(0, 7), slice(7, 90)):
        through.update(states[part], targets[part])
    result = through.result()
    energies, g, projector = _slow(states, rows, targets, bias, cap)
    np.testing.assert_allclose(through.token_energies, energies, rtol=1e-9)
    assert result.kept_norm == pytest.approx(
        np.sqrt(energies[:, 0].sum() / energies[:, 1].sum()), rel=1e-9
    )
    lent = (g**2 @ np.diag(projector)).sum() / (g**2).sum()
    assert result.kept_norm_leverage == pytest.approx(np.sqrt(lent), rel=1e-9)
    mean = g.mean(0)
    assert result.batch_kept_norm == pytest.approx(
        np.linalg.norm(projector @ mean) / np.linalg.norm(mean), rel=1e-9
    )
    values = np.linalg.svd(g, compute_uv=False) ** 2
    assert result.kept_norm_best == pytest.approx(
        np.sqrt(values[:12].sum() / values.sum()), rel=1e-9
    )
    assert result.kept_norm < result.kept_norm_best


def test_the_leverage_null_is_the_mean_over_random_signs():
    torch.manual_seed(0)
    rows = torch.randn(200, 12) * torch.linspace(0.1, 3, 200)[:, None]
    states = torch.randn(40, 12)
    targets = torch.randint(200, (40,))
    through = GradientThroughHead(rows)
    through.update(states, targets)
    _, g, projector = _slow(states, rows, targets)
    draw = np.random.default_rng(0)
    flipped = [np.abs(g) * draw.choice([-1, 1], size=g.shape) for _ in range(40)]
    energy = np.mean([((signs @ projector) ** 2).sum() for signs in flipped]) / (g**2).sum()
    assert through.result().kept_norm_leverage == pytest.approx(np.sqrt(energy), rel=0.03)


def test_a_random_head_keeps_its_share_of_dimensions():
    torch.manual_seed(0)
    states = torch.randn(400, 64)
    targets = torch.randint(2000, (400,))
    # another head than the one that made the states
    logits = GradientThroughHead(torch.randn(2000, 64))
    logits.update(0.1 * states, targets)
    result = logits.result()
    assert result.kept_norm_random == pytest.approx(np.sqrt(64 / 2000))
    assert result.kept_norm == pytest.approx(result.kept_norm_random, rel=0.03)
    assert result.kept_norm_leverage == pytest.approx(result.kept_norm_random, rel=0.03)


def test_sure_predictions_do_not_cancel():
    rows = torch.eye(8).repeat(4, 1)[:30]
    states = 40.0 * torch.eye(8)[:4]
    states[:, 4] = 60  # token 4 (and its copies) nearly sure, up to rounding
    rows[[12, 20, 28]] = 0
    targets = torch.full((4,), 4)
    through = GradientThroughHead(rows)
    through.update(states, targets)
    energies = through.token_energies
    assert (energies[:, 1] < 1e-12).all()
    assert (energies[:, 1] > 0).all()
    assert (energies[:, 0] <= energies[:, 1] * (1 + 1e-9)).all()
    assert through.result().kept_norm <= 1


def test_a_head_of_lower_rank_and_no_tokens():
    rows = torch.randn(50, 3) @ torch.randn(3, 8)
    through = GradientThroughHead(rows)
    empty = through.result()
    assert empty.kept_norm is None
    assert empty.rank == 3
    through.update(torch.randn(2, 8), torch.tensor([1, 2]))
    assert through.result().kept_norm_best is None
