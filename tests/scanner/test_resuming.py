"""A scan that was stopped goes on only with what it rests on, and its files are those of an
undisturbed one.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import BadInput, Lens, scan
from headscan.model import ByteTokenizer
from headscan.model.available import specimen_path
from headscan.model.tokenizer import load_tokenizer
from headscan.run import run as run_module
from headscan.run.parts import Parts
from headscan.run.run import LIBRARIES
from headscan.states.vectors import Vectors
from tests.attack.mutations import tokenizer as byte_level
from tests.model.test_gguf import write
from tests.model.tiny import llama

STORY = "Once upon a time there was a hen, and the hen had a cone. " * 30


def tiny_lens(seed: int = 0) -> Lens:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=256,
        n_positions=64,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return Lens(GPT2LMHeadModel(config).eval(), ByteTokenizer(), name="hen")


def stopped(lens: Lens, text: Path, out: Path, **options: object) -> None:
    def stop(stage: str, done: int, total: int | None, unit: str) -> None:
        if done >= 32 * 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan(lens, text, context=32, batch=8, out=out, progress=stop, **options)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "hens.txt"
    path.write_text(STORY)
    return path


def test_another_text_of_the_same_name_is_refused(tmp_path, text):
    stopped(tiny_lens(), text, tmp_path / "out")
    text.write_text(STORY.replace("hen", "cat"))
    with pytest.raises(
        BadInput, match=r"hens\.txt has changed since the run that is to be resumed"
    ):
        scan(tiny_lens(), text, context=32, batch=8, out=tmp_path / "out", resume=True)
    assert not (tmp_path / "out" / "result.json").exists()


def test_other_weights_are_refused_also_of_models_that_were_built(tmp_path, text):
    stopped(tiny_lens(), text, tmp_path / "out")
    with pytest.raises(BadInput, match="model 1 was"):
        scan(tiny_lens(seed=1), text, context=32, batch=8, out=tmp_path / "out", resume=True)


def test_weights_in_another_order_are_refused_though_their_sums_are_equal(tmp_path, text):
    stopped(tiny_lens(), text, tmp_path / "out")
    turned = tiny_lens()
    with torch.no_grad():
        turned.model.transformer.wte.weight.copy_(turned.model.transformer.wte.weight.flip(0))
    with pytest.raises(BadInput, match="model 1 was"):
        scan(turned, text, context=32, batch=8, out=tmp_path / "out", resume=True)


def test_other_special_tokens_are_refused(tmp_path, text):
    """Tokenizers of the same rules may join documents by other tokens."""
    first = tiny_lens()
    changed = tiny_lens()
    stopped(first, text, tmp_path / "out")
    changed.tokenizer.eos_token_id = 7
    with pytest.raises(BadInput, match="eos of the special tokens of model 1 was null and is 7"):
        scan(changed, text, context=32, batch=8, out=tmp_path / "out", resume=True)


def test_a_folder_with_an_adapter_is_refused(tmp_path, text):
    """Where peft is installed, transformers would read weights beside those that were checked."""
    tiny_lens().model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "/elsewhere"})
    )
    with pytest.raises(BadInput, match="holds an adapter of another model"):
        scan(str(tmp_path / "model"), text, context=32, tokenizer="bytes")


def test_links_out_of_a_tokenizer_or_a_store_are_refused(tmp_path):
    (tmp_path / "store").mkdir()
    save_file({"block.0": np.ones((40, 4), np.float32)}, tmp_path / "elsewhere.safetensors")
    (tmp_path / "store" / "states.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    shutil.copytree(specimen_path("gpt-vanilla"), tmp_path / "tokens")
    (tmp_path / "tokens" / "tokenizer.json").rename(tmp_path / "elsewhere.json")
    (tmp_path / "tokens" / "tokenizer.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(BadInput, match=r"a link that leads out of it, 'states\.safetensors'"):
        scan(tmp_path / "store", context=32)
    with pytest.raises(BadInput, match=r"a link that leads out of it, 'tokenizer\.json'"):
        load_tokenizer(tmp_path / "tokens")


def test_the_caches_own_links_are_followed_in_its_folders_folders_too(tmp_path):
    store = tmp_path / "datasets--someone--states" / "snapshots" / "0123" / "layers"
    store.mkdir(parents=True)
    blob = store.parents[2] / "blobs" / "abcd"
    blob.parent.mkdir()
    save_file(
        {"block.0": np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)}, blob
    )
    (store / "states.safetensors").symlink_to(blob)
    assert scan(store, context=8).sites[0]["tokens"] == 40


def test_other_weights_in_the_same_folder_are_refused(tmp_path, text):
    folder = tmp_path / "model"
    tiny_lens().model.save_pretrained(folder)
    stopped(str(folder), text, tmp_path / "out", tokenizer="bytes")
    tiny_lens(seed=1).model.save_pretrained(folder)
    with pytest.raises(BadInput, match=r"model\.safetensors of model 1 was"):
        scan(
            str(folder),
            text,
            context=32,
            batch=8,
            out=tmp_path / "out",
            resume=True,
            tokenizer="bytes",
        )


@pytest.mark.parametrize(
    "file",
    ["config.json", "generation_config.json", "tokenizer_config.json", "1_Pooling/config.json"],
)
def test_another_byte_of_any_file_that_describes_the_model_is_refused_by_its_name(
    tmp_path, text, file
):
    folder = tmp_path / "model"
    tiny_lens().model.save_pretrained(folder)
    for name in ("tokenizer_config.json", "1_Pooling/config.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    stopped(str(folder), text, tmp_path / "out", tokenizer="bytes")
    (folder / file).write_text((folder / file).read_text() + " ")
    with pytest.raises(BadInput, match=rf"cannot be resumed: {file} of model 1 was"):
        scan(
            str(folder),
            text,
            context=32,
            batch=8,
            out=tmp_path / "out",
            resume=True,
            tokenizer="bytes",
        )


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_another_byte_of_what_is_read_beside_a_gguf_file_is_refused_by_its_name(
    tmp_path, text, file
):
    """transformers takes the tokenizer's files where they lie beside the .gguf file."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: .gguf files are NOT tried")
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    network = llama(0, **sizes, vocab_size=258, num_key_value_heads=2, tie_word_embeddings=False)
    model = write(gguf, network, tmp_path / "hen.gguf")
    byte_level().save_pretrained(tmp_path)
    stopped(str(model), text, tmp_path / "out")
    (tmp_path / file).write_text((tmp_path / file).read_text() + " ")
    with pytest.raises(BadInput, match=rf"cannot be resumed: {file} of model 1 was"):
        scan(str(model), text, context=32, batch=8, out=tmp_path / "out", resume=True)


