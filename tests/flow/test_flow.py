"""What tokens know of each other, against brute force and against what masks allow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import headscan
from headscan.flow import (
    VARIANTS,
    codebook,
    distances,
    leak,
    noise_accuracy,
    quantised_accuracy,
    recovery,
    shannon_width,
    threshold,
    variant,
    width_sweep,
)
from headscan.model import Lens
from headscan.results import load
from tests.reference import flow as reference

IDS = [5, 17, 3, 42, 8]


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=32, initializer_range=0.2,
    )  # fmt: skip
    return Lens(LlamaForCausalLM(config).eval(), name="tiny llama")


@pytest.fixture(scope="module")
def gpt2():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    return Lens(GPT2LMHeadModel(config).eval(), name="tiny gpt2")


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_leak_goes_where_the_cut_lets_it(llama, name):
    found = leak(llama, variant(name, ["block.0", "block.1"]), [IDS], trials=2)
    assert found.shape == (2, 5, 5)
    upper, lower = np.triu_indices(5, 1), np.tril_indices(5, -1)
    own = np.diagonal(found, axis1=1, axis2=2)
    assert (own > 1e-3).all()
    assert (found[:, lower[0], lower[1]] > 1e-6).all() == (name == "no-mask")
    if name != "no-mask":
        assert (found[:, lower[0], lower[1]] == 0).all()
    assert (found[:, upper[0], upper[1]] > 0).all() == (name != "mlp")


def test_recovery_is_brute_force_at_every_site(llama):
    cut = variant("whole", ["block.0", "block.1"])
    found = recovery(llama, cut, [IDS], rows=7)
    assert found.exhaustive
    assert found.candidates == 50
    for site in (0, 1):
        one = variant("whole", [f"block.{site}"])
        for place, output in ((0, 0), (0, 4), (1, 3), (3, 1)):
            expected = reference.margin(lambda ids, one=one: one.run(llama, ids), IDS, place, output, 50)
            assert found.margin[site, place, output] == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert (found.recoverable[0] == np.triu(np.ones((5, 5)))).all()


def test_a_token_whose_embedding_is_anothers_cannot_be_told(gpt2):
    twin = gpt2.twin(1)
    with torch.no_grad():
        twin.model.transformer.wte.weight[IDS[2]] = twin.model.transformer.wte.weight[30]
    found = recovery(twin, variant("whole", ["block.0"]), [IDS])
    assert (found.recoverable[0][2] == 0).all()
    assert found.recoverable[0][1, 4] == 1


def test_the_noiseless_channel_is_exact_and_shannons_bound_is_kept():
    torch.manual_seed(0)
    book = torch.randn(256, 64)
    for row in noise_accuracy(book, noises=(1e-6,), widths=(2, 64)):
        assert row["accuracy"] == 1.0
    rows = {(r["noise"], r["width"]): r for r in noise_accuracy(book, noises=(0.5, 2.0), widths=(2, 64), trials=500)}
    assert rows[0.5, 64]["accuracy"] == 1.0
    assert rows[0.5, 2]["accuracy"] < 0.5
    assert rows[2.0, 64]["shannon"] == pytest.approx(8 / (0.5 * np.log2(1.25)))
    assert rows[2.0, 2]["accuracy"] < rows[2.0, 64]["accuracy"] < 1
    assert shannon_width(256, 1.0) == pytest.approx(16)


def test_rounding_below_log2_v_bits_cannot_be_exact():
    torch.manual_seed(0)
    book = torch.randn(256, 16)
    for row in quantised_accuracy(book, bits=(1, 8), widths=(4, 16)):
        if row["sent"] < row["needed"]:
            assert row["accuracy"] <= 2.0 ** (row["sent"] - row["needed"])
        if row["bits"] == 8:
            assert row["accuracy"] > 0.95


def test_distances_see_duplicates_and_the_round_cloud():
    torch.manual_seed(0)
    book = torch.randn(300, 64)
    found = distances(book)
    assert 0.5 < found["median"] / found["expected"] < 1.1
    assert found["duplicates"] == 0
    book[1] = book[0]
    assert distances(book)["duplicates"] == 2


def test_a_codebook_row_is_the_models_own_output(llama):
    book = codebook(llama, "block.1", IDS[:3], rows=16)
    expected = llama.run([[*IDS[:3], 21]], sites="block.1")["block.1"][0, -1]
    assert torch.allclose(book[21], expected, atol=1e-5)


def test_the_threshold_of_features_depends_on_the_search_not_only_on_the_model(llama):
    exact = threshold(llama, "block.0", [IDS], "exact")
    adam = threshold(llama, "block.0", [IDS], "adam")
    assert exact.width == 1
    assert adam.width is None or adam.width > exact.width
    rows = width_sweep(llama, "block.0", [IDS], [1, 16], searches=("exact",))
    assert [row["accuracy"] for row in rows] == [1.0] * 4
    assert {row["subset"] for row in rows} == {"contiguous", "random"}


def test_the_package_is_the_verb_and_the_result_loads_again(llama, tmp_path):
    found = headscan.flow([llama, llama.twin(0)], [IDS, IDS[::-1]], cuts="whole,attention", channel=True, out=tmp_path)
    again = load(tmp_path)
    assert [part["cut"] for part in again.parts] == ["whole", "attention"] * 2
    assert again.arrays["leak"].shape == (2, 5, 5)
    assert (again.arrays["recoverable"] == again.arrays["recoverable/0"]).all()
    assert again.document["site"] == "block.1"
    assert again.parts[0]["sites"][0]["leak_of_later"] == 0
    assert len(found.frame()) == 8
    assert found.plot() is not None
    assert (tmp_path / "report.html").read_text().count("<script") >= 3


@pytest.mark.parametrize(
    ("prompt", "options", "sentence"),
    [
        ([], {}, "empty"),
        ([4], {}, "one token"),
        ([4, 50], {}, "not in the vocabulary"),
        ([4] * 33, {}, "takes at most 32"),
        (IDS, {"cuts": "magic"}, "no cut 'magic'"),
        (IDS, {"at": "block.9"}, "block.9"),
    ],
)
def test_a_fault_of_the_input_is_one_sentence(llama, prompt, options, sentence):
    with pytest.raises(headscan.BadInput, match=sentence):
        headscan.flow(llama, prompt, **options)
