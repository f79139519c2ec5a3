"""The verb `weights`: every matrix of files, models, adapters and differences, and who looks
untrained.
"""

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
from tests.command_line import headscan as line
from tests.reference import spectra as reference


def fresh(seed=0, **options):
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=200,
        n_positions=32,
        n_embd=48,
        n_layer=2,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        **options,
    )
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
        expected = reference.power_law(values)
        assert (row.tail_exponent, row.tail_count) == (pytest.approx(expected[0]), expected[2])
        assert (
            row.tail_exponent_interval[0]
            <= row.tail_exponent
            <= max(row.tail_exponent_interval[1], row.tail_exponent)
        )
        np.testing.assert_allclose(
            result.arrays[row.name] ** 2, values[::-1], rtol=1e-4, atol=1e-6 * values[-1]
        )
    again = headscan.load(tmp_path / "out")
    assert again.matrices == result.matrices
    assert "By kind" in again.page()
    assert len(again.frame()) == 10


def test_who_looks_untrained():
    assert weights.run(fresh()).findings[0].code == "HS601"
    trained = weights.run("gpt-vanilla")
    assert trained.findings == []
    assert not any(row.random for row in trained.matrices)
    model = AutoModelForCausalLM.from_pretrained(headscan.model.specimen_path("gpt-vanilla"))
    torch.nn.init.normal_(model.transformer.h[2].mlp.c_fc.weight, std=0.05)
    torch.nn.init.orthogonal_(model.transformer.h[3].mlp.c_fc.weight)
    changed = [row.name for row in weights.run(model).matrices if row.random]
    assert changed == ["transformer.h.2.mlp.c_fc.weight", "transformer.h.3.mlp.c_fc.weight"]


def test_differences_have_the_spectrum_of_what_was_added():
    base = fresh()
    tuned = fresh()
    with torch.no_grad():
        name = "transformer.h.1.mlp.c_fc.weight"
        left = torch.randn(48, 2)
        right = torch.randn(2, 192)
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


def lora(folder, tensors, **config):
    folder.mkdir(exist_ok=True)
    save_file(
        {key: value.contiguous() for key, value in tensors.items()},
        folder / "adapter_model.safetensors",
    )
    settings = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "base_model_name_or_path": "base",
    } | config
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def factors(name, rows, columns, rank=4, kind="lora", end=".weight"):
    key = f"base_model.model.{name}.{kind}"
    return {f"{key}_A{end}": torch.randn(rank, columns), f"{key}_B{end}": torch.randn(rows, rank)}


@pytest.mark.parametrize(
    ("config", "rank", "scale"),
    [
        ({}, 4, 2),
        ({"use_rslora": True}, 4, 4),
        ({"lora_alpha": 3}, 20, 3 / 20),
        ({"alpha_pattern": {"q_proj": 6}}, 4, 6 / 4),
        ({"alpha_pattern": {"proj": 6, "layers.1.*": 6}}, 4, 2),
    ],
)
def test_an_adapter_is_what_it_adds_to_each_matrix(config, rank, scale, tmp_path):
    torch.manual_seed(3)
    name = "layers.0.q_proj"
    tensors = factors(name, 40, 24, rank) | factors("embed", 32, 90, kind="lora_embedding", end="")
    tensors |= {
        "base_model.model.lm_head.weight": torch.randn(20, 20),
        "base_model.model.conv.lora_A.weight": torch.randn(4, 3, 1),
    }
    result = weights.run(lora(tmp_path / "a", tensors, **config), out=tmp_path / "out")
    A, B = (tensors[f"base_model.model.{name}.lora_{part}.weight"].double() for part in "AB")
    values = reference.energies((scale * B @ A).numpy())
    row = row_of(result, "q_proj.weight")
    assert (row.name, row.shape) == (f"{name}.weight", (40, 24))
    np.testing.assert_allclose(result.arrays[row.name] ** 2, values[::-1], rtol=1e-5, atol=1e-8)
    assert row.stable_rank == pytest.approx(values.sum() / values.max())
    assert row.effective_rank <= rank
    assert row_of(result, "embed.weight").shape == (90, 32)
    assert result.findings == []
    assert result.protocol.notes[:2] == [
        f"Each matrix is what the adapter adds to one of base; none has a rank above {rank}.",
        "2 tensors of the adapter are no factors of a matrix, and are left out.",
    ]
    assert result.models[0].sha256.keys() == {"adapter_config.json", "adapter_model.safetensors"}
    turned = weights.run(lora(tmp_path / "a", factors(name, 40, 24), fan_in_fan_out=True))
    assert turned.matrices[0].shape == (24, 40)


