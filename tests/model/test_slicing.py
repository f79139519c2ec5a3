"""Slices against models taken apart by hand, and the bad input they meet."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import BadInput
from tests.model.tiny import family
from tests.moved import moved_outputs

IDS = [[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]]


@pytest.fixture(scope="module")
def gpt2():
    torch.manual_seed(0)
    return Lens(
        GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=3, n_head=2))
    )


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    model = LlamaForCausalLM(config)
    for weight in model.parameters():
        if weight.ndim == 2:
            weight.data *= 10  # so that attention is far from uniform and positions count
    return Lens(model)


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    return Lens(BertModel(config))


def by_hand(lens, count, residual=True, norm=True, attention=True, mlp=True):
    """GPT-2's first blocks written out, in numpy's spirit: slow and obvious."""
    body = lens.model.transformer.eval()
    x = body.wte(torch.tensor(IDS)) + body.wpe(torch.arange(len(IDS[0])))
    mask = torch.full((x.shape[1],) * 2, float("-inf")).triu(1)[None, None]
    for block in body.h[:count]:
        if attention:
            branch = block.attn(block.ln_1(x) if norm else x, attention_mask=mask)[0]
            x = x + branch if residual else branch
        if mlp:
            branch = block.mlp(block.ln_2(x) if norm else x)
            x = x + branch if residual else branch
    return x.detach()


@pytest.mark.parametrize(
    ("options", "hand"),
    [
        ({}, {}),
        ({"only": "attention"}, {"mlp": False}),
        ({"only": "mlp"}, {"attention": False}),
        ({"residual": False}, {"residual": False}),
        ({"only": "attention", "residual": False}, {"mlp": False, "residual": False}),
        ({"normalisation": False}, {"norm": False}),
        ({"normalisation": False, "residual": False}, {"norm": False, "residual": False}),
    ],
)
def test_cut_models_equal_models_written_out(gpt2, options, hand):
    actual = Slice(sites=("block.1",), **options).run(gpt2, IDS)
    torch.testing.assert_close(actual, by_hand(gpt2, 2, **hand), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_whole_slices_equal_the_lens(name, request):
    lens = request.getfixturevalue(name)
    for site in (*lens.match("block.*"), "embedding"):
        assert torch.equal(Slice(sites=(site,)).run(lens, IDS), lens.run(IDS, sites=site)[site])
        embeds = lens.model.get_input_embeddings()(torch.tensor(IDS))
        torch.testing.assert_close(
            Slice(sites=(site,)).run(lens, inputs_embeds=embeds), lens.run(IDS, sites=site)[site]
        )


@pytest.mark.parametrize("name", ["T5 (both stacks)", "BART (both stacks)"])
def test_both_stacks_of_an_encoder_decoder_can_be_cut(name):
    lens = Lens(family(name))
    for site in ("encoder.block.1", "decoder.block.1", "head"):
        cut = Slice(sites=(site,)).on(lens)
        expected = lens.run(IDS, sites=site)[site]
        assert torch.equal(cut.run(IDS), expected)
        torch.testing.assert_close(cut.run(inputs_embeds=cut.embed(torch.tensor(IDS))), expected)
        assert not cut.causal
    both = Slice(sites=("block.0",)).run(lens, IDS)
    assert both.shape[-1] == 2 * lens.width("encoder.block.0")


def test_a_slice_has_a_name_and_keeps_what_was_worked_out(gpt2):
    cut = Slice(sites=("block.1",)).on(gpt2)
    assert repr(cut) == "SlicedModel('block.1' of 'model': 16 features)"
    last = cut.keeping("-1")
    assert torch.equal(last.run(IDS), cut.run(IDS)[:, -1:])
    assert last.once("anything", lambda: 1) == cut.once("anything", lambda: 2) == 1
    assert cut.slice.tokens == ":"


def test_sites_are_concatenated_in_the_order_asked_for(gpt2):
    both = gpt2.run(IDS, sites="block.0,block.2")
    joined = Slice(sites=("block.2", "block.0")).run(gpt2, IDS)
    assert torch.equal(joined, torch.cat([both["block.2"], both["block.0"]], dim=-1))


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("[:, 1:, :]", (slice(None), slice(1, None))),
        ("[:, :2, :]", (slice(None), slice(2))),
        ("[:, -1, :]", (slice(None), slice(-1, None))),
        ("[:, :, :5]", (slice(None), slice(None), slice(5))),
        ("[:, 2:4, 3:7]", (slice(None), slice(2, 4), slice(3, 7))),
    ],
)
def test_parts_of_the_output_are_numpys(gpt2, text, index):
    full = gpt2.run(IDS, sites="block.0")["block.0"]
    assert torch.equal(Slice.parse(f"block.0{text}").run(gpt2, IDS), full[index])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_masks_do_what_they_say(name, request):
    lens = request.getfixturevalue(name)
    seen_mask = moved_outputs(Slice(sites=("block.1",)), lens, IDS[0]) > 0
    assert torch.equal(seen_mask, torch.ones(6, 6).triu().bool())
    assert (moved_outputs(Slice(sites=("block.1",), causal=False), lens, IDS[0]) > 0).all()
    assert torch.equal(moved_outputs(Slice(only="mlp"), lens, IDS[0]) > 0, torch.eye(6).bool())


def test_a_causal_mask_can_be_imposed_on_an_encoder(bert):
    assert (moved_outputs(Slice(), bert, IDS[0]) > 0).all()
    seen_mask = moved_outputs(Slice(causal=True), bert, IDS[0]) > 0
    assert torch.equal(seen_mask, torch.ones(6, 6).triu().bool())


def test_weights_and_tables_can_be_swapped(gpt2):
    fresh = Slice(weights="fresh:7").run(gpt2, IDS)
    assert torch.equal(fresh, gpt2.random_init(7).run(IDS, sites="block.0")["block.0"])
    swapped = Slice(embedding="random:1").on(gpt2)
    assert swapped.vectors.shape == gpt2.input_embeddings.shape
    torch.testing.assert_close(
        swapped.run(IDS), Slice().run(gpt2, inputs_embeds=swapped.vectors[torch.tensor(IDS)])
    )


def test_gradients_reach_the_embeddings_and_only_when_asked(llama):
    cut = Slice(sites=("block.1",), tokens="2:", residual=False).on(llama)
    embeds = cut.embed(torch.tensor(IDS)).requires_grad_()
    (gradient,) = torch.autograd.grad(cut.run(inputs_embeds=embeds, grad=True).sum(), embeds)
    assert gradient.abs().sum() > 0
    assert not cut.run(inputs_embeds=embeds).requires_grad


def test_no_hook_stays_behind(gpt2):
    states_before = gpt2.run(IDS, sites="block.2")["block.2"]
    Slice(sites=("block.2",), residual=False, normalisation=False, only="mlp").run(gpt2, IDS)
    assert torch.equal(states_before, gpt2.run(IDS, sites="block.2")["block.2"])
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in gpt2.model.modules()
    )


def test_a_slice_survives_json():
    cut = Slice.parse("block.1 + head [:, 1:, 2:6]", only="mlp", causal=False, pool="mean")
    assert Slice.from_document(cut.document()) == cut
    assert cut.sites == ("block.1", "head")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Slice(sites=()), "at least one site"),
        (lambda: Slice(only="norm"), "attention, mlp"),
        (lambda: Slice(tokens="x"), "no range"),
        (lambda: Slice(features="1:2:3"), "no range"),
        (lambda: Slice(weights="old"), "fresh:SEED"),
        (lambda: Slice.parse("block.0[1:]"), "no part of an output"),
        (lambda: Slice.from_document({"depth": 3}), "no attribute depth"),
    ],
)
def test_bad_slices_are_refused_in_one_sentence(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def test_slices_that_do_not_fit_the_model_are_refused(gpt2, bert):
    for cut, lens, message in [
        (Slice(sites=("block.9",)), gpt2, "No site"),
        (Slice(residual=False), bert, "norm acts on the sum"),
        (Slice(features="99:"), gpt2, "leaves nothing"),
        (Slice(embedding="random:x"), gpt2, "random:x"),
    ]:
        with pytest.raises(BadInput, match=message):
            cut.on(lens)
    with pytest.raises(BadInput, match="leaves nothing"):
        Slice(tokens="9:").run(gpt2, IDS)
