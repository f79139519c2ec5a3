"""Weights of 8 and 4 bits by bitsandbytes: the same search, with the tolerance that their
arithmetic needs.
"""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from headscan.inversion import invert
from headscan.inversion.continuous import Descent, descend
from headscan.inversion.left_to_right import exact
from headscan.inversion.reconstruction import accepted, noise_floor
from headscan.leaks import privacy
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import slice_noise
from headscan.run import BadInput

pytest.importorskip(
    "bitsandbytes",
    reason="bitsandbytes is not installed: inversion of quantised models is NOT tested",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=200,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    path = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(path)
    return str(path)


@pytest.mark.parametrize("bits", ["8bit", "4bit"])
def test_every_token_is_found(folder, ids, bits):
    lens = Lens.load(folder, dtype=bits, device="cpu")
    rows = ids[:2]
    for site in ("block.0", "block.1"):
        cut = Slice(sites=(site,)).on(lens)
        target = cut.run(rows)
        inversions = exact(cut, list(target))
        assert torch.equal(torch.tensor([inversion.tokens for inversion in inversions]), rows)
        assert max(r for inversion in inversions for r in inversion.residuals) <= accepted(cut)
        assert min(
            step.evidence.runner_up for inversion in inversions for step in inversion.steps
        ) > 5 * accepted(cut)
    # The weights are really other weights: the full model's outputs are far outside the tolerance.
    full = Slice(sites=("block.1",)).run(Lens.load(folder, device="cpu"), rows)
    away = (target.float() - full.float()).norm() / full.float().norm()
    assert away > 5e-3


def test_the_full_model_reads_states_of_the_quantised_one(folder, ids):
    """Whoever inverts has the weights, but not the rounding: the tolerance is widened to what it
    does.
    """
    victim = Slice(sites=("block.1",)).run(Lens.load(folder, dtype="8bit", device="cpu"), ids[:2])
    cut = Slice(sites=("block.1",)).on(Lens.load(folder, device="cpu"))
    inversions = exact(cut, list(victim), tolerance=0.1)
    assert torch.equal(torch.tensor([inversion.tokens for inversion in inversions]), ids[:2])
    assert min(r for inversion in inversions for r in inversion.residuals) > 1e-3


def test_the_tolerance_follows_what_the_batch_does_to_the_outputs(folder, ids):
    """Features that are large anywhere in the batch are kept in half precision for all of it:
    outputs then move.
    """
    plain = Slice(sites=("block.1",)).on(Lens.load(folder, device="cpu"))
    assert slice_noise(plain) < 1e-5
    lens = Lens.load(folder, dtype="8bit", device="cpu")
    calm = noise_floor(Slice(sites=("block.1",)).on(lens))
    for (
        layer
    ) in lens.model.model.layers:  # norms that make some features large in some tokens: outliers
        layer.input_layernorm.weight.data[:16] *= 6
        layer.post_attention_layernorm.weight.data[:16] *= 6
    wild = Slice(sites=("block.1",), features=":127").on(lens)
    assert slice_noise(wild) > 1e-4
    assert noise_floor(wild) > calm
    inversions = exact(wild, list(wild.run(ids[:2])))
    assert torch.equal(torch.tensor([inversion.tokens for inversion in inversions]), ids[:2])
    assert not any(inversion.failed for inversion in inversions)


def test_gradients_reach_the_inputs_of_quantised_models(folder, ids):
    lens = Lens.load(folder, dtype="8bit", device="cpu")
    cut = Slice().on(lens)
    inversion = descend(cut, cut.run(ids[:2]), 6, Descent(steps=100))
    assert float((inversion.tokens == ids[:2]).float().mean()) > 0.9


def test_the_facade_takes_them(folder, ids):
    result = invert(folder, ids[:1], at="block.1", dtype="8bit", device="cpu")
    assert result.verdict == "recovered and unique"
    assert result.models[0].quantize == "8bit"
    with pytest.raises(BadInput, match="not trained and have no gradient"):
        privacy(
            Lens.load(folder, dtype="8bit", device="cpu", tokenizer="bytes"),
            ["ab"],
            release="gradient",
        )


def test_a_trained_model_of_eight_bits_gives_back_its_text(assets):
    lens = Lens.load(str(assets / "models" / "stories260K"), dtype="8bit", device="cpu")
    result = invert(lens, "Once upon a time", at="block.4")
    assert result.token_accuracy == 1
    assert result.verdict == "recovered and unique"
