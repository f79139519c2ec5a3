from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.measures import isoscore
from headscan.statistics.cloud import Cloud
from headscan.training.losses.isotropy import cosine_regulariser, isoscore_loss, isoscore_star
from tests.reference import geometry as reference


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(2, 8))
def test_the_regulariser_is_the_average_cosine_and_its_gradient_is_right(seed, n, d):
    x = torch.tensor(np.random.default_rng(seed).standard_normal((n, d)) + 0.3, requires_grad=True)
    assert cosine_regulariser(x).item() == pytest.approx(reference.average_cosine(x.detach().numpy()), abs=1e-9)
    assert torch.autograd.gradcheck(cosine_regulariser, x)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(3, 30), st.integers(2, 8))
def test_isoscore_star_without_shrinkage_is_isoscore(seed, n, d):
    x = torch.tensor(np.random.default_rng(seed).standard_normal((n, d)) * 2 + 1, requires_grad=True)
    assert isoscore_star(x).item() == pytest.approx(isoscore(Cloud.of_rows(x.detach())), abs=1e-9)
    assert torch.autograd.gradcheck(lambda y: isoscore_star(y, shrinkage=0.3), x, atol=1e-4)


def test_isoscore_star_equals_the_published_steps_on_the_mixed_covariance():
    rng = np.random.default_rng(0)
    x, big = rng.standard_normal((6, 9)), rng.standard_normal((500, 9)) * np.arange(1, 10)
    target = np.cov(big, rowvar=False)
    mixed = 0.6 * np.cov(x, rowvar=False, bias=True) + 0.4 * target
    values = np.linalg.eigvalsh(mixed)
    normalised = 3 * values / np.linalg.norm(values)
    defect = np.linalg.norm(normalised - 1) / np.sqrt(2 * (9 - 3))
    expected = ((9 - defect**2 * 6) ** 2 - 9) / (9 * 8)
    found = isoscore_star(torch.tensor(x), shrinkage=0.4, target=torch.tensor(target))
    assert found.item() == pytest.approx(expected)


def test_the_peer_agrees():
    """IsoScore 2's function; [n, d] there as here. Its centring and n − 1 do not move a score without a scale."""
    peer = pytest.importorskip("IsoScore.IsoScore")
    x = np.random.default_rng(0).standard_normal((300, 12)) * np.arange(1, 13)
    assert isoscore(Cloud.of_rows(x)) == pytest.approx(float(peer.IsoScore(x)), abs=1e-4)


def test_descending_the_losses_makes_a_cloud_rounder():
    x = (
        torch.randn(64, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([9.0, 1, 1, 1, 1, 1]) + 2
    ).requires_grad_()
    before = isoscore_star(x).item(), cosine_regulariser(x).item()
    optimiser = torch.optim.Adam([x], lr=0.05)
    for _ in range(100):
        optimiser.zero_grad()
        (isoscore_loss([x], strength=1.0, shrinkage=0.1) + cosine_regulariser(x)).backward()
        optimiser.step()
    assert isoscore_star(x).item() > before[0] + 0.3
    assert cosine_regulariser(x).item() < before[1] - 0.1


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="two"):
        isoscore_star(torch.ones(5, 1))
    with pytest.raises(ValueError, match="two"):
        cosine_regulariser(torch.ones(1, 3))
