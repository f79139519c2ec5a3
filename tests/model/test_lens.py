"""The Lens: running to a site, watching, the model's mode, bad input."""

import copy
import gc
import weakref

import numpy as np
import pytest
import torch
from transformers import ViTConfig, ViTModel, XLMConfig, XLMWithLMHeadModel

from headscan.model import ByteTokenizer, Lens
from headscan.run import BadInput
from tests.model.tiny import family, gpt2, hooks, ids, llama


@pytest.fixture
def lens() -> Lens:
    return Lens(gpt2(), name="tiny")


def count_calls(model, path: str) -> list:
    """A list that grows by one whenever the module runs."""
    calls: list = []
    module = model.get_submodule(path)
    original = module.forward

    def counted(*args, **kwargs):
        calls.append(path)
        return original(*args, **kwargs)

    module.forward = counted
    return calls


@pytest.mark.parametrize(
    ("site", "blocks", "norm"),
    [
        ("embedding", 0, 0),
        ("block.0", 1, 0),
        ("block.2", 3, 0),
        ("block.2.attention", 3, 0),
        ("block.3", 4, 0),
        ("final_norm", 4, 1),
        ("head", 4, 1),
    ],
)
def test_a_run_stops_at_the_deepest_site(lens, site, blocks, norm):
    counters = [count_calls(lens.model, f"transformer.h.{i}") for i in range(4)]
    mlp = count_calls(lens.model, "transformer.h.2.mlp")
    last = count_calls(lens.model, "transformer.ln_f")
    states = lens.run(ids(), sites=site)
    assert list(states) == [site]
    assert sum(map(len, counters)) == blocks
    assert len(last) == norm
    assert len(mlp) == (1 if blocks > 2 and site != "block.2.attention" else 0)


