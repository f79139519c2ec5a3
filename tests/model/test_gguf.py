"""Models in one .gguf file: what transformers unpacks is the model, and what cannot be read is said
in a sentence.
"""

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from headscan.model import ByteTokenizer, Lens, load
from headscan.model.gguf import read_header
from headscan.model.load import prepare
from headscan.model.settings import Building
from headscan.model.tokenizer import load_tokenizer
from headscan.run import BadInput
from tests.model.tiny import ids, llama

WIDTH = 64
HEADS = 2
VOCABULARY = 258


@pytest.fixture(scope="module")
def gguf():
    return pytest.importorskip("gguf", reason="gguf is not installed: .gguf files are NOT tried")


@pytest.fixture(scope="module")
def model():
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
    }
    return llama(
        0, **sizes, num_attention_heads=HEADS, num_key_value_heads=HEADS, tie_word_embeddings=False
    )


def write(gguf, model, file: Path, packing: str = "F32", *, tokenizer: bool = True) -> Path:
    """The Llama as llama.cpp's converter writes it: its names, and the rows of queries and keys in
    its order.
    """
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("tiny")
    writer.add_block_count(model.config.num_hidden_layers)
    writer.add_context_length(model.config.max_position_embeddings)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(model.config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCABULARY)
    if tokenizer:
        from transformers.convert_slow_tokenizer import bytes_to_unicode

        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([*bytes_to_unicode().values(), "he", "hen"])
        writer.add_token_types([1] * VOCABULARY)
        writer.add_token_merges(["h e", "he n"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    kind = gguf.GGMLQuantizationType[packing]
    for name, weight in model.state_dict().items():
        array = weight.numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            array = (
                array.reshape(HEADS, 2, WIDTH // HEADS // 2, WIDTH)
                .swapaxes(1, 2)
                .reshape(array.shape)
            )
        ours = names.get_name(name, try_suffixes=(".weight",))
        if array.ndim == 1 or packing == "F32":
            writer.add_tensor(ours, array.astype(np.float32))
        else:
            writer.add_tensor(ours, gguf.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="module")
def file(gguf, model, tmp_path_factory) -> Path:
    return write(gguf, model, tmp_path_factory.mktemp("one") / "tiny.gguf")


def head(lens: Lens) -> torch.Tensor:
    return lens.run(ids(), sites="head")["head"].float()


def test_a_gguf_file_is_a_model_with_its_tokenizer(model, file):
    lens = Lens.load(file, device="cpu")
    assert lens.name == "tiny"
    assert type(lens.model) is type(model)
    assert torch.equal(head(lens), head(Lens(model)))
    assert lens.context_length == model.config.max_position_embeddings
    hen = lens.require_tokenizer().encode("hen", add_special_tokens=False)
    assert hen == [VOCABULARY - 1]
    known = lens.provenance()
    assert known.sha256 == {"tiny.gguf": sha256(file.read_bytes()).hexdigest()}
    assert (known.dtype, known.notes) == ("float32", Lens(model).notes)
    assert isinstance(Lens.load(file, tokenizer="bytes", device="cpu").tokenizer, ByteTokenizer)
    assert (
        Lens.load("gpt-vanilla", tokenizer=str(file), device="cpu")
        .require_tokenizer()
        .encode("hen")[-1]
        == hen[0]
    )


def test_unpacking_is_silent(file, capfd):
    Lens.load(file, device="cpu")
    said = capfd.readouterr()
    assert said.out == said.err == ""


def test_a_file_without_a_tokenizer_has_none(gguf, model, tmp_path):
    lens = Lens.load(write(gguf, model, tmp_path / "bare.gguf", tokenizer=False), device="cpu")
    assert lens.tokenizer is None
    assert torch.equal(head(lens), head(Lens(model)))


@pytest.mark.parametrize(
    ("packing", "dtype", "within"),
    [("F16", "float16", 1e-2), ("BF16", "bfloat16", 5e-2), ("Q8_0", "float32", 2e-2)],
)
def test_weights_are_unpacked_to_the_precision_they_are_in(
    gguf, model, tmp_path, packing, dtype, within
):
    lens = Lens.load(write(gguf, model, tmp_path / "tiny.gguf", packing), device="cpu")
    assert lens.provenance().dtype == dtype
    assert (head(lens) - head(Lens(model))).abs().max() < within * head(Lens(model)).abs().max()
    said = [note for note in lens.notes if "rounded to few bits" in note]
    assert len(said) == int(packing == "Q8_0")
    assert all("most of them as Q8_0" in note for note in said)
    assert (
        Lens.load(tmp_path / "tiny.gguf", dtype="bfloat16", device="cpu").provenance().dtype
        == "bfloat16"
    )
    assert type(lens.random_init(0).model) is type(model)


def test_fresh_weights_read_no_file_of_it(file):
    lens = Lens.load(file, random_init=3, device="cpu")
    assert lens.provenance().sha256 == {}
    assert not torch.equal(head(lens), head(Lens.load(file, device="cpu")))


def test_memory_is_held_against_the_unpacked_weights(gguf, model, tmp_path, monkeypatch):
    packed = write(gguf, model, tmp_path / "tiny.gguf", "Q8_0")
    size = prepare(packed, Building(device="cpu")).size
    assert size.entries == sum(one.numel() for one in (*model.parameters(), *model.buffers()))
    monkeypatch.setattr(load, "memory_of", lambda device: size.bytes(3.0))
    with pytest.raises(BadInput, match=r"The model 'tiny' needs 0.\d+ GB"):
        prepare(packed, Building(device="cpu"))
    prepare(packed, Building(device="cpu", dtype="bfloat16"))


def test_a_damaged_file_is_refused_before_it_is_read(file, tmp_path, monkeypatch):
    monkeypatch.setattr(load.Preparation, "load", lambda self: pytest.fail("the weights were read"))
    raw = file.read_bytes()
    copy = tmp_path / "tiny.gguf"
    for keep in (0, 3, 20, 200, len(raw) // 2, -1):
        copy.write_bytes(raw[:keep])
        with pytest.raises(BadInput, match=r"truncated|no \.gguf file") as caught:
            Lens.load(copy, device="cpu")
        assert "\n" not in str(caught.value)
    copy.write_text("<html>404</html> " * 100)
    with pytest.raises(BadInput, match=r"no \.gguf file of version 2 or 3"):
        Lens.load(copy, device="cpu")
    with pytest.raises(BadInput, match="leave out --dtype 8bit"):
        Lens.load(file, dtype="8bit", device="cpu")


def test_an_architecture_that_nobody_unpacks_is_one_sentence(gguf, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "no-such-kind")
    writer.add_name("odd")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(BadInput, match=r"'odd' cannot be loaded: .*not supported"):
        Lens.load(tmp_path / "odd.gguf", device="cpu")


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch, package):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(
        "headscan.model.gguf.find_spec", lambda name: None if name == package else True
    )
    with pytest.raises(BadInput, match=rf'the package {package}: pip install "headscan\[gguf\]"'):
        Lens.load(tmp_path / "tiny.gguf", device="cpu")


def test_the_real_file(real, gguf):
    """qwen/ is what another reader unpacked from qwen.gguf: weight by weight the same, its
    tokenizer too.
    """
    header = read_header(real / "qwen.gguf")
    assert (header.packing, header.dtype, header.tokenizer) == ("Q4_K", None, True)
    lens = Lens.load(real / "qwen.gguf", device="cpu")
    weights = json.loads((real / "qwen" / "model.safetensors.index.json").read_text())["weight_map"]
    assert (lens.depth, lens.provenance().dtype) == (28, "float32")
    found = lens.model.state_dict()
    assert set(weights) == set(found)
    for name in (
        "model.embed_tokens.weight",
        "model.layers.13.self_attn.q_proj.weight",
        "model.layers.27.mlp.up_proj.weight",
    ):
        with safe_open(real / "qwen" / weights[name], "pt") as file:
            assert torch.equal(file.get_slice(name)[:64], found[name][:64])
    said = "Grüße, world: def f(x): return x"
    assert lens.require_tokenizer().encode(said) == load_tokenizer(str(real / "qwen")).encode(said)
