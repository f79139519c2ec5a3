"""Models that are odd and no fault: a result, or one sentence."""

import json

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import headscan
from headscan import BadInput
from headscan.model import Lens
from tests.tiny import TEXTS, save_tiny

READING = {"context": 16, "max_tokens": 256}


@pytest.fixture(scope="module")
def one_token():
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    config = GPT2Config(vocab_size=1, n_positions=64, n_embd=8, n_layer=2, n_head=2)
    torch.manual_seed(0)
    network = GPT2LMHeadModel(config).eval()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="a", eos_token="a")
    return Lens(network, fast, name="one")


def test_a_checkup_examines_a_vocabulary_of_one_token(one_token):
    result = headscan.checkup(one_token, ["a a a a a a a a"] * 60, **READING)
    assert result.models[0].vocabulary == 1


@pytest.mark.parametrize("verb", [headscan.flow, headscan.channel])
def test_no_output_tells_one_token_from_another(one_token, verb):
    with pytest.raises(BadInput, match=r"^'one' has a vocabulary of one token"):
        verb(one_token, "a a a")


def test_a_decoder_that_says_it_has_an_encoder_is_scanned(tmp_path):
    folder = save_tiny(tmp_path / "tiny")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"is_encoder_decoder": True}))
    result = headscan.scan(str(folder), TEXTS, **READING)
    assert result.site("encoder.block.1")["tokens"] == result.site("decoder.block.1")["tokens"]


def test_damaged_embeddings_are_named(tmp_path):
    lens = Lens.load(str(save_tiny(tmp_path / "tiny")))
    lens.input_embeddings.data[3] = torch.inf
    with pytest.raises(BadInput, match="hold values that are not finite"):
        headscan.privacy(lens, TEXTS, sites="block.0", windows=1, length=4, draws=10)
