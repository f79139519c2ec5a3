"""The verb `weights`: every matrix of files, models, adapters and differences, and who looks untrained."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

import headscan
from headscan import BadInput, weights
from headscan.cli import run as command
from headscan.weights import open_weights
from tests.reference import spectra as reference


def fresh(seed=0, **options):
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=200, n_positions=32, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, **options)
    return GPT2LMHeadModel(config)


def row_of(result, end):
    return next(row for row in result.matrices if row.name.endswith(end))


def test_rows_are_the_singular_values_of_the_files(tmp_path):
    model = fresh()
    model.save_pretrained(tmp_path / "model")
    result = weights.run(tmp_path / "model", out=tmp_path / "out")
    live = weights.run(model)
    assert {row.name for row in result.matrices} == {row.name for row in live.matrices}
    assert len(result.matrices) == 2 + 8  # the tied head is the table
    for row in result.matrices:
        matrix = dict(model.state_dict())[row.name].double().numpy()
        values = reference.energies(matrix)
        assert row.shape == matrix.shape
        assert row.stable_rank == pytest.approx(values.sum() / values.max())
        assert row.spectral_norm == pytest.approx(values.max() ** 0.5)
        wanted = reference.power_law(values)
        assert (row.tail_exponent, row.tail_count) == (pytest.approx(wanted[0]), wanted[2])
        assert row.tail_exponent_interval[0] <= row.tail_exponent <= max(row.tail_exponent_interval[1], row.tail_exponent)
        np.testing.assert_allclose(result.arrays[row.name] ** 2, values[::-1], rtol=1e-4, atol=1e-6 * values[-1])
    again = headscan.load(tmp_path / "out")
    assert again.matrices == result.matrices
    assert "By kind" in again.page()
    assert len(again.frame()) == 10


def test_who_looks_untrained():
    assert weights.run(fresh()).findings[0].code == "HS601"
    trained = weights.run("gpt-vanilla")
    assert trained.findings == []
    assert not any(row.random for row in trained.matrices)
    model = AutoModelForCausalLM.from_pretrained(headscan.model.source.specimen_path("gpt-vanilla"))
    torch.nn.init.normal_(model.transformer.h[2].mlp.c_fc.weight, std=0.05)
    torch.nn.init.orthogonal_(model.transformer.h[3].mlp.c_fc.weight)
    changed = [row.name for row in weights.run(model).matrices if row.random]
    assert changed == ["transformer.h.2.mlp.c_fc.weight", "transformer.h.3.mlp.c_fc.weight"]


def test_differences_have_the_spectrum_of_what_was_added(tmp_path):
    base, tuned = fresh(), fresh()
    with torch.no_grad():
        name = "transformer.h.1.mlp.c_fc.weight"
        left, right = torch.randn(48, 2), torch.randn(2, 192)
        tuned.get_parameter(name).add_(0.01 * left @ right)
    result = weights.run(tuned, base=base)
    assert [row.name for row in result.matrices] == [name]
    assert len(result.zero) == 9
    row = result.matrices[0]
    assert row.spikes == 2
    assert row.stable_rank <= 2 + 1e-6
    assert result.findings == []
    assert len(result.models) == 2
    wider = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_positions=8, n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(BadInput, match="that the base has in the same shape"):
        weights.run(base, base=wider)


def test_stacks_kernels_and_packed_numbers(tmp_path):
    tensors = {
        "experts": torch.randn(3, 20, 30), "kernel": torch.randn(24, 2, 3, 4), "packed": torch.ones(32, 32, dtype=torch.int32),
        "small": torch.randn(8, 99), "zeros": torch.zeros(20, 20),
    }  # fmt: skip
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "unheard-of"}))
    result = weights.run(tmp_path)
    assert [row.name for row in result.matrices] == ["experts[0]", "experts[1]", "experts[2]"]
    assert row_of(result, "experts[2]").spectral_norm == pytest.approx(float(torch.linalg.matrix_norm(tensors["experts"][2], 2)))
    assert result.zero == ["zeros"]
    assert any("packed is left out" in note for note in result.protocol.notes)
    save_file({"bad": torch.full((20, 20), torch.nan)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="The matrix bad holds numbers that are not finite"):
        weights.run(tmp_path)
    save_file({"bias": torch.ones(20)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="no matrix with a short side of 16"):
        weights.run(tmp_path)


def test_a_run_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    whole = weights.run("gpt-vanilla")
    seen = []

    def stop(stage, done, total, unit):
        seen.append((done, total, unit))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weights.run("gpt-vanilla", out=tmp_path, progress=stop)
    assert seen == [(16, 23, "matrices")]
    read = open_weights("gpt-vanilla").matrices
    assert len(read) == 23
    resumed = weights.run("gpt-vanilla", out=tmp_path, resume=True)
    assert resumed.matrices == whole.matrices
    assert torch.get_num_threads() >= 1


def test_the_command_line(tmp_path, capsys):
    assert command(["weights", "gpt-vanilla", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "transformer.h" in printed
    assert "spikes" in printed
