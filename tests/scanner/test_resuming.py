"""A scan that was stopped goes on only with what it rests on, and its files are those of an undisturbed one."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import BadInput, Lens, scan
from headscan.model import ByteTokenizer

STORY = "Once upon a time there was a hen, and the hen had a cone. " * 60


def made(seed: int = 0) -> Lens:
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=256, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
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
    stopped(made(), text, tmp_path / "out")
    text.write_text(STORY.replace("hen", "cat"))
    with pytest.raises(BadInput, match=r"hens\.txt has changed since the run that is to be resumed"):
        scan(made(), text, context=32, batch=8, out=tmp_path / "out", resume=True)
    assert not (tmp_path / "out" / "result.json").exists()


def test_other_weights_are_refused_also_of_models_that_were_built(tmp_path, text):
    stopped(made(), text, tmp_path / "out")
    with pytest.raises(BadInput, match="the weights of hen was"):
        scan(made(seed=1), text, context=32, batch=8, out=tmp_path / "out", resume=True)


def test_other_weights_in_the_same_folder_are_refused(tmp_path, text):
    folder = tmp_path / "model"
    made().model.save_pretrained(folder)
    stopped(str(folder), text, tmp_path / "out", tokenizer="bytes")
    made(seed=1).model.save_pretrained(folder)
    with pytest.raises(BadInput, match="the weights of"):
        scan(str(folder), text, context=32, batch=8, out=tmp_path / "out", resume=True, tokenizer="bytes")


@pytest.mark.parametrize("change", [{"skip_first": 1}, {"seed": 5}, {"measures": "drift"}, {"batch": 4}, {"context": 16}])
def test_other_settings_are_refused_by_name(tmp_path, text, change):
    stopped(made(), text, tmp_path / "out")
    name = next(iter(change)).replace("_", "-")
    with pytest.raises(BadInput, match=f"--{name} was"):
        scan(made(), text, **({"context": 32, "batch": 8, "out": tmp_path / "out", "resume": True} | change))
    with pytest.raises(BadInput, match="nothing to resume"):
        scan(made(), text, context=32, out=tmp_path / "another", resume=True)


def test_the_files_of_a_resumed_scan_are_those_of_an_undisturbed_one(tmp_path, text):
    options = {"null": True, "measures": "rogue,words,collapse,dimension,zipf"}
    stopped(made(), text, tmp_path / "out", **options)
    scan(made(), text, context=32, batch=8, out=tmp_path / "out", resume=True, **options)
    scan(made(), text, context=32, batch=8, out=tmp_path / "whole", **options)
    one, other = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("out", "whole"))
    for document in (one, other):
        document["protocol"] |= dict.fromkeys(("started", "seconds"))
        document["probes"] = [probe | {"seconds": None} for probe in document["probes"]]
    assert one == other
    arrays, others = (load_file(tmp_path / name / "arrays.safetensors") for name in ("out", "whole"))
    assert arrays.keys() == others.keys()
    assert all((arrays[name] == others[name]).all() for name in arrays)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"arrays.safetensors", "report.html", "result.json"}


def test_a_torn_part_is_refused(tmp_path, text):
    stopped(made(), text, tmp_path / "out")
    part = next((tmp_path / "out" / ".resume").glob("*.safetensors"))
    part.write_bytes(part.read_bytes()[:-8])
    with pytest.raises(BadInput, match="damaged"):
        scan(made(), text, context=32, batch=8, out=tmp_path / "out", resume=True)
