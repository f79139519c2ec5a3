"""Models in every form that a verb may be given."""

import pytest
import torch

from headscan.model import ByteTokenizer, Lens
from headscan.model.identity import tokenizer_identity
from headscan.model.lens import open_model, open_models
from headscan.model.load import Preparation
from headscan.model.settings import Loading
from headscan.run import BadInput
from tests.model.tiny import gpt2, minilm

CPU = Loading(device="cpu")


def test_names_folders_lenses_and_live_models_are_taken_alike(tmp_path):
    model = gpt2()
    model.save_pretrained(tmp_path / "saved")
    lens = Lens(model, name="mine")
    found = list(
        open_models([str(tmp_path / "saved"), tmp_path / "saved", lens, model, "gpt-vanilla"], CPU)
    )
    assert [one.name for one in found] == [
        "saved",
        "saved",
        "mine",
        "GPT2LMHeadModel",
        "gpt-vanilla",
    ]
    assert found[2] is lens
    assert found[3].model is model
    assert torch.equal(found[0].input_embeddings, model.transformer.wte.weight)
    assert isinstance(open_model(model, CPU.but(tokenizer="bytes")).tokenizer, ByteTokenizer)


def test_a_sentence_transformer_is_a_model():
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="a SentenceTransformer is NOT tried"
    )
    made = sentence_transformers.SentenceTransformer(str(minilm()), device="cpu")
    lens = open_model(made, CPU)
    assert type(lens.model).__name__ == "BertModel"
    assert lens.require_tokenizer().encode("a text")


def test_a_wrong_second_model_costs_nothing(monkeypatch):
    monkeypatch.setattr(Preparation, "load", lambda self: pytest.fail("the first model was loaded"))
    with pytest.raises(BadInput, match="no folder"):
        open_models(["gpt-vanilla", "./nowhere"], CPU)
    with pytest.raises(BadInput, match="at least one"):
        open_models([], CPU)
    with pytest.raises(BadInput, match="not a dict"):
        open_models([{}], CPU)  # type: ignore[list-item]


def test_weights_and_tokenizers_are_known_by_their_content(tmp_path):
    one = Lens(gpt2(0))
    two = Lens(gpt2(1))
    assert one.identity() == Lens(gpt2(0)).identity() != two.identity()
    gpt2(0).save_pretrained(tmp_path / "a")
    gpt2(1).save_pretrained(tmp_path / "b")
    saved = [Lens.load(tmp_path / name, device="cpu").identity() for name in ("a", "b", "a")]
    assert saved[0] == saved[2] != saved[1]
    assert tokenizer_identity(Lens.load("gpt-vanilla").tokenizer) != tokenizer_identity(
        ByteTokenizer()
    )
