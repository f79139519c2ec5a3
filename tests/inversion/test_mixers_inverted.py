"""Masked mixers: every mixing through the slices and the exact search, by their
triangular weights.
"""

import pytest
import torch

from headscan.inversion import invert
from headscan.inversion.left_to_right import exact
from headscan.model import Lens
from headscan.model.mixer import MixerConfig, MixerForCausalLM
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import can_cache
from headscan.run import BadInput
from tests.moved import moved_outputs
from tests.reference.inversion import brute_force


def mixer(**options):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 120,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "max_position_embeddings": 12,
    }
    return Lens(MixerForCausalLM(MixerConfig(**(sizes | options))), name="mixer")


@pytest.fixture(scope="module")
def flat():
    return mixer()


KINDS = [
    {"mixing": "flat"},
    {"mixing": "flat", "kernel_size": 4},
    {"mixing": "expanded"},
    {"mixing": "expanded", "as_published": True},
    {"mixing": "parallel"},
    {"mixing": "heads"},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_every_mixing_is_inverted(options, ids):
    lens = mixer(**options)
    cut = Slice(sites=("block.1",)).on(lens)
    assert cut.causal
    target = cut.run(ids)
    inversions = exact(cut, list(target))
    assert torch.equal(torch.tensor([inversion.tokens for inversion in inversions]), ids)
    assert brute_force(cut.run, target[0, :3], 120) == inversions[0].tokens[:3]
    assert not any(inversion.failed or any(inversion.rivals) for inversion in inversions)


@pytest.mark.parametrize(
    "options",
    [
        {"only": "attention"},  # what mixes tokens: here the mixing
        {"only": "mlp"},
        {"residual": False},
        {"normalisation": False},
        {"features": "2:7"},
        {"embedding": "random:1"},
        {"weights": "fresh:3"},
        {"causal": True},
        {"sites": ("block.0", "block.1.mixer")},
    ],
    ids=str,
)
def test_any_slice_of_a_mixer_is_inverted(flat, ids, options):
    cut = Slice(**options).on(flat)
    inversions = exact(cut, list(cut.run(ids)))
    assert torch.equal(torch.tensor([inversion.tokens for inversion in inversions]), ids)


def test_a_mixer_has_no_cache_and_leaks_nothing_backwards(flat, ids):
    assert not can_cache(Slice().on(flat))
    moved = moved_outputs(Slice(sites=("block.1",)), flat, ids[0])
    assert bool((moved.tril(-1) == 0).all())
    assert bool((moved.diagonal() > 0).all())


def test_a_hidden_token_of_a_mixer_is_searched(flat, ids):
    entry = invert(flat, ids[0], at="block.1[:, 1:, :]").prompts[0]
    assert entry.recovered == ids[0].tolist()
    # prompts of two other tokens were not run
    assert entry.verdict == "recovered, unique among those tried"


def test_what_a_mixer_cannot_do_is_said(flat):
    with pytest.raises(BadInput, match="cannot be lifted"):
        Slice(causal=False).on(flat)
    with pytest.raises(BadInput, match="takes at most 12"):
        invert(flat, torch.arange(13))
