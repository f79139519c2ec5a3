"""InfoNCE against its definition, and retrieval that learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscan.errors import BadInput
from headscan.model.mixer import MixerConfig, MixerModel
from headscan.training import infonce_loss, retrieval_accuracy, train_retrieval
from headscan.training.retrieval import halves


def test_value_is_the_definition():
    generator = torch.Generator().manual_seed(0)
    queries, candidates = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (3, 7))
    want = []
    for i, query in enumerate(queries):
        cosines = [float(query @ c / query.norm() / c.norm()) / 0.1 for c in candidates]
        want.append(np.log(np.sum(np.exp(cosines))) - cosines[2 + i])
    assert infonce_loss(queries, candidates, temperature=0.1, first=2).item() == pytest.approx(np.mean(want))
    one = infonce_loss(queries, candidates[:3], temperature=0.1)
    other = infonce_loss(candidates[:3], queries, temperature=0.1)
    both = infonce_loss(queries, candidates[:3], temperature=0.1, both_ways=True)
    assert both.item() == pytest.approx((one + other).item() / 2)


def test_a_mixer_learns_to_retrieve():
    """The second half of each text repeats a rare token of the first: a mean of embeddings would do."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    rows = draw.integers(0, 20, (192, 16))
    keys = draw.integers(20, 60, 192)
    rows[:, 3], rows[:, 12] = keys, keys
    model = MixerModel(MixerConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, max_position_embeddings=8))
    queries, candidates = halves(rows)
    before = retrieval_accuracy(model, queries[128:], candidates[128:], among=16)
    losses = train_retrieval(model, queries[:128], candidates[:128], steps=150, batch=32, rate=3e-3, temperature=0.1)
    after = retrieval_accuracy(model, queries[128:], candidates[128:], among=16)
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])
    assert after > before + 0.15


def test_bad_input():
    two, three = torch.zeros(2, 4), torch.zeros(3, 4)
    for arguments, options in (((two, three[:, :2]), {}), ((three, two), {}), ((two, two), {"temperature": 0})):
        with pytest.raises(BadInput):
            infonce_loss(*arguments, **options)
    with pytest.raises(BadInput, match="as many"):
        infonce_loss(two, three, both_ways=True)
    with pytest.raises(BadInput, match="two pairs"):
        train_retrieval(None, np.zeros((1, 2)), np.zeros((1, 2)))
    with pytest.raises(BadInput, match="one group"):
        retrieval_accuracy(None, np.zeros((1, 2)), np.zeros((1, 2)))
    with pytest.raises(BadInput, match="halves"):
        halves(np.zeros((3, 1)))
