"""A head for a body that is not copied: the same model as around a copy."""

import pytest
import torch
from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaModel

from headscan.training import recover_head

CONFIGS = [
    (GPT2Model, GPT2Config(vocab_size=40, n_positions=16, n_embd=8, n_layer=2, n_head=2)),
    (
        LlamaModel,
        LlamaConfig(
            vocab_size=40,
            hidden_size=8,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
        ),
    ),
]


@pytest.mark.parametrize(("family", "config"), CONFIGS)
@pytest.mark.parametrize("way", ["bias", "tied"])
def test_a_head_around_the_body_itself_is_that_around_a_copy(family, config, way):
    torch.manual_seed(0)
    body = family(config).eval()
    counts = torch.arange(40)
    ids = torch.randint(0, 40, (2, 9))
    around = [recover_head(body, way, counts=counts, copied=copied) for copied in (True, False)]
    with torch.no_grad():
        expected, logits = (recovery(ids).logits for recovery in around)
    assert torch.equal(expected, logits)
    shared = around[1].get_input_embeddings().weight is body.get_input_embeddings().weight
    assert shared == (way == "bias")  # tied rows are scaled, or shared with the head: a copy
