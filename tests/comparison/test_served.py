"""What a comparison is for: a model and its own self in fewer bits, checkpoints, before and after
training, two columns.
"""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import headscan
from tests.hub import cached

TEXT = "The quick brown fox jumps over the lazy dog, and then it sleeps. " * 12
OPTIONS = {
    "tokenizer": "bytes",
    "context": 16,
    "draws": 19,
    "measures": "cka",
    "sites": "embedding,block.*",
}


def test_a_model_is_held_against_itself_in_8_and_in_4_bits(tmp_path):
    pytest.importorskip(
        "bitsandbytes", reason="bitsandbytes is not installed: --against is NOT tested"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "small")
    cosines = {}
    for bits in ("8bit", "4bit"):
        result = headscan.compare(str(tmp_path / "small"), TEXT, against=bits, **OPTIONS)
        cell = result.cell("cka", "block.1")
        assert (cell.model_a, cell.model_b) == ("small", f"small ({bits})")
        # embeddings are not rounded
        assert result.cell("cka", "embedding").value == pytest.approx(1, abs=1e-4)
        cosines[bits] = cell.value
    assert 0.8 < cosines["4bit"] < cosines["8bit"] - 1e-4 < 1
    with pytest.raises(headscan.BadInput, match="--dtype 8bit rounds all"):
        headscan.compare(str(tmp_path / "small"), TEXT, against="8bit", dtype="8bit", **OPTIONS)


def test_before_and_after_training_are_two_folders_and_what_moved_is_seen(tmp_path):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=32, n_embd=16, n_layer=2, n_head=2)
    )
    model.save_pretrained(tmp_path / "before")
    ids = torch.tensor(list(TEXT.encode())).unfold(0, 16, 16)
    optimiser = torch.optim.Adam(model.transformer.h[1].parameters(), lr=0.03)
    for _ in range(10):
        model(ids, labels=ids).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(tmp_path / "after")
    models = [str(tmp_path / "before"), str(tmp_path / "after")]
    result = headscan.compare(models, TEXT, **OPTIONS)
    assert [model.name for model in result.models] == ["before", "after"]
    for untouched in ("embedding", "block.0"):
        assert result.cell("cka", untouched).value == pytest.approx(1, abs=1e-9)
    assert result.cell("cka", "block.1").value < 0.99


def test_revisions_of_one_id_are_checkpoints(tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=256, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    )
    cached(model, tmp_path, "someone/tiny", "step1", "step2", monkeypatch=monkeypatch)
    result = headscan.compare(["someone/tiny@step1", "someone/tiny@step2"], TEXT, **OPTIONS)
    assert [model.name for model in result.models] == ["someone/tiny@step1", "someone/tiny@step2"]
    # both hold the same weights
    assert result.cell("cka", "block.0").value == pytest.approx(1, abs=1e-9)
    with pytest.raises(headscan.BadInput, match="one model and --against"):
        headscan.compare("someone/tiny@step1", TEXT, **OPTIONS)


def test_two_versions_of_a_column_of_embeddings(tmp_path):
    rng = np.random.default_rng(0)
    earlier = rng.standard_normal((96, 12)).astype(np.float32)
    turn = np.linalg.qr(rng.standard_normal((12, 12)))[0].astype(np.float32)
    np.save(tmp_path / "before.npy", earlier)
    np.save(tmp_path / "after.npy", earlier @ turn * 3 + 1)
    files = [str(tmp_path / "before.npy"), str(tmp_path / "after.npy")]
    result = headscan.compare(files, draws=19, sample=64, measures="cka,procrustes,mutual_knn")
    assert [model.name for model in result.models] == ["before.npy", "after.npy"]
    for name in ("cka", "procrustes"):  # turned, scaled and shifted: the same
        assert result.cell(name, "vectors").value == pytest.approx(1, abs=1e-5)
    # of angles about the origin: a shift is seen
    assert result.cell("mutual_knn", "vectors").value < 1
