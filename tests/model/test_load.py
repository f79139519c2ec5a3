"""Loading: what works, and one clear sentence for everything that does not."""

import json
import shutil
import socket
from dataclasses import asdict
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import AutoModel, PreTrainedTokenizerFast

from headscan.model import ByteTokenizer, Lens, source, specimens
from headscan.model.available import specimen_path
from headscan.run import BadInput
from tests.model.tiny import coverage_script, family, gpt2, ids, llama


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A folder with a tiny GPT-2 and a tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    gpt2().save_pretrained(folder)
    vocabulary = {chr(97 + i % 26) * (1 + i // 26): i for i in range(61)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "tiny-gpt2"))


def refuse(message: str, *args, **kwargs) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        Lens.load(*args, **kwargs)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_folder_gives_the_model_that_was_saved(saved):
    lens = Lens.load(str(saved), device="cpu")
    assert lens.name == "tiny-gpt2"
    assert torch.equal(
        lens.run(ids(), sites="head")["head"], Lens(gpt2()).run(ids(), sites="head")["head"]
    )
    assert lens.tokenizer is not None
    assert not lens.model.training
    known = lens.provenance()
    named = {
        "model.safetensors",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert known.sha256 == {name: sha256((saved / name).read_bytes()).hexdigest() for name in named}
    assert json.loads(json.dumps(asdict(known))) == asdict(known)


@pytest.mark.parametrize("row", coverage_script().FAMILIES, ids=lambda row: row.name)
def test_every_family_is_loaded_with_the_class_it_was_saved_with(row, tmp_path):
    model = row.build()
    model.save_pretrained(tmp_path)
    lens = Lens.load(str(tmp_path), device="cpu")
    assert type(lens.model) is type(model)
    assert torch.equal(lens.input_embeddings, Lens(model).input_embeddings)
    assert lens.notes == Lens(model).notes


def test_shards_are_read_and_checked(saved, tmp_path):
    gpt2().save_pretrained(tmp_path, max_shard_size="10KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) > 1
    lens = Lens.load(str(tmp_path), device="cpu")
    assert torch.equal(
        lens.run(ids(), sites="head")["head"], Lens(gpt2()).run(ids(), sites="head")["head"]
    )
    assert {shard.name for shard in shards} | {
        "config.json",
        "model.safetensors.index.json",
    } <= set(lens.provenance().sha256)
    shards[1].unlink()
    refuse("is missing, though", str(tmp_path))


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/outside.safetensors", "deep/inside.safetensors"]
)
def test_an_index_that_names_other_folders_is_refused(folder, name):
    (folder / "model.safetensors").rename(folder / Path(name).name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    refuse("names a file outside its folder", str(folder))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtype(saved, dtype):
    assert Lens.load(str(saved), dtype=dtype, device="cpu").provenance().dtype == dtype


def test_dtype_auto_is_the_weights_own(tmp_path):
    gpt2().bfloat16().save_pretrained(tmp_path)
    assert Lens.load(str(tmp_path), device="cpu").model.dtype == torch.bfloat16


def test_random_init_reads_no_weights(folder):
    (folder / "model.safetensors").unlink()
    one, same, other = (
        Lens.load(str(folder), random_init=seed, device="cpu") for seed in (1, 1, 2)
    )
    assert torch.equal(one.input_embeddings, same.input_embeddings)
    assert not torch.equal(one.input_embeddings, other.input_embeddings)
    assert one.provenance().random_init == 1
    assert "model.safetensors" not in one.provenance().sha256


def test_device_map_is_handed_on(saved):
    if find_spec("accelerate") is None:
        refuse("needs the package accelerate", str(saved), device="balanced")
        return
    lens = Lens.load(str(saved), device={"": "cpu"})
    assert torch.equal(
        lens.run(ids(), sites="block.3")["block.3"],
        Lens(gpt2()).run(ids(), sites="block.3")["block.3"],
    )


def test_tokenizers(saved, tmp_path):
    assert isinstance(
        Lens.load(str(saved), tokenizer="bytes", device="cpu").tokenizer, ByteTokenizer
    )
    own = ByteTokenizer()
    assert Lens.load(str(saved), tokenizer=own, device="cpu").tokenizer is own
    llama().save_pretrained(tmp_path)
    bare = Lens.load(str(tmp_path), device="cpu")
    assert bare.tokenizer is None
    with pytest.raises(BadInput, match="without a tokenizer"):
        bare.require_tokenizer()
    assert Lens.load(str(tmp_path), tokenizer=str(saved), device="cpu").require_tokenizer().encode(
        "a"
    ) == [0]
    refuse("has no tokenizer", str(saved), tokenizer=str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{")
    refuse("tokenizer of .* cannot be read", str(tmp_path))


def test_specimens_load_by_name():
    for name in specimens():
        lens = Lens.load(name, device="cpu")
        assert lens.name == name
        assert lens.provenance().sha256
    with pytest.raises(BadInput, match="no example model 'none-such'"):
        specimen_path("none-such")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("./nowhere", "There is no folder './nowhere'"),
        ("/nowhere/at/all", "There is no folder"),
        ("", "No model was named"),
        ("two words", "no folder"),
        ("a/b/c", "no folder"),
    ],
)
def test_a_missing_folder(place, message):
    refuse(message, place)


def test_a_folder_without_config(folder):
    (folder / "config.json").unlink()
    refuse("has no config.json", str(folder))
    refuse("is a file", str(folder / "model.safetensors"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"transformers_weights": "other.safetensors"}', "names other weights"),
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("{}", "no model_type"),
        ('{"model_type": "no-such-kind"}', "cannot be loaded"),
        (
            '{"model_type": "mine", "auto_map": {"AutoConfig": "code.Config"}}',
            "trust_remote_code|cannot be loaded",
        ),
    ],
)
def test_a_config_that_describes_nothing(folder, text, message):
    (folder / "config.json").write_text(text)
    refuse(message, str(folder))


def test_missing_and_pickled_weights(folder):
    weights = folder / "model.safetensors"
    torch.save({}, folder / "pytorch_model.bin")
    weights.unlink()
    refuse("pytorch_model.bin only.*safetensors only", str(folder))
    (folder / "pytorch_model.bin").unlink()
    refuse("has no weights", str(folder))


@pytest.mark.parametrize("keep", [0, 5, 8, 200, 3000, -1])
def test_a_truncated_file(folder, keep):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    refuse("truncated", str(folder))


def test_a_file_of_something_else(folder):
    weights = folder / "model.safetensors"
    raw = weights.read_bytes()
    weights.write_bytes(raw + b"more")
    refuse("damaged", str(folder))
    weights.write_bytes(raw[:8] + b"#" + raw[9:])
    refuse("damaged", str(folder))
    weights.write_text("<html>404</html> " * 100)
    refuse("truncated or no safetensors", str(folder))


def change(folder: Path, **more) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | more))


def test_weights_that_the_file_lacks_are_refused(folder):
    change(folder, n_layer=5)
    refuse(
        r"do not fit its configuration: \d+ that GPT2LMHeadModel needs are not in the file",
        str(folder),
    )
    change(folder, n_layer=4, n_embd=32)
    refuse(r"do not fit its configuration: \d+ of other shapes", str(folder))


def test_weights_that_the_model_has_no_use_for_are_noted(folder):
    change(folder, n_layer=2)
    assert any(
        "are not used by GPT2LMHeadModel" in note
        for note in Lens.load(str(folder), device="cpu").notes
    )


def test_a_missing_pooler_does_no_harm(tmp_path):
    family("Bert (bare encoder)").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    rest = {name: value for name, value in weights.items() if not name.startswith("pooler")}
    assert len(rest) < len(weights)
    save_file(rest, tmp_path / "model.safetensors", {"format": "pt"})
    lens = Lens.load(str(tmp_path), device="cpu")
    assert isinstance(lens.model, type(AutoModel.from_pretrained(tmp_path)))
    rest.pop("encoder.layer.1.output.dense.weight")
    save_file(rest, tmp_path / "model.safetensors", {"format": "pt"})
    refuse("encoder.layer.1.output.dense.weight", str(tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dtype": "float8"},
            "--dtype must be auto, float32, bfloat16, float16, 8bit or 4bit, not 'float8'",
        ),
        ({"device": "gpu"}, "no device 'gpu'; choose"),
        ({"device": "cpu:1"}, "no device"),
        ({"dtype": "3bit"}, "--dtype must be .* 8bit or 4bit, not '3bit'"),
        ({"dtype": "8bit", "random_init": 1}, "cannot be quantised|bitsandbytes"),
    ],
)
def test_unknown_settings(saved, options, message):
    refuse(message, str(saved), **options)


