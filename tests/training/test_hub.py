"""Sending a trained model to the Hub: what is sent, and what a Hub that refuses costs. No network: the client is a stand-in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import transformers.trainer
from transformers import AutoModel

from headscan import BadInput, load
from headscan.training import recipe_of, train

OPTIONS = {"steps": 4, "batch": 4, "context": 16, "vocabulary": 300, "save_every": 2, "geometry_every": 0}


class _Api:
    """Takes what it is sent, or fails from a given call on."""

    def __init__(self, refuse=()):
        self.refuse, self.sent, self.repositories = refuse, [], []

    def create_repo(self, name, **_):
        if "create" in self.refuse:
            raise ConnectionError("Cannot reach the Hub")
        self.repositories.append(name)
        return SimpleNamespace(repo_id=name)

    def upload_folder(self, *, repo_id, folder_path, **options):
        if "upload" in self.refuse and not options.get("run_as_future"):
            raise ConnectionError("The Hub hung up")
        files = sorted(path.name for path in Path(folder_path).iterdir() if path.is_file())
        self.sent.append((repo_id, files))
        return SimpleNamespace(is_done=lambda: True, done=lambda: True, result=lambda: None)


@pytest.fixture
def hub(monkeypatch):
    def use(**options):
        api = _Api(**options)
        monkeypatch.setattr(transformers.trainer, "hf_api", lambda *_, **__: api)
        return api

    return use


def test_a_model_goes_to_the_hub_as_one_that_loads_anywhere(hub, story_file, tmp_path):
    api = hub()
    train(recipe_of("gpt"), str(story_file), out=tmp_path, push_to_hub="me/tiny", **OPTIONS)
    assert api.repositories == ["me/tiny"]
    name, files = api.sent[-1]
    assert name == "me/tiny"
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert not any(file.endswith((".bin", ".pkl")) for file in files)
    assert AutoModel.from_pretrained(tmp_path).get_output_embeddings() is None  # what was sent


def test_a_hub_that_refuses_at_the_start_is_said_so(hub, story_file, tmp_path):
    hub(refuse=("create",))
    with pytest.raises(BadInput, match=r"does not take me/tiny: Cannot reach the Hub"):
        train(recipe_of("gpt"), str(story_file), out=tmp_path, push_to_hub="me/tiny", **OPTIONS)


def test_a_hub_that_refuses_at_the_end_costs_nothing(hub, story_file, tmp_path):
    hub(refuse=("upload",))
    with pytest.raises(BadInput, match=r"is whole in .* but the Hub did not take it: The Hub hung up"):
        train(recipe_of("gpt"), str(story_file), out=tmp_path, push_to_hub="me/tiny", **OPTIONS)
    assert load(tmp_path).document["steps"] == 4
    assert AutoModel.from_pretrained(tmp_path / "model") is not None
