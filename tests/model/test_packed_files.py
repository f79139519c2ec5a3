"""Packed matrices: unpacked like slow numpy loops do it, and whole models read from such files."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

import headscan
from headscan.model import Lens
from headscan.model.packed_files import packing_of, unpacked

OUTPUTS = 32
INPUTS = 64
GROUP = 16
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def packed_words(codes, bits, order=None):
    """Codes [n, d] along the rows, 32 / bits in a number of 32 bits, by loops."""
    count = 32 // bits
    order = list(range(count)) if order is None else order
    words = np.zeros((len(codes), -(-codes.shape[1] // count)), dtype=np.uint32)
    for row in range(len(words)):
        for word in range(words.shape[1]):
            for place in range(count):
                column = word * count + order[place]
                if column < codes.shape[1]:
                    words[row, word] |= np.uint32(int(codes[row, column]) << (bits * place))
    return torch.from_numpy(words.view(np.int32).copy())


def drawn(bits, seed=0, rows=OUTPUTS, columns=INPUTS):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2**bits, (rows, columns))
    zeros = rng.integers(1, 2**bits, (rows, columns // GROUP))
    scales = (rng.random((rows, columns // GROUP)) + 0.5).astype(np.float16).astype(float)
    return codes, zeros, scales


def plain(codes, zeros, scales, group=None):
    """(q − z)·s by loops."""
    weights = np.zeros(codes.shape)
    for row in range(codes.shape[0]):
        for column in range(codes.shape[1]):
            g = column // GROUP if group is None else group[column]
            weights[row, column] = (codes[row, column] - zeros[row, g]) * scales[row, g]
    return weights


def gptq(seed=0, bits=4, group=None, offset=1, rows=OUTPUTS, columns=INPUTS):
    codes, zeros, scales = drawn(bits, seed, rows, columns)
    parts = {
        "qweight": packed_words(codes, bits).T.contiguous(),
        "qzeros": packed_words((zeros - offset).T, bits),
        "scales": torch.from_numpy(scales.T.copy()).half(),
    }
    if group is not None:
        parts["g_idx"] = torch.from_numpy(group).int()
    return parts, plain(codes, zeros, scales, group)


def awq(seed=0, rows=OUTPUTS, columns=INPUTS):
    codes, zeros, scales = drawn(4, seed, rows, columns)
    parts = {
        "qweight": packed_words(codes.T, 4, AWQ_ORDER),
        "qzeros": packed_words(zeros.T, 4, AWQ_ORDER),
        "scales": torch.from_numpy(scales.T.copy()).half(),
    }
    return parts, plain(codes, zeros, scales)


def compressed(seed=0, bits=4, asymmetric=False, rows=OUTPUTS, columns=INPUTS):
    codes, zeros, scales = drawn(bits, seed, rows, columns)
    if not asymmetric:
        zeros = np.full_like(zeros, 2 ** (bits - 1))
    parts = {
        "weight_packed": packed_words(codes, bits),
        "weight_scale": torch.from_numpy(scales).half(),
        "weight_shape": torch.tensor([rows, columns]),
    }
    if asymmetric:
        parts["weight_zero_point"] = packed_words(zeros.T, bits).T.contiguous()
    return parts, plain(codes, zeros, scales)


def fp8(seed=0, rows=OUTPUTS, columns=INPUTS, block=(24, 24)):
    rng = np.random.default_rng(seed)
    weight = torch.from_numpy(rng.standard_normal((rows, columns))).to(torch.float8_e4m3fn)
    shape = (-(-rows // block[0]), -(-columns // block[1]))
    scales = rng.random(shape).astype(np.float32) + 0.5
    plain_weights = weight.float().double().numpy()
    for row in range(rows):
        for column in range(columns):
            plain_weights[row, column] *= scales[row // block[0], column // block[1]]
    return {"weight": weight, "weight_scale_inv": torch.from_numpy(scales)}, plain_weights


def scheme(**settings):
    settings = {"num_bits": 4, "strategy": "group", "group_size": GROUP} | settings
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": settings}},
    }


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
FP8 = {"quant_method": "fp8", "weight_block_size": [24, 24]}
SHUFFLED = np.random.default_rng(5).permutation(np.arange(INPUTS) // GROUP)


class Config:
    def __init__(self, settings):
        self.quantization_config = settings


@pytest.mark.parametrize(
    ("settings", "made"),
    [
        (GPTQ, gptq()),
        (GPTQ | {"bits": 8}, gptq(bits=8)),
        (GPTQ | {"bits": 2}, gptq(bits=2)),
        (GPTQ | {"checkpoint_format": "gptq_v2"}, gptq(offset=0)),
        (GPTQ | {"desc_act": True}, gptq(group=SHUFFLED)),
        (AWQ, awq()),
        (scheme(), compressed()),
        (scheme(num_bits=8), compressed(bits=8)),
        (scheme(symmetric=False), compressed(asymmetric=True)),
        (FP8, fp8()),
    ],
)
def test_matrices_are_unpacked_like_loops_do_it(settings, made):
    parts, expected = made
    packing = packing_of(Config(settings))
    assert unpacked(parts, packing).numpy() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("strategy", "scale"), [("tensor", torch.tensor([0.5])), ("channel", torch.rand(OUTPUTS, 1))]
)
@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn])
def test_codes_of_eight_bits_are_multiplied_by_their_scale(strategy, scale, kind):
    codes = torch.randint(-9, 9, (OUTPUTS, INPUTS)).to(kind)
    packing = packing_of(Config(scheme(num_bits=8, strategy=strategy)))
    weights = unpacked({"weight": codes, "weight_scale": scale}, packing)
    assert torch.equal(weights, codes.float() * scale)


@pytest.mark.parametrize(
    "settings",
    [
        GPTQ | {"bits": 3},
        AWQ | {"version": "gemv"},
        scheme(strategy="tensor_group"),
        {"quant_method": "aqlm"},
        None,
    ],
)
def test_other_formats_are_left_to_transformers(settings):
    assert packing_of(Config(settings)) is None


def tiny():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        dtype="float32",
    )
    return Qwen2ForCausalLM(config).eval()


def written(folder, settings, make):
    """Write a model whose linear layers are packed, and return the plain one."""
    model = tiny()
    tensors = dict(model.state_dict())
    for number, (name, module) in enumerate(model.model.layers.named_modules()):
        if isinstance(module, torch.nn.Linear):
            rows, columns = module.weight.shape
            parts, weights = make(seed=number, rows=rows, columns=columns)
            module.weight.data = torch.from_numpy(weights).float() * 0.01
            scaled = "scales" if "scales" in parts else "weight_scale"
            scaled = "weight_scale_inv" if "weight_scale_inv" in parts else scaled
            parts[scaled] = parts[scaled].float() * 0.01
            prefix = f"model.layers.{name}"
            del tensors[f"{prefix}.weight"]
            tensors |= {f"{prefix}.{last}": part for last, part in parts.items()}
    folder.mkdir()
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads(model.config.to_json_string(use_diff=False))
    config["architectures"] = ["Qwen2ForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
    return model


@pytest.mark.parametrize(
    ("settings", "make"), [(GPTQ, gptq), (AWQ, awq), (scheme(), compressed), (FP8, fp8)]
)
def test_a_packed_model_is_read_without_the_package_that_packed_it(settings, make, tmp_path):
    model = written(tmp_path / "packed", settings, make)
    lens = Lens.load(tmp_path / "packed", tokenizer="gpt-vanilla")
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.allclose(lens.model(ids).logits, model(ids).logits, atol=1e-4)
    record = lens.provenance()
    assert any("unpacked" in note for note in record.notes)


def test_a_matrix_that_lacks_a_part_is_refused_by_name(tmp_path):
    written(tmp_path / "packed", GPTQ | {"quant_method": "awq"}, gptq)
    with pytest.raises(headscan.BadInput, match="are not those of a matrix that awq packed"):
        Lens.load(tmp_path / "packed", tokenizer="gpt-vanilla")