def test_what_a_link_in_a_folder_of_texts_leads_to_is_watched(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "elsewhere").write_text(STORY)
    (tmp_path / "texts" / "hens.txt").symlink_to(tmp_path / "elsewhere")
    stopped(tiny_lens(), tmp_path / "texts", tmp_path / "out")
    (tmp_path / "elsewhere").write_text(STORY.replace("hen", "cat"))
    with pytest.raises(BadInput, match="texts has changed since the run that is to be resumed"):
        scan(
            tiny_lens(), tmp_path / "texts", context=32, batch=8, out=tmp_path / "out", resume=True
        )


def test_a_scan_that_was_stopped_before_its_text_was_read_goes_on(tmp_path, text, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("headscan.text.windows.tokenise", stop)
        with pytest.raises(KeyboardInterrupt):
            scan(tiny_lens(), text, context=32, batch=8, out=tmp_path / "out")
    assert scan(tiny_lens(), text, context=32, batch=8, out=tmp_path / "out", resume=True).sites[0][
        "tokens"
    ]


@pytest.mark.parametrize("library", LIBRARIES)
def test_another_version_of_a_library_is_refused_by_its_name(tmp_path, text, monkeypatch, library):
    stopped(tiny_lens(), text, tmp_path / "out")
    known = run_module._version
    monkeypatch.setattr(
        run_module, "_version", lambda name: "0.0" if name == library else known(name)
    )
    with pytest.raises(BadInput, match=f"the version of {library} was "):
        scan(tiny_lens(), text, context=32, batch=8, out=tmp_path / "out", resume=True)


def test_another_precision_is_refused(tmp_path, text):
    stopped(tiny_lens(), text, tmp_path / "out")
    half = tiny_lens()
    half.model.to(torch.bfloat16)
    with pytest.raises(BadInput, match=r"(model 1|the device and precision of model 1) was"):
        scan(half, text, context=32, batch=8, out=tmp_path / "out", resume=True)


@pytest.mark.parametrize("array", ["block.0", "token_ids", "documents"])
def test_one_byte_of_stored_states_is_seen(tmp_path, array):
    """One row of 30,000, at a place that no spaced sample comes by."""
    rng = np.random.default_rng(0)
    path = tmp_path / "states.npz"
    arrays = {
        "block.0": rng.standard_normal((30_000, 4)).astype(np.float32),
        "token_ids": rng.integers(0, 9, 30_000),
    }
    arrays["documents"] = np.arange(30_000) // 100
    np.savez(path, **arrays)
    stopped(path, None, tmp_path / "out")
    arrays[array].reshape(30_000, -1)[5, 0] += 1
    np.savez(path, **arrays)
    with pytest.raises(BadInput, match=r"cannot be resumed: the states of source 1 was"):
        scan(path, context=32, batch=8, out=tmp_path / "out", resume=True)


def test_what_was_hashed_is_all_that_a_model_is_read_from(tmp_path, text):
    """A folder with these files alone gives the same result (safetensors opens weights itself), and
    Python opened no other.
    """
    folder = tmp_path / "model"
    alone = tmp_path / "alone"
    opened = set()
    tiny_lens().model.save_pretrained(folder)
    (folder / "notes.bin").write_text("not a part of it")
    sys.addaudithook(lambda event, args: opened.add(str(args[0])) if event == "open" else None)
    options = {"context": 32, "tokenizer": "bytes", "max_tokens": 256}
    uninterrupted = scan(str(folder), text, **options)
    named = set(uninterrupted.models[0].sha256)
    assert {
        Path(path).relative_to(folder).as_posix()
        for path in opened
        if path.startswith(f"{folder}/") and os.path.exists(path)
    } <= named
    for name in named:
        (alone / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(folder / name, alone / name)
    assert (
        scan(str(alone), text, **options).sites[0]["effective_rank"]
        == uninterrupted.sites[0]["effective_rank"]
    )


@pytest.mark.parametrize("kind", ["store", "dataset"])
def test_a_store_is_read_from_its_named_files_alone_all_of_whose_vectors_are_hashed(
    tmp_path, kind, monkeypatch
):
    """What Python opens, and what it hashes, as each format's rows are asked: the same rows, of no
    other file.
    """
    store = tmp_path / "store"
    opened = set()
    store.mkdir()
    rows = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    (store / "notes.bin").write_text("not a part of it")
    if kind == "store":
        names = {"a.safetensors", "b.safetensors"}
        for name in names:
            save_file({"block.0": rows}, store / name)
    else:
        names = {"state.json", "dataset_info.json", "a.arrow"}
        (store / "state.json").write_text('{"_data_files": [{"filename": "a.arrow"}]}')
        (store / "dataset_info.json").write_text("{}")
        table = pa.table({"block.0": list(rows)})
        for name in ("a.arrow", "decoy.arrow"):
            with (
                pa.OSFile(str(store / name), "wb") as file,
                pa.ipc.new_file(file, table.schema) as writer,
            ):
                writer.write_table(table)
    sys.addaudithook(lambda event, args: opened.add(str(args[0])) if event == "open" else None)
    reads = list[tuple[int, int]]()
    plain = Vectors.identity
    monkeypatch.setattr(
        Vectors,
        "identity",
        lambda vectors, used: reads.append((used, vectors.count)) or plain(vectors, used),
    )
    result = scan(store, context=8, out=tmp_path / "out")
    assert reads[0][0] == reads[0][1] == result.sites[0]["tokens"]
    assert {
        Path(path).relative_to(store).as_posix() for path in opened if path.startswith(f"{store}/")
    } <= names
    for file in {path.name for path in store.iterdir()} - names:
        (store / file).unlink()
    assert scan(store, context=8).sites[0]["effective_rank"] == result.sites[0]["effective_rank"]


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path, text, file):
    folder = tmp_path / "model"
    tiny_lens().model.save_pretrained(folder)
    (folder / file).rename(tmp_path / "elsewhere")
    (folder / file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match=f"a link that leads out of it, '{file}'"):
        scan(str(folder), text, context=32, tokenizer="bytes")


@pytest.mark.parametrize(
    "change", [{"skip_first": 1}, {"seed": 5}, {"measures": "drift"}, {"batch": 4}, {"context": 16}]
)
def test_other_settings_are_refused_by_name(tmp_path, text, change):
    stopped(tiny_lens(), text, tmp_path / "out")
    name = next(iter(change)).replace("_", "-")
    with pytest.raises(BadInput, match=f"--{name} was"):
        scan(
            tiny_lens(),
            text,
            **({"context": 32, "batch": 8, "out": tmp_path / "out", "resume": True} | change),
        )
    with pytest.raises(BadInput, match="nothing to resume"):
        scan(tiny_lens(), text, context=32, out=tmp_path / "another", resume=True)


def test_the_files_of_a_resumed_scan_are_those_of_an_undisturbed_one(tmp_path, text):
    options = {"null": True, "measures": "rogue,words,collapse,dimension,zipf"}
    stopped(tiny_lens(), text, tmp_path / "out", **options)
    scan(tiny_lens(), text, context=32, batch=8, out=tmp_path / "out", resume=True, **options)
    scan(tiny_lens(), text, context=32, batch=8, out=tmp_path / "whole", **options)
    resumed, undisturbed = (
        json.loads((tmp_path / name / "result.json").read_text()) for name in ("out", "whole")
    )
    for document in (resumed, undisturbed):
        del document["files"]["report.html"]  # the page has the times
        document["protocol"] |= dict.fromkeys(("started", "seconds"))
        document["probes"] = [probe | {"seconds": None} for probe in document["probes"]]
    assert resumed == undisturbed
    arrays, other_arrays = (
        load_file(tmp_path / name / "arrays.safetensors") for name in ("out", "whole")
    )
    assert arrays.keys() == other_arrays.keys()
    assert all((arrays[name] == other_arrays[name]).all() for name in arrays)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "arrays.safetensors",
        "report.html",
        "result.json",
    }