def test_absent_devices_and_packages(saved, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refuse("finds no CUDA device", str(saved), device="cuda")
    refuse("finds no CUDA device", str(saved), device="cuda:0")
    monkeypatch.setattr("headscan.model.weights.find_spec", lambda name: None)
    refuse(r'bitsandbytes: pip install "headscan\[quantize\]"', str(saved), dtype="4bit")
    refuse("needs the package accelerate", str(saved), device="balanced")


@pytest.mark.parametrize(("quantize", "layer"), [("8bit", "Linear8bitLt"), ("4bit", "Linear4bit")])
def test_quantised_weights_show_the_same_sites(tmp_path, quantize, layer):
    pytest.importorskip(
        "bitsandbytes", reason="bitsandbytes is not installed: quantised loading is NOT tested"
    )
    model = llama(hidden_size=128, intermediate_size=256)
    model.save_pretrained(tmp_path)
    lens = Lens.load(str(tmp_path), dtype=quantize, device="cpu")
    assert type(lens.model.model.layers[0].mlp.up_proj).__name__ == layer
    assert lens.sites == Lens(model).sites
    assert all(lens.stacks[0].plain)
    site = "block.2"
    close = torch.cosine_similarity(
        lens.run(ids(), sites=site)[site], Lens(model).run(ids(), sites=site)[site], dim=-1
    )
    assert close.min() > 0.9
    assert type(lens.random_init(0).model.model.layers[0].mlp.up_proj).__name__ == "Linear"


def test_a_hub_id_without_a_network(monkeypatch):
    refuse(
        "'nobody/nothing' is no folder, no example model .* cannot be reached",
        "nobody/nothing",
        device="cpu",
    )

    def fail(*_):
        raise OSError("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    source._hub_has_address.cache_clear()
    try:
        assert source.Source("a/b", "a/b", None, None).local_files_only
    finally:
        source._hub_has_address.cache_clear()


def test_a_cached_hub_model_loads_offline_with_its_commit(saved, tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--someone--tiny"
    shutil.copytree(saved, repository / "snapshots" / commit)
    for part in ("refs", "blobs"):
        (repository / part).mkdir()
    (repository / "refs" / "main").write_text(commit)
    for file in (
        repository / "snapshots" / commit
    ).iterdir():  # as the cache has them: links to its blobs
        file.rename(repository / "blobs" / file.name)
        file.symlink_to(Path("../../blobs") / file.name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for name in ("someone/tiny", "someone/tiny@main", f"someone/tiny@{commit}"):
        lens = Lens.load(name, device="cpu")
        known = lens.provenance()
        assert known.name == name
        assert known.revision == commit
        named = {
            "model.safetensors",
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
        }
        assert known.sha256 == {
            file: sha256((saved / file).read_bytes()).hexdigest() for file in named
        }
        assert lens.require_tokenizer().encode("b") == [1]
    refuse("cannot be reached|no revision", "someone/tiny@other")
    refuse("is no model: a revision is written", "someone/tiny@../../x")
    refuse("on this machine and has no revisions", f"{saved}@main")


def test_loading_is_silent_and_leaves_the_logging_as_it_was(saved, capfd):
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    Lens.load(str(saved), device="cpu")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_a_saved_mixer_is_known_to_a_fresh_process(tmp_path):
    """Its classes are registered by loading, not by whoever trained it."""
    import subprocess
    import sys

    from headscan.model.mixer import MixerConfig, MixerForCausalLM

    sizes = {
        "vocab_size": 32,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "max_position_embeddings": 16,
    }
    MixerForCausalLM(MixerConfig(**sizes)).save_pretrained(tmp_path)
    code = f"import headscan; print(headscan.Lens.load({str(tmp_path)!r}).default_sites)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "block.1" in done.stdout