def test_the_decoder_does_not_run_for_a_site_of_the_encoder():
    lens = Lens(family("T5 (both stacks)"))
    calls = count_calls(lens.model, "decoder.block.0")
    lens.run(ids(), sites="encoder.**")
    assert calls == []
    lens.run(ids(), sites="decoder.embedding, decoder.block.0.attention")
    assert calls == ["decoder.block.0"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_no_hook_stays_behind(lens, error):
    assert hooks(lens.model) == 0
    lens.run(ids(), sites="block.1")

    def fail(site, tensor):
        raise error("stop")

    with pytest.raises(error):
        lens.run(ids(), sites="block.*", each=fail)
    assert hooks(lens.model) == 0
    with pytest.raises(error), lens.watch("**", fail):
        lens.model(input_ids=ids())
    assert hooks(lens.model) == 0
    assert not lens.model.training


def test_a_fault_of_the_model_leaves_no_hook(lens, monkeypatch):
    def fail(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(lens.model.transformer.h[1].mlp, "forward", fail)
    with pytest.raises(KeyboardInterrupt):
        lens.run(ids(), sites="head")
    assert hooks(lens.model) == 0


def test_hooks_of_others_stay(lens):
    calls = []
    handle = lens.model.transformer.h[0].register_forward_hook(lambda *_: calls.append(1))
    lens.run(ids(), sites="block.1")
    assert calls == [1]
    assert hooks(lens.model) == 1
    handle.remove()


def test_sites_come_in_the_order_of_depth_whatever_the_request(lens):
    states = lens.run(ids(), sites=["final_norm", "block.2", "embedding"])
    assert list(states) == ["embedding", "block.2", "final_norm"]
    order = []
    assert (
        lens.run(ids(), sites="block.*, final_norm", each=lambda site, _: order.append(site)) == {}
    )
    assert order == ["block.0", "block.1", "block.2", "block.3", "final_norm"]


@pytest.mark.parametrize("input_ids", [ids(), ids().numpy(), ids().tolist(), ids().to(torch.int32)])
def test_ids_may_be_tensors_arrays_or_lists(lens, input_ids):
    assert torch.equal(
        lens.run(input_ids, sites="block.3")["block.3"], lens.run(ids(), sites="block.3")["block.3"]
    )


def test_gradients_flow_only_when_asked_for(lens):
    embeddings = lens.input_embeddings[ids()].detach().requires_grad_()
    quiet = lens.run(inputs_embeds=embeddings, sites="block.2")["block.2"]
    assert not quiet.requires_grad
    loud = lens.run(inputs_embeds=embeddings, sites="block.2", grad=True)["block.2"]
    assert torch.equal(loud, lens.run(ids(), sites="block.2")["block.2"])
    loud.sum().backward()
    assert embeddings.grad.abs().sum() > 0


def test_an_attention_mask_reaches_the_model():
    lens = Lens(llama())
    tokens = ids()
    mask = torch.ones_like(tokens)
    mask[:, :2] = 0
    with torch.no_grad():
        expected = lens.model.model(input_ids=tokens, attention_mask=mask).last_hidden_state
    assert torch.equal(
        lens.run(tokens, attention_mask=mask, sites="final_norm")["final_norm"], expected
    )
    assert not torch.equal(lens.run(tokens, sites="final_norm")["final_norm"], expected)


def test_the_model_evaluates_without_dropout_and_is_put_back():
    model = gpt2(resid_pdrop=0.5, embd_pdrop=0.5)
    lens = Lens(model)
    model.train()
    model.transformer.h[1].eval()
    first, second = (lens.run(ids(), sites="block.3")["block.3"] for _ in range(2))
    assert torch.equal(first, second)
    assert model.training
    assert model.transformer.h[0].mlp.training
    assert not model.transformer.h[1].mlp.training


def test_making_a_lens_leaves_the_model_and_the_random_state_alone():
    model = gpt2().train()
    weights_before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    lens = Lens(model)
    lens.run(ids(), sites="head")
    lens.random_init(3)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(
        torch.equal(value, weights_before[name]) for name, value in model.state_dict().items()
    )
    assert all(parameter.grad is None for parameter in model.parameters())


def test_watching_a_training_step_sees_every_pass_with_its_gradient():
    model = gpt2().train()
    lens = Lens(model)
    watched = []
    with lens.watch("block.*", lambda site, tensor: watched.append((site, tensor))):
        for _ in range(2):
            model(input_ids=ids(), labels=ids()).loss.backward()
    assert [site for site, _ in watched] == ["block.0", "block.1", "block.2", "block.3"] * 2
    assert all(tensor.requires_grad for _, tensor in watched)
    assert hooks(model) == 0


def test_watching_under_activation_checkpointing_sees_each_block_once_a_pass():
    model = gpt2().train()
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    hooks_before = hooks(model)  # transformers puts one of its own on the embeddings
    lens = Lens(model)
    watched = []
    with lens.watch("**", lambda site, tensor: watched.append(site)):
        loss = model(input_ids=ids(), labels=ids(), use_cache=False).loss
    loss.backward()
    assert watched == list(lens.sites)
    assert hooks(model) == hooks_before


@pytest.mark.parametrize("name", ["ALBERT (one shared block)", "OPT"])
def test_watching_counts_afresh_in_every_pass(name):
    lens = Lens(family(name))
    watched = []
    with (
        torch.no_grad(),
        lens.watch("block.*.mlp, block.*", lambda site, tensor: watched.append((site, tensor))),
    ):
        for rows, length in ((2, 5), (3, 7)):
            lens.model(input_ids=ids(rows, length))
    assert [site for site, _ in watched] == [
        f"block.{i}{end}" for i in range(3) for end in (".mlp", "")
    ] * 2
    assert watched[0][1].shape[:2] == (2, 5)
    assert watched[-2][1].shape[:2] == (3, 7)


def test_one_pass_of_a_shared_block_can_be_asked_for():
    lens = Lens(family("ALBERT (one shared block)"))
    everything = lens.run(ids(), sites="**")
    for site in ("block.1", "block.2.attention", "block.0.mlp"):
        assert torch.equal(lens.run(ids(), sites=site)[site], everything[site])
    assert any("share the weights" in note for note in lens.notes)


def test_rwkv_says_where_it_halves_the_stream():
    lens = Lens(family("RWKV (stream halved every 2 blocks)"))
    assert [note.split(";")[0] for note in lens.notes] == [
        "The stream is multiplied by 0.5 after block.1",
        "The stream is multiplied by 0.5 after block.3",
    ]


def test_rwkv_halves_its_weights_once():
    """It does so in place in its first pass, and remembers it: the trial must not forget it."""
    model = family("RWKV (stream halved every 2 blocks)")
    with torch.no_grad():
        expected = copy.deepcopy(model)(ids()).logits
    for _ in range(2):
        assert torch.equal(Lens(model).run(ids(), sites="head")["head"], expected)


def test_an_encoder_decoder_reads_its_input_shifted_right_by_default():
    lens = Lens(family("T5 (both stacks)"))
    tokens = ids()
    shifted = torch.cat(
        [torch.full((2, 1), lens.model.config.decoder_start_token_id), tokens[:, :-1]], dim=1
    )
    site = "decoder.final_norm"
    assert torch.equal(
        lens.run(tokens, sites=site)[site],
        lens.run(tokens, decoder_input_ids=shifted, sites=site)[site],
    )
    vectors = lens.input_embeddings[tokens].detach()
    assert torch.equal(
        lens.run(inputs_embeds=vectors, sites=site)[site], lens.run(tokens, sites=site)[site]
    )
    states = lens.run(inputs_embeds=vectors, sites="encoder.final_norm")
    assert torch.equal(
        states["encoder.final_norm"],
        lens.run(tokens, sites="encoder.final_norm")["encoder.final_norm"],
    )
    # of its own: its vectors are not the encoder's
    lens.model.decoder.embed_tokens = torch.nn.Embedding(97, 32)
    with pytest.raises(BadInput, match="decoder_input_ids"):
        lens.run(inputs_embeds=vectors, sites=site)


def test_ids_may_be_lists_arrays_or_tensors():
    for name in ("T5 (both stacks)", "GPT-2"):
        lens = Lens(family(name))
        site = lens.default_sites[-1]
        expected = lens.run(ids(), sites=site)[site]
        for kind in (
            torch.Tensor.tolist,
            torch.Tensor.numpy,
            torch.Tensor.int,
            lambda array: array.numpy().astype("u1"),
        ):
            assert torch.equal(lens.run(kind(ids()), sites=site)[site], expected)
        with pytest.raises(BadInput, match="every prompt of the same length"):
            lens.run([[1, 2], [3]], sites=site)


def test_the_twin_is_the_same_model_with_other_weights(lens):
    twin_1 = lens.random_init(1)
    same = lens.random_init(1)
    twin_2 = lens.random_init(2)
    assert twin_1.sites == lens.sites
    tables = [twin.input_embeddings for twin in (twin_1, same, twin_2)]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])
    assert twin_1.provenance().random_init == 1
    assert twin_1.model.dtype == lens.model.dtype
    assert Lens(gpt2().bfloat16()).random_init(0).model.dtype == torch.bfloat16


