"""Masked mixers leak nothing, take any length, and behave as transformers models do."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from headscan.model.mixer import (
    MixerAutoencoder,
    MixerConfig,
    MixerForBidirectionalLM,
    MixerForCausalLM,
    MixerModel,
)
from headscan.run import BadInput

SLOTS = 12
SIZE = 31
VARIANTS = {
    "flat": {},
    "expanded": {"mixing": "expanded", "mixing_expansion": 2},
    "expanded as published": {"mixing": "expanded", "mixing_expansion": 2, "as_published": True},
    "parallel": {"mixing": "parallel"},
    "heads": {"mixing": "heads", "mixing_heads": 2},
    "kernel": {"kernel_size": 4},
    "kernel as published": {"kernel_size": 3, "as_published": True},
    "parallel kernel, norm, tied": {
        "mixing": "parallel",
        "kernel_size": 2,
        "final_norm": True,
        "tie_word_embeddings": True,
    },
}


def _config(**options):
    return MixerConfig(
        vocab_size=SIZE,
        hidden_size=8,
        num_hidden_layers=2,
        max_position_embeddings=SLOTS,
        eos_token_id=None,
        **options,
    )


def _model(kind, **options):
    torch.manual_seed(0)
    return kind(_config(**options)).eval()


def _ids(rows=3, length=SLOTS):
    return torch.randint(SIZE, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_later_tokens_leak_exactly_nothing(variant):
    model = _model(MixerForCausalLM, **VARIANTS[variant])
    ids = _ids()
    with torch.no_grad():
        original = model(ids).logits
        for position in range(1, SLOTS):
            changed = ids.clone()
            changed[:, position] = (changed[:, position] + 7) % SIZE
            moved = model(changed).logits
            assert torch.equal(moved[:, :position], original[:, :position])
            assert not torch.equal(moved[:, position:], original[:, position:])


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_gradient_reaches_later_tokens(variant):
    model = _model(MixerModel, **VARIANTS[variant]).double()
    embeds = torch.randn(1, SLOTS, 8, dtype=torch.float64, requires_grad=True)
    for position in (0, 5, SLOTS - 2):
        states = model(inputs_embeds=embeds).last_hidden_state
        (slope,) = torch.autograd.grad((states[:, position] @ torch.arange(8.0).double()), embeds)
        assert not slope[:, position + 1 :].any()
        assert slope[:, position].any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_shorter_text_is_the_beginning_of_a_longer_one(variant):
    model = _model(MixerForCausalLM, **VARIANTS[variant])
    ids = _ids()
    with torch.no_grad():
        full = model(ids).logits
        for length in (1, 5, SLOTS - 1):
            torch.testing.assert_close(
                model(ids[:, :length]).logits, full[:, :length], rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("variant", VARIANTS)
def test_saved_and_loaded_by_the_auto_classes(variant, tmp_path):
    model = _model(MixerForCausalLM, **VARIANTS[variant])
    ids = _ids()
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(loaded, MixerForCausalLM)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), MixerConfig)
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    body = AutoModel.from_pretrained(tmp_path).eval()
    assert torch.equal(body(ids).last_hidden_state, model.model(ids).last_hidden_state)


@pytest.mark.parametrize("variant", ["flat", "expanded", "kernel"])
def test_generation_is_the_argmax_of_the_whole_text_each_time(variant):
    model = _model(MixerForCausalLM, **VARIANTS[variant])
    ids = _ids(length=4)
    got = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    want = ids
    for _ in range(6):
        want = torch.cat([want, model(want).logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(got, want)
    beams = model.generate(ids, max_new_tokens=4, do_sample=False, num_beams=3, pad_token_id=0)
    assert beams.shape == (3, 8)


def test_left_padding_changes_nothing():
    model = _model(MixerForCausalLM)
    ids = _ids(rows=2, length=6)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    padded = model(ids, attention_mask=mask).logits
    alone = model(ids[:1, 2:]).logits
    torch.testing.assert_close(padded[0, 2:], alone[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(padded[1], model(ids[1:]).logits[0], rtol=1e-4, atol=1e-5)
    generated = model.generate(
        ids, attention_mask=mask, max_new_tokens=3, do_sample=False, pad_token_id=0
    )
    single = model.generate(ids[:1, 2:], max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert torch.equal(generated[0, 6:], single[0, 4:])


def test_loss_is_that_of_the_next_token():
    model = _model(MixerForCausalLM)
    ids = _ids()
    output = model(ids, labels=ids)
    want = F.cross_entropy(output.logits[:, :-1].reshape(-1, SIZE), ids[:, 1:].reshape(-1))
    assert output.loss.item() == pytest.approx(want.item(), rel=1e-5)


def test_expansion_as_published_wastes_half_of_its_weights_and_done_right_does_not():
    for published in (True, False):
        model = _model(
            MixerForCausalLM, mixing="expanded", mixing_expansion=2, as_published=published
        )
        model(_ids(), labels=_ids()).loss.backward()
        unused = model.model.layers[0].mixing.inward[1].weight.grad
        assert (unused is None or not unused.any()) == published


def test_kernel_as_published_sees_only_the_first_positions():
    """Flattened rows: position i sees column j of tap p only where 3 j + p <= i."""
    model = _model(MixerModel, kernel_size=3, as_published=True)
    model.layers = model.layers[:1]
    embeds = torch.randn(1, SLOTS, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(
        model(inputs_embeds=embeds).last_hidden_state[0, 9].sum(), embeds
    )
    assert slope[0, :4].any(dim=-1).all()
    assert not slope[0, 4:9].any()
    assert slope[0, 9].any()


def test_parallel_branches_are_one_flat_mixing_as_a_function():
    parallel = _model(MixerModel, mixing="parallel")
    flat = _model(MixerModel)
    flat.load_state_dict(parallel.state_dict(), strict=False)
    for flat_layer, many in zip(flat.layers, parallel.layers, strict=True):
        flat_layer.mixing.weight.data = sum(branch.weight.data for branch in many.mixing.branches)
        flat_layer.mixing.bias.data = sum(branch.bias.data for branch in many.mixing.branches)
    torch.testing.assert_close(
        flat(_ids()).last_hidden_state, parallel(_ids()).last_hidden_state, rtol=1e-4, atol=1e-5
    )


def test_bidirectional_sees_all_but_the_token_it_predicts():
    model = _model(MixerForBidirectionalLM, bidirectional=True)
    ids = _ids(rows=1)
    original = model(ids).logits
    for position in range(1, SLOTS):
        changed = ids.clone()
        changed[:, position] = (changed[:, position] + 7) % SIZE
        moved = (model(changed).logits != original).any(-1)[0]
        assert not moved[position - 1]
        assert moved[torch.arange(SLOTS) != position - 1].all()
    assert not model.can_generate()


def test_autoencoder_passes_everything_through_one_vector():
    model = _model(MixerAutoencoder)
    ids = _ids()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    first = model(ids, labels=ids).loss
    for _ in range(30):
        optimizer.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
    assert loss < 0.5 * first
    assert model.embed(ids).shape == (3, 8)


def test_training_keeps_the_mask_and_the_initial_weights_are_as_published():
    model = _model(MixerForCausalLM)
    weight = model.model.layers[0].mixing.weight
    assert weight.abs().max() <= SLOTS**-0.5
    assert model.model.embed_tokens.weight.std().item() == pytest.approx(1, abs=0.15)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    upper = weight.detach().squeeze(-1).triu(1).clone()
    model(_ids(), labels=_ids()).loss.backward()
    assert not weight.grad.squeeze(-1).triu(1).any()
    optimizer.step()
    test_ids = _ids()
    changed = test_ids.clone()
    changed[:, -1] += 1
    assert torch.equal(model(test_ids).logits[:, :-1], model(changed % SIZE).logits[:, :-1])
    # the weights above the diagonal exist; it is the forward pass that ignores them
    assert upper.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixing": "soup"}, "mixing must be"),
        ({"mixing": "expanded", "kernel_size": 2}, "kernel"),
        ({"mixing_heads": 0}, "at least 1"),
    ],
)
def test_bad_configurations(options, message):
    with pytest.raises(BadInput, match=message):
        _config(**options)


def test_bad_inputs():
    model = _model(MixerForCausalLM)
    with pytest.raises(BadInput, match="13 tokens but this mixer has 12 slots"):
        model(_ids(length=13))
    with pytest.raises(BadInput, match="either"):
        model()
    with pytest.raises(BadInput, match="cannot generate"):
        _model(MixerForCausalLM, bidirectional=True)
    with pytest.raises(BadInput, match="bidirectional=True"):
        _model(MixerForBidirectionalLM)
    with pytest.raises(BadInput, match="padding"):
        _model(MixerForBidirectionalLM, bidirectional=True)(
            _ids(), attention_mask=torch.tensor([[1] * 11 + [0]] * 3)
        )


@pytest.mark.parametrize("variant", ["flat", "expanded", "kernel"])
def test_the_mask_is_a_function_and_compiles_whole(variant):
    model = _model(MixerForCausalLM, **VARIANTS[variant])
    ids = _ids()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(ids).logits, model(ids).logits)


def test_a_lens_sees_its_blocks():
    from headscan import Lens

    lens = Lens(_model(MixerForCausalLM))
    assert {"embedding", "block.0", "block.1", "block.1.mixer", "block.1.mlp", "head"} <= set(
        lens.sites
    )
    states = lens.run(_ids(), sites=["block.1", "block.1.mixer"])
    assert states["block.1"].shape == (3, SLOTS, 8)
