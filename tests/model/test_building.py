"""Configurations that describe no model, or none that fits: refused in a sentence, before anything
is built.
"""

import json
import time

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from headscan.model import Lens, load
from headscan.model.building import ModelSize, estimate_size
from headscan.model.load import prepare
from headscan.model.settings import Building
from headscan.run import BadInput
from tests.model.tiny import coverage_script, gpt2, llama

NAMES = {
    "gpt2": {
        "width": "n_embd",
        "heads": "n_head",
        "act": "activation_function",
        "depth": "n_layer",
    },
    "llama": {
        "width": "hidden_size",
        "heads": "num_attention_heads",
        "act": "hidden_act",
        "depth": "num_hidden_layers",
    },
}


@pytest.fixture(params=["gpt2", "llama"])
def change(request, tmp_path, monkeypatch):
    """A saved model whose configuration can be changed, and that must not be built: its weights are
    never read.
    """
    {"gpt2": gpt2, "llama": llama}[request.param]().save_pretrained(tmp_path)

    def built(*_):
        raise AssertionError("the weights were read")

    monkeypatch.setattr(load.Preparation, "load", built)

    def change(**more):
        config = json.loads((tmp_path / "config.json").read_text())
        changed = {NAMES[request.param].get(name, name): value for name, value in more.items()}
        (tmp_path / "config.json").write_text(json.dumps(config | changed))
        return str(tmp_path)

    return change


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"width": "abc"}, "expected int, got str"),
        ({"width": "16"}, "expected int, got str"),
        ({"width": None}, "expected int, got NoneType"),
        ({"width": 1.5}, "expected int, got float"),
        ({"width": -3}, "at fault"),
        ({"width": 0}, "at fault"),
        ({"heads": None}, "expected int, got NoneType"),
        ({"heads": 0}, "divided is 0"),
        ({"heads": 7}, "divisible|multiple"),
        ({"heads": -2}, "must be at least 0"),
        ({"act": "gelo"}, "it names 'gelo', which transformers does not know"),
        ({"act": None}, "expected str, got NoneType"),
        ({"depth": "3"}, "expected int, got str"),
        ({"depth": -2}, "must be at least 0"),
        ({"vocab_size": 0}, "vocab_size is 0 and must be at least 1"),
        ({"vocab_size": None}, "expected int, got NoneType"),
        (
            {"depth": 10**7},
            r"10,000,000 blocks, says its configuration\), but the device 'cpu' has",
        ),
        ({"vocab_size": 10**13}, "GB of memory"),
        ({"pad_token_id": 10**30}, r"pad_token_id is 1e\+30, a whole number that no tensor holds"),
    ],
    ids=str,
)
def test_a_configuration_at_fault_is_one_sentence(change, wrong, words):
    folder = change(**wrong)
    begin = time.perf_counter()
    for options in ({}, {"random_init": 0}):
        with pytest.raises(BadInput, match=words) as caught:
            Lens.load(folder, device="cpu", **options)
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith(".")
    assert time.perf_counter() - begin < 10


def test_more_blocks_than_the_files_can_hold_are_refused_before_they_are_built(change):
    with pytest.raises(
        BadInput, match=r"says 9,999 blocks, more than its files of [0-9,]+ bytes can hold"
    ):
        Lens.load(change(depth=9999), device="cpu")


def test_the_size_of_a_deep_model_is_counted_from_two_blocks():
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=2,
        vocab_size=61,
        num_hidden_layers=300,
    )
    model = AutoModelForCausalLM.from_config(config)
    entries = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    assert estimate_size(AutoModelForCausalLM, config, "deep") == ModelSize(entries, 300)
    # Qwen lists the kind of attention of every block.
    config = Qwen2Config(
        hidden_size=16,
        intermediate_size=24,
        num_attention_heads=2,
        vocab_size=61,
        num_hidden_layers=400,
    )
    assert estimate_size(AutoModelForCausalLM, config, "listed").blocks == 400


@pytest.mark.parametrize("row", coverage_script().FAMILIES, ids=lambda row: row.name)
def test_the_size_of_every_family_is_right(row, tmp_path):
    model = row.build()
    model.save_pretrained(tmp_path)
    found = prepare(tmp_path, Building(device="cpu")).size.entries
    held = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    assert found == held


def test_sizes_are_found_without_memory_and_without_touching_the_random_state():
    state = torch.random.get_rng_state()
    config = LlamaConfig(
        hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64
    )
    found = estimate_size(AutoModelForCausalLM, config, "llama-65b")
    assert 60e9 < found.entries < 90e9
    assert found.bytes(2.0) == pytest.approx(2 * found.entries, rel=1e-3)
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_model_larger_than_memory_is_refused(tmp_path, monkeypatch):
    gpt2().save_pretrained(tmp_path)
    monkeypatch.setattr(load, "memory_of", lambda device: 1e5)
    with pytest.raises(BadInput, match=r"needs 0.\d+ GB \(\d+,\d+ weights in 4 blocks"):
        Lens.load(str(tmp_path), device="cpu")


def test_a_missing_tokenizer_is_said_before_the_weights_are_read(tmp_path, monkeypatch):
    gpt2().save_pretrained(tmp_path / "model")
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(load.Preparation, "load", lambda self: pytest.fail("the weights were read"))
    with pytest.raises(BadInput, match="has no tokenizer"):
        Lens.load(tmp_path / "model", tokenizer=tmp_path / "empty", device="cpu")


def test_what_was_saved_in_few_bits_is_not_taken_for_whole(tmp_path, monkeypatch):
    model = llama()
    model.save_pretrained(tmp_path)
    ready = prepare(tmp_path, Building(device="cpu"))
    monkeypatch.setattr(load, "memory_of", lambda device: ready.size.bytes(1.0))
    with pytest.raises(BadInput, match="GB of memory"):
        ready.check_memory()
    ready.config.quantization_config = {"quant_method": "bitsandbytes"}
    ready.check_memory()
