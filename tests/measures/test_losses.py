import numpy as np
import pytest
import torch
from headscan_lab.tournament.regularisers import cosine_regulariser
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.measures import isoscore, participation_ratio
from headscan.statistics.cloud import Cloud
from tests.reference import geometry as reference


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(2, 8))
def test_the_regulariser_is_the_average_cosine_and_its_gradient_is_right(seed, n, d):
    x = torch.tensor(np.random.default_rng(seed).standard_normal((n, d)) + 0.3, requires_grad=True)
    assert cosine_regulariser(x).item() == pytest.approx(
        reference.average_cosine(x.detach().numpy()), abs=1e-9
    )
    assert torch.autograd.gradcheck(cosine_regulariser, x)


def test_the_peer_agrees():
    """IsoScore 2's function; [n, d] there as here. Its centring and n − 1 do not move a score
    without a scale.
    """
    peer = pytest.importorskip("IsoScore.IsoScore")
    x = np.random.default_rng(0).standard_normal((300, 12)) * np.arange(1, 13)
    assert isoscore(Cloud.of_rows(x)) == pytest.approx(float(peer.IsoScore(x)), abs=1e-4)


def test_descending_the_regulariser_opens_a_cone():
    x = (torch.randn(64, 6, generator=torch.Generator().manual_seed(0)) + 2).requires_grad_()
    value_before = cosine_regulariser(x).item()
    optimiser = torch.optim.Adam([x], lr=0.05)
    for _ in range(100):
        optimiser.zero_grad()
        cosine_regulariser(x).backward()
        optimiser.step()
    assert cosine_regulariser(x).item() < value_before - 0.1


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="two"):
        cosine_regulariser(torch.ones(1, 3))


def test_two_vectors_lie_on_a_line_exactly():
    """Rounding made an IsoScore of 2.9e-19 of them, which a table prints."""
    draw = np.random.default_rng(0)
    for width in (2, 97, 768):
        cloud = Cloud.of_rows(draw.standard_normal((2, width)))
        assert (participation_ratio(cloud), isoscore(cloud)) == (1.0, 0.0)