def test_a_merged_adapter_has_the_spectra_of_the_adapter(tmp_path):
    base = fresh()
    tuned = fresh()
    name = "transformer.h.1.mlp.c_fc"  # a Conv1D: its weight is stored turned
    tensors = factors(name, 192, 48)
    with torch.no_grad():
        A, B = (tensors[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
        tuned.get_parameter(f"{name}.weight").add_((2 * B @ A).T)
    [apart] = weights.run(tuned, base=base).matrices
    [row] = weights.run(lora(tmp_path, tensors, fan_in_fan_out=True)).matrices
    assert (row.name, row.shape, row.spikes) == (apart.name, apart.shape, 4)
    assert row.stable_rank == pytest.approx(apart.stable_rank, rel=1e-5)
    assert row.spectral_norm == pytest.approx(apart.spectral_norm, rel=1e-5)


def test_only_weights_reads_an_adapter(tmp_path):
    folder = str(lora(tmp_path / "adapter", factors("q_proj", 40, 24)))
    text = ["--text", "stories", "--max-tokens", "256"]
    for verb in (
        ["scan", folder],
        ["scan", folder, *text],
        ["compare", folder, "gpt-vanilla", *text],
        ["checkup", folder, *text],
    ):
        ended = line(*verb, "--out", str(tmp_path / "out"))
        assert (ended.status, f"headscan weights {folder} reads what it adds" in ended.output) == (
            2,
            True,
        ), ended.output


def test_adapters_that_are_refused(tmp_path):
    good = factors("up", 32, 32)
    fresh_one = weights.run(
        lora(tmp_path, good | {"base_model.model.up.lora_B.weight": torch.zeros(32, 4)})
    )
    assert (fresh_one.matrices, fresh_one.zero) == ([], ["up.weight"])
    assert "Matrices that are zero: 1." in fresh_one.page()
    no_alpha = "no lora_alpha that is a finite number"
    for message, config in (
        ("of the type IA3; headscan reads LORA", {"peft_type": "IA3"}),
        ("a DoRA adapter", {"use_dora": True}),
        ("began with pissa_niter_4", {"init_lora_weights": "pissa_niter_4"}),
        ("stacked", {"target_parameters": ["experts"]}),
        (no_alpha, {"lora_alpha": "eight"}),
        (no_alpha, {"lora_alpha": None}),
        (no_alpha, {"alpha_pattern": {"(": 1}}),
        (no_alpha, {"alpha_pattern": [1]}),
        (no_alpha, {"lora_alpha": float("inf")}),
    ):
        with pytest.raises(BadInput, match=message):
            weights.run(lora(tmp_path, good, **config))
    for message, tensors in (
        (
            "one of the two factors of up only",
            {"base_model.model.up.lora_A.weight": torch.ones(4, 32)},
        ),
        ("ranks 4 and 5", good | {"base_model.model.up.lora_B.weight": torch.ones(32, 5)}),
        ("adapts no matrix", {"bias": torch.ones(9)}),
        ("adapts no matrix", factors("up", 8, 32)),
        (
            "up.weight holds numbers that are not",
            good | {"base_model.model.up.lora_B.weight": torch.full((32, 4), torch.nan)},
        ),
    ):
        with pytest.raises(BadInput, match=message):
            weights.run(lora(tmp_path, tensors))
    folder = lora(tmp_path, good)
    for pair in ((folder, "gpt-vanilla"), ("gpt-vanilla", folder), (folder, folder)):
        with pytest.raises(
            BadInput, match="is an adapter, which is a difference from its base already"
        ):
            weights.run(pair[0], base=pair[1])
    for message, text in (("not valid JSON", "{"), ("not a JSON object", "[]")):
        (folder / "adapter_config.json").write_text(text)
        with pytest.raises(BadInput, match=message):
            weights.run(folder)
    lora(folder, good)
    content = (folder / "adapter_model.safetensors").read_bytes()
    (folder / "adapter_model.safetensors").write_bytes(content[:-5])
    with pytest.raises(BadInput, match="is truncated"):
        weights.run(folder)
    (folder / "adapter_model.safetensors").write_bytes(content.replace(b"dtype", b"Dtype", 1))
    with pytest.raises(BadInput, match="is damaged: "):
        weights.run(folder)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(BadInput, match=r"weights as adapter_model\.bin only"):
        weights.run(folder)
    (folder / "adapter_model.bin").unlink()
    with pytest.raises(BadInput, match=r"has no weights: there is no adapter_model\.safetensors"):
        weights.run(folder)


def test_stacks_kernels_and_packed_numbers(tmp_path):
    tensors = {
        "experts": torch.randn(3, 20, 30),
        "kernel": torch.randn(24, 2, 3, 4),
        "packed": torch.ones(32, 32, dtype=torch.int32),
        "small": torch.randn(8, 99),
        "zeros": torch.zeros(20, 20),
        "mixing": torch.randn(20, 30, 1),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "unheard-of"}))
    result = weights.run(tmp_path)
    assert [row.name for row in result.matrices] == [
        "experts[0]",
        "experts[1]",
        "experts[2]",
        "mixing",
    ]
    assert row_of(result, "mixing").spectral_norm == pytest.approx(
        float(torch.linalg.matrix_norm(tensors["mixing"][..., 0], 2))
    )
    assert row_of(result, "experts[2]").spectral_norm == pytest.approx(
        float(torch.linalg.matrix_norm(tensors["experts"][2], 2))
    )
    assert result.zero == ["zeros"]
    assert any("packed is left out" in note for note in result.protocol.notes)
    save_file({"bad": torch.full((20, 20), torch.nan)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="The matrix bad holds numbers that are not finite"):
        weights.run(tmp_path)
    save_file({"bias": torch.ones(20)}, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match="no matrix with a short side of 16"):
        weights.run(tmp_path)


def test_a_run_goes_on_where_it_was_stopped(tmp_path):
    undisturbed = weights.run("gpt-vanilla")
    announced = []

    def stop(stage, done, total, unit):
        announced.append((done, total, unit))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weights.run("gpt-vanilla", out=tmp_path, progress=stop)
    assert announced == [(16, 23, "matrices")]
    read = open_weights("gpt-vanilla").matrices
    assert len(read) == 23
    resumed = weights.run("gpt-vanilla", out=tmp_path, resume=True)
    assert resumed.matrices == undisturbed.matrices
    assert torch.get_num_threads() >= 1


def test_the_command_line(tmp_path, capsys):
    assert command(["weights", "gpt-vanilla", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "transformer.h" in printed
    assert "spikes" in printed