def test_a_twin_is_made_when_the_model_is_gone():
    model = gpt2()
    expected = Lens(model).random_init(4).input_embeddings
    table = weakref.ref(model.transformer.wte.weight)
    twin = Lens(model).twin(4)
    del model
    gc.collect()
    assert table() is None
    assert torch.equal(twin().input_embeddings, expected)
    assert "random weights, seed 4" in twin().name


def test_the_lens_knows_its_model(lens):
    assert lens.depth == 4
    assert lens.width("block.2.mlp") == 16
    assert lens.width("head") == lens.vocabulary_size == 61
    assert lens.context_length == 32
    assert lens.input_embeddings is lens.model.transformer.wte.weight
    assert lens.output_embeddings is lens.model.lm_head.weight
    assert Lens(gpt2().transformer).output_embeddings is None
    assert Lens(family("Roberta (masked LM)")).context_length == 64 - 1 - 1
    assert Lens(family("BLOOM")).context_length is None
    known = lens.provenance()
    assert known.model_class == "GPT2LMHeadModel"
    assert known.parameters == sum(parameter.numel() for parameter in lens.model.parameters())
    assert known.sha256 == {}


@pytest.mark.parametrize("name", ["Roberta (masked LM)", "OPT", "GPT-2", "T5 (both stacks)"])
def test_the_longest_input_runs(name):
    lens = Lens(family(name))
    length = lens.context_length or 100
    assert lens.run(ids(1, length), sites="**")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda lens: lens.match("block.9"),
            r"No site of tiny matches 'block.9'; it has: embedding, block.0 ... block.3",
        ),
        (lambda lens: lens.match("block.*, layers.*"), "matches 'layers.*'"),
        (lambda lens: lens.match(" , "), "No site was asked for"),
        (lambda lens: lens.width("nothing"), "matches 'nothing'"),
        (lambda lens: lens.run([[1, 61]], sites="block.0"), r"Token id 61 .* \(0 to 60\)"),
        (lambda lens: lens.run([[-1, 2]], sites="block.0"), "Token id -1"),
        (
            lambda lens: lens.run(np.zeros((1, 33), int), sites="block.0"),
            "33 tokens, but 'tiny' takes at most 32",
        ),
        (lambda lens: lens.run(inputs_embeds=torch.zeros(1, 33, 16), sites="block.0"), "33 tokens"),
        (lambda lens: lens.run(inputs_embeds=torch.zeros(3, 16), sites="block.0"), r"\[B, T, e\]"),
        (lambda lens: lens.run([1, 2], sites="block.0"), r"shape \[B, T\]"),
        (lambda lens: lens.run([[0.5]], sites="block.0"), "whole-number"),
        (lambda lens: lens.run([[]], sites="block.0"), r"shape \[B, T\]"),
        (lambda lens: lens.run(sites="block.0"), "either input_ids or inputs_embeds"),
        (lambda lens: lens.run([[1]], decoder_input_ids=[[1]], sites="block.0"), "no decoder"),
        (lambda lens: lens.require_tokenizer(), "without a tokenizer"),
    ],
)
def test_bad_input_is_one_clear_sentence(lens, call, message):
    with pytest.raises(BadInput, match=message) as caught:
        call(lens)
    assert "\n" not in str(caught.value)


