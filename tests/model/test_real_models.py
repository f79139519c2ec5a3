"""Trained models: the Lens against the model's own hidden states, and the models make sense of
text.
"""

import math

import pytest
import torch

from headscan.model import Lens
from tests.model.tiny import coverage_script, minilm

TEXT = (
    "Once upon a time there was a little girl named Lily. She liked to play with her toys in the "
    "garden."
)


def loss_in_bits(logits, ids):
    nats = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    return nats / math.log(2)


@pytest.mark.parametrize(
    ("name", "tokenizer", "bits"),
    [
        ("stories260K", None, 4.5),
        ("babyllama-tok105", None, 2.0),
        ("tiny-rwkv-4v0-660K", "bytes", 4.0),
    ],
)
def test_sites_and_loss_of_a_trained_model(assets, name, tokenizer, bits):
    lens = Lens.load(str(assets / "models" / name), tokenizer=tokenizer, device="cpu")
    assert coverage_script().compare(lens.model).worst < 1e-4
    assert {f"block.{i}.mlp" for i in range(lens.depth)} <= set(lens.sites)
    ids = torch.tensor([lens.require_tokenizer().encode(TEXT, add_special_tokens=False)])
    logits = lens.run(ids, sites="head")["head"]
    loss = loss_in_bits(logits, ids)
    assert loss < bits
    twin = lens.random_init(0).run(ids, sites="head")["head"]
    assert loss_in_bits(twin, ids) > loss + 1
    assert lens.provenance().sha256["model.safetensors"]


def test_the_model_without_attention_has_no_such_site(assets):
    lens = Lens.load(str(assets / "models" / "tiny-rwkv-4v0-660K"), device="cpu")
    assert not [site for site in lens.sites if "attention" in site]
    assert lens.match("block.*.mixer") == tuple(f"block.{i}.mixer" for i in range(4))
    assert lens.tokenizer is None


def test_a_real_encoder():
    lens = Lens.load(str(minilm()), device="cpu")
    assert (lens.depth, lens.width("block.0"), lens.context_length) == (6, 384, 512)
    assert "final_norm" not in lens.sites
    assert "head" not in lens.sites
    encoded = lens.tokenizer([TEXT, "A cat."], padding=True, return_tensors="pt")
    with torch.no_grad():
        states = lens.model(**encoded, output_hidden_states=True).hidden_states
    mine = lens.run(
        encoded["input_ids"], attention_mask=encoded["attention_mask"], sites="embedding, block.*"
    )
    for site, state in zip(mine, states, strict=True):
        assert torch.equal(mine[site], state)
