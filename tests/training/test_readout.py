"""Head recovery: the bias folds in exactly, and what it gives is a language model."""

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, LlamaConfig

from headscan import BadInput
from headscan.model.mixer import MixerConfig
from headscan.training import fold_bias, log_unigram, recover_head

SIZE = 23
CONFIGS = {
    "gpt2": GPT2Config(
        vocab_size=SIZE,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
    ),
    "neox": GPTNeoXConfig(
        vocab_size=SIZE,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    ),
    "mixer": MixerConfig(
        vocab_size=SIZE,
        hidden_size=16,
        num_hidden_layers=2,
        max_position_embeddings=32,
        final_norm=True,
        embedding_std=0.1,
    ),
    "llama": LlamaConfig(
        vocab_size=SIZE,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
    ),
}


@pytest.fixture(params=CONFIGS)
def body(request):
    torch.manual_seed(0)
    model = AutoModel.from_config(CONFIGS[request.param]).double().eval()
    with torch.no_grad():  # a trained norm has gains and shifts of its own
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn_like(parameter)
            assert name
    return model


COUNTS = torch.randint(0, 1000, (SIZE,), generator=torch.Generator().manual_seed(1))
IDS = torch.randint(SIZE, (3, 9), generator=torch.Generator().manual_seed(2))


def _states(body):
    with torch.no_grad():
        return body(IDS).last_hidden_state, body.get_input_embeddings().weight


def test_tied_is_the_input_rows(body):
    hidden, table = _states(body)
    torch.testing.assert_close(recover_head(body, "tied")(IDS).logits, hidden @ table.T)


def test_bias_is_added_exactly_and_saved_where_there_is_a_layer_norm(body, tmp_path):
    hidden, table = _states(body)
    recovered = recover_head(body, "bias", counts=COUNTS)
    want = hidden @ table.T + log_unigram(COUNTS, 0.5)
    torch.testing.assert_close(recovered(IDS).logits, want, rtol=0, atol=1e-9)
    if recovered.get_output_embeddings().bias is None:
        recovered.save_pretrained(tmp_path)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
        torch.testing.assert_close(loaded(IDS).logits, want, rtol=0, atol=1e-9)
    else:
        assert recovered.config.model_type == "llama"


def test_the_fold_survives_float32(body):
    hidden, table = _states(body)
    want = hidden @ table.T + log_unigram(COUNTS, 0.5)
    recovered = recover_head(body.float(), "bias", counts=COUNTS)
    torch.testing.assert_close(recovered(IDS).logits.double(), want, rtol=0, atol=1e-4)


def test_a_probe_freezes_the_body_and_finetuning_does_not(body):
    weights_before = {name: value.clone() for name, value in body.state_dict().items()}
    probe = recover_head(body, "probe", counts=COUNTS)
    recovered = recover_head(body, "finetune")
    free = {name for name, p in probe.named_parameters() if p.requires_grad}
    # what older transformers call that of GPT-NeoX
    head = "embed_out" if hasattr(probe, "embed_out") else "lm_head"
    assert {name.rpartition(".")[0] for name in free} == {head}
    assert all(p.requires_grad for p in recovered.parameters())
    hidden, table = _states(body)
    torch.testing.assert_close(recovered(IDS).logits, hidden @ table.T)
    for name, value in body.state_dict().items():
        assert torch.equal(value, weights_before[name])


def test_the_temperature_of_training_is_read_out(body):
    hidden, table = _states(body)
    scores = hidden @ table.T / 4
    torch.testing.assert_close(
        recover_head(body, "tied", temperature=4)(IDS).logits, scores, rtol=0, atol=1e-9
    )
    recovered = recover_head(body, "bias", counts=COUNTS, temperature=4)
    torch.testing.assert_close(
        recovered(IDS).logits, scores + log_unigram(COUNTS, 0.5), rtol=0, atol=1e-9
    )
    with pytest.raises(BadInput, match="temperature"):
        recover_head(body, "tied", temperature=0)


def test_a_head_that_has_a_bias_gets_the_sum():
    model = AutoModelForCausalLM.from_config(CONFIGS["gpt2"]).eval()
    model.lm_head = torch.nn.Linear(16, SIZE)
    logits_before = model(IDS).logits
    bias = torch.randn(SIZE)
    assert not fold_bias(model, bias)
    torch.testing.assert_close(model(IDS).logits, logits_before + bias, rtol=0, atol=1e-5)


def test_bad_input(body):
    with pytest.raises(BadInput, match="no head recovery"):
        recover_head(body, "magic")
    with pytest.raises(BadInput, match="counts"):
        recover_head(body, "bias")
    with pytest.raises(BadInput, match="5 tokens"):
        recover_head(body, "bias", counts=torch.ones(5))