def test_a_model_without_attention_says_what_it_has():
    lens = Lens(family("Mamba"))
    with pytest.raises(BadInput, match=r"block.0.mixer"):
        lens.match("block.*.attention")


def test_models_that_cannot_be_read_are_refused_in_a_sentence():
    with pytest.raises(BadInput, match=r"embeddings|token ids"):
        Lens(
            ViTModel(
                ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=32)
            )
        )
    with pytest.raises(BadInput, match="no list of blocks"):
        Lens(XLMWithLMHeadModel(XLMConfig(vocab_size=50, emb_dim=16, n_layers=2, n_heads=2)))
    with torch.device("meta"):
        empty = gpt2()
    with pytest.raises(BadInput, match="without weights"):
        Lens(empty)


def test_a_tokenizer_is_handed_on():
    tokenizer = ByteTokenizer()
    assert Lens(gpt2(), tokenizer).require_tokenizer() is tokenizer
    assert Lens(gpt2(), tokenizer).random_init(0).tokenizer is tokenizer


def test_one_block_is_enough():
    for model in (gpt2(n_layer=1), llama(num_hidden_layers=1)):
        assert Lens(model).sites == (
            "embedding",
            "block.0.attention",
            "block.0.mlp",
            "block.0",
            "final_norm",
            "head",
        )


@pytest.mark.parametrize("model", [llama, gpt2])
def test_a_model_may_end_a_text_by_several_tokens(model):
    """Llama 3 and Gemma 3 list them in config.json."""
    assert Lens(model(eos_token_id=[1, 2])).sites == Lens(model()).sites
