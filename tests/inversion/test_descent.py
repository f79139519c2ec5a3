"""Continuous inversion: the published loop step by step, and the remedies."""

import pytest
import torch

from headscan.inversion.continuous import Descent, descend, loss_of, preset
from headscan.model.slicing import Slice
from headscan.run import BadInput
from tests.reference.inversion import published_descent


def accuracy(inversion, ids):
    return float((inversion.tokens == ids).float().mean())


def test_the_preset_is_the_published_loop(gpt2, ids):
    cut = Slice().on(gpt2)
    target = cut.run(ids[:1])
    inversion = descend(cut, target, 6, preset("seed", steps=20))
    torch.manual_seed(999)
    start = torch.randn(1, 6, 32)
    by_hand = published_descent(
        lambda x: cut.run(inputs_embeds=x, grad=True), target, start, 20, 0.2
    )
    torch.testing.assert_close(inversion.vectors, by_hand, atol=2e-3, rtol=1e-3)
    assert inversion.steps == 20


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_remedied_descents_find_every_token_of_random_models(name, ids, request):
    cut = Slice(sites=("block.1",)).on(request.getfixturevalue(name))
    inversion = descend(cut, cut.run(ids), 6, preset("adam"))
    assert accuracy(inversion, ids) == 1
    assert inversion.residual.max() < 1e-5
    assert inversion.steps < preset("adam").steps  # the discrete check ended it


def test_direct_inversion_fails_by_its_start_and_not_by_itself(gpt2, ids):
    cut = Slice().on(gpt2)
    target = cut.run(ids)
    noise = Descent(method="direct", init="noise", null_space=True, check_every=0, steps=150)
    share = accuracy(descend(cut, target, 6, noise), ids)
    zero = accuracy(descend(cut, target, 6, Descent(method="direct", init="zeros", steps=150)), ids)
    assert zero == 1
    assert share < 0.5


def test_the_null_space_keeps_its_start_whatever_is_learned(gpt2, ids):
    """Two models and two targets, one start: the same wrong tokens."""
    cut = Slice().on(gpt2)
    settings = preset("seed-direct", steps=3)
    first = descend(cut, cut.run(ids[:1]), 6, settings).tokens
    two = descend(Slice(weights="fresh:8").on(gpt2), cut.run(ids[1:2]), 6, settings).tokens
    assert float((first == two).float().mean()) > 0.5


@pytest.mark.parametrize("name", ["l1", "l2", "cosine", "linear"])
def test_losses_are_zero_at_the_target_and_only_there(name, ids):
    target = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    assert loss_of(name, target, target).abs().max() < 1e-6
    assert (loss_of(name, target + torch.randn(2, 3, 4), target) > 1e-3).all()


def test_a_preset_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match="no preset"):
        preset("magic")


def test_without_the_prefix_the_target_cannot_be_reached(gpt2, ids):
    """What the source's sequential loop did: each token alone, at the first position."""
    cut = Slice(sites=("block.1",)).on(gpt2)
    target = cut.run(ids)
    alone = [
        descend(cut, target[:, position : position + 1], 1, Descent(steps=150)).tokens
        for position in range(6)
    ]
    assert float((torch.cat(alone, 1) == ids)[:, 1:].float().mean()) < 0.9
    assert torch.equal(alone[0], ids[:, :1])
