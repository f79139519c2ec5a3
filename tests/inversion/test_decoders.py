"""Decoders against numpy."""

import numpy as np
import pytest
import torch

from headscan.inversion.continuous import Decoder
from headscan.run import BadInput
from tests.reference import inversion as slow


@pytest.fixture
def table():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(40, 8, generator=generator) * torch.linspace(0.2, 3, 40)[:, None]


@pytest.fixture
def vectors():
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(1))


def test_decoders_equal_the_slow_ones(table, vectors):
    decoder = Decoder(table)
    x = vectors.numpy().astype(float)
    w = table.numpy().astype(float)
    np.testing.assert_allclose(decoder.pinv(vectors).numpy(), slow.pinv_scores(x, w), atol=1e-5)
    assert np.array_equal(decoder.scores(vectors, "nearest").argmax(-1).numpy(), slow.nearest(x, w))


def test_the_pseudo_inverse_is_not_the_nearest_neighbour(table):
    assert torch.equal(Decoder(table).scores(table, "nearest").argmax(-1), torch.arange(40))
    assert not torch.equal(Decoder(table).scores(table, "pinv").argmax(-1), torch.arange(40))


def test_a_restricted_vocabulary_is_never_left_but_by_the_published_mask(table, vectors):
    allowed = torch.zeros(40, dtype=torch.bool)
    allowed[[1, 5, 9]] = True
    distant = -10 * table[[1, 5, 9]].sum(0, keepdim=True)
    for method in ("pinv", "nearest"):
        assert allowed[
            Decoder(table, allowed).scores(torch.cat([vectors, distant]), method).argmax(-1)
        ].all()
    assert not allowed[Decoder(table, allowed, "zero").scores(distant, "pinv").argmax(-1)].any()


def test_tables_without_full_rank_are_decoded(table):
    flat = torch.cat([table[:, :4], table[:, :4]], dim=1)
    assert torch.equal(Decoder(flat).scores(flat, "nearest").argmax(-1), torch.arange(40))
    assert torch.isfinite(Decoder(flat).pinv(flat)).all()


def test_an_empty_vocabulary_is_refused(table):
    with pytest.raises(BadInput, match="empty"):
        Decoder(table, torch.zeros(40, dtype=torch.bool))
