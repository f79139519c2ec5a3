"""What the field holds of protection: the experiments find what is there, and would find protection where there is some."""

from __future__ import annotations

import pytest
import torch

from headscan.claims import held
from headscan.claims.held import HELD, depth, quantisation, small_noise
from tests.inversion.conftest import build


@pytest.fixture(scope="module")
def lens():
    return build("gpt2", width=32, depth=3)


def test_depth_and_few_bits_and_a_little_noise_do_not_protect_a_random_model(lens, monkeypatch):
    monkeypatch.setattr(held, "TOKENS", 5)
    for experiment in (depth, quantisation, small_noise):
        arms = experiment(0, lens)
        assert all(hits.shape == (2, 5) for hits in arms.values())
        assert all(float(hits.mean()) == 1 for hits in arms.values()), experiment.__name__
    assert set(HELD.values()) == {depth, quantisation, small_noise}


def test_noise_that_drowns_the_states_is_seen_to_protect(lens, monkeypatch):
    """The measurement can come out the other way."""
    monkeypatch.setattr(held, "TOKENS", 5)
    drawn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, **options: 1000 * drawn(*shape, **options))
    arms = small_noise(0, lens)
    assert float(arms["noise 0%"].mean()) == 1
    assert float(arms["noise 5%"].mean()) < 0.5