def test_a_torn_part_is_refused(tmp_path, text):
    stopped(tiny_lens(), text, tmp_path / "out")
    part = next((tmp_path / "out" / ".resume").glob("*.safetensors"))
    part.write_bytes(part.read_bytes()[:-8])
    with pytest.raises(BadInput, match="damaged"):
        scan(tiny_lens(), text, context=32, batch=8, out=tmp_path / "out", resume=True)


def test_a_scan_of_wide_states_in_float32_products_goes_on_to_the_same_end(tmp_path, monkeypatch):
    """Stored at every batch, far from the origin and from token to token on: tiles, their centres,
    octaves.
    """
    generator = np.random.default_rng(0)
    states = (generator.standard_normal((6144, 256)) + 3 * generator.standard_normal(256)).astype(
        np.float32
    )
    np.save(tmp_path / "wide.npy", states)
    monkeypatch.setattr(Parts, "FIRST", 0.0)
    monkeypatch.setattr(Parts, "SHARE", 1e9)
    uninterrupted = scan(str(tmp_path / "wide.npy"), context=128, batch=8, out=tmp_path / "whole")
    assert uninterrupted.protocol.settings["arithmetic"] == "bounded"

    for stop_at in (1024, 3072, 5120):

        def stop(
            stage: str, done: int, total: int | None, unit: str, stop_at: int = stop_at
        ) -> None:
            if done >= stop_at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            scan(
                str(tmp_path / "wide.npy"),
                context=128,
                batch=8,
                out=tmp_path / f"{stop_at}",
                progress=stop,
            )
        resumed = scan(
            str(tmp_path / "wide.npy"),
            context=128,
            batch=8,
            out=tmp_path / f"{stop_at}",
            resume=True,
        )
        assert resumed.frame().equals(uninterrupted.frame())
